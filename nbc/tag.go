package nbc

import "fmt"

// Tag is the identity of a message: what is sent, not when. Both ends derive
// it from the collective, so that requests may be started in different orders
// on different ranks. Together with the pair of ranks it is unique among the
// messages in flight; messages with equal tags between one pair of ranks (the
// same collective started again) arrive in the order they were sent. Transports
// compare all of it.
type Tag struct {
	Comm     uint64 // the communicator
	Instance uint32 // the collective on it
	Message  uint32 // the message of its schedule
	// Fingerprint is a digest of how the rank called the collective (type, op,
	// collective, root, count, spec), a part of the identity like the others: ranks
	// that call different collectives under one Instance must not add each
	// other's bytes, so their messages do not match.
	Fingerprint uint32
}

// SetupComm is the communicator of the messages with which a transport that lies
// over another one sets up. Nothing else uses it.
const SetupComm = 1<<64 - 1

// String returns such as "message 5 of collective 12 on communicator 0.3", the
// third that was made with rank 0 of the world as its first rank.
func (t Tag) String() string {
	comm := "the world"
	if t.Comm != 0 {
		comm = fmt.Sprintf("communicator %d.%d", t.Comm>>32, uint32(t.Comm))
	}
	return fmt.Sprintf("message %d of collective %s on %s", t.Message, instanceName(t.Instance), comm)
}
