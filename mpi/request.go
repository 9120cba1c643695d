package mpi

// Done is a request that ended.
type Done struct {
	ID     uint64 // given when the request was begun
	Bytes  int    // received bytes; 0 for a send
	Source int    // the sender's rank, for a receive
	Tag    int    // the message's tag, for a receive
	// Err is nil, an *Error, or ErrCancelled. A message shorter than the
	// memory it was received into is not an error: see Bytes.
	Err error
}
