package trace

import (
	"fmt"
	"time"
)

// Kind says what a rank did during an event.
type Kind uint8

// The kinds of events. What a rank's computing goroutine does: Forward,
// Backward, Update, the waits, Input, Test and Snapshot, within an Iteration.
// What runs alongside it: Push and Pull, by the communication engine, and Read,
// by the goroutines that read ahead. Overtaken and LetGo are where the engine did not keep to the
// order of urgency; they begin when a message could have left and end when it did. On a GPU, Forward and Backward are what the
// host takes to begin a pass, OnForward and OnBackward the pass, by the GPU's own events.
const (
	Forward    Kind = iota // a layer's forward pass
	Backward               // a layer's backward pass
	Update                 // the solver's update, of all parameters or of a bucket
	Push                   // gradients in flight: a reduce or an allreduce
	Pull                   // parameters in flight: a broadcast
	WaitPush               // nothing but waiting for that Push
	WaitPull               // nothing but waiting for that Pull
	Input                  // waiting for a batch
	Read                   // a reader decodes a batch
	Test                   // a test phase
	Snapshot               // writing a snapshot
	Iteration              // all of an iteration, around the others
	Sync                   // another wait for all ranks: the sum of the loss, an agreement
	Overtaken              // a message was held back, and something less urgent began meanwhile; or, at one moment, an addition
	LetGo                  // a message was held back until patience let it go, though there was no room
	OnForward              // a layer's forward pass where a GPU does it, beside the goroutine that has begun it
	OnBackward             // a layer's backward pass there
	CopyUp                 // a copy into a GPU's memory
	CopyDown               // a copy out of it
	kinds                  // how many there are
)

var kindNames = [kinds]string{
	"forward", "backward", "update", "push", "pull", "wait push", "wait pull",
	"input", "read", "test", "snapshot", "iteration", "sync", "overtaken", "let go",
	"gpu forward", "gpu backward", "copy up", "copy down",
}

// String returns the kind's name, such as "wait push".
func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// ParseKind is the inverse of String.
func ParseKind(s string) (Kind, error) {
	for k, name := range kindNames {
		if s == name {
			return Kind(k), nil
		}
	}
	return 0, fmt.Errorf("unknown kind of event %q", s)
}

// hasLayer reports whether an event's Layer counts.
func (k Kind) hasLayer() bool { return k == Forward || k == Backward }

// hasBucket reports whether an event's Bucket counts.
func (k Kind) hasBucket() bool {
	return k == Push || k == Pull || k == WaitPush || k == WaitPull
}

// Event is something that a rank did from Begin to End.
type Event struct {
	Kind Kind
	// Name is that of the layer or the bucket, says which of several Syncs, or what was Overtaken or
	// LetGo, such as "slice 17 of fc6".
	// It is kept, not copied: constants and the names of layers are good.
	Name string
	// Iter is the iteration that the event belongs to. A Push, Pull or wait is
	// the same collective on all ranks where Kind, Bucket and Iter are equal.
	Iter int32
	// Layer is the layer's number in the net; of Forward and Backward alone.
	Layer int32
	// Bucket is the bucket's number; of Push, Pull and their waits alone.
	Bucket int32
	// Bytes is how many bytes of a buffer move, 0 where none do.
	Bytes int64
	// Begin and End are readings of Recorder.Now (or time.Now, unless the
	// recorder has its own clock).
	Begin, End time.Time
}
