package collectives

import (
	"context"
	"fmt"

	"github.com/scaffe/scaffe/mem"
)

// AgreedError is an error that all ranks of a communicator have agreed to end
// with: no rank has to be told of it.
type AgreedError struct {
	Rank int    // whose error it is
	Text string // its words
	Err  error  // the error itself, on that rank alone
}

// Error names the rank and its error.
func (e *AgreedError) Error() string { return fmt.Sprintf("rank %d: %s", e.Rank, e.Text) }

// Unwrap returns the error itself, nil on the other ranks.
func (e *AgreedError) Unwrap() error { return e.Err }

// Agree is a collective in which the ranks agree whether to go on: it returns
// nil on all ranks if err is nil on all, and otherwise the same *AgreedError
// on all ranks, that of the lowest rank whose err is not nil. Steps that can
// fail on one rank alone end with it, so that no rank waits for one that has
// left.
func (c *Comm) Agree(ctx context.Context, err error) error {
	first := []int32{int32(c.Size())}
	if err != nil {
		first[0] = int32(c.Rank())
	}
	if e := c.Allreduce(ctx, mem.Of(first), mem.Of(first), mem.Int32, mem.Min, control); e != nil {
		if err != nil {
			return err
		}
		return e
	}
	rank := int(first[0])
	if rank == c.Size() {
		return nil
	}
	agreed := &AgreedError{Rank: rank}
	if rank == c.Rank() {
		agreed.Err, agreed.Text = err, err.Error()
	}
	text, e := c.BcastBytes(ctx, []byte(agreed.Text), rank)
	if e != nil && agreed.Err == nil {
		return e
	}
	agreed.Text = string(text)
	return agreed
}

// BcastBytes brings root's b, whose length it alone knows, to all; what the others give is ignored. It is
// a collective, for texts and not for speed.
func (c *Comm) BcastBytes(ctx context.Context, b []byte, root int) ([]byte, error) {
	n := []int64{int64(len(b))}
	if err := c.Bcast(ctx, mem.Of(n), mem.Int64, root, control); err != nil {
		return nil, err
	}
	if c.Rank() != root {
		b = make([]byte, n[0])
	}
	if len(b) == 0 {
		return b, nil
	}
	return b, c.Bcast(ctx, mem.Of(b), mem.Uint8, root, control)
}
