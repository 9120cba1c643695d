package collectives

import (
	"context"
	"fmt"

	"github.com/scaffe/scaffe/mem"
)

// PeerError is an error of another rank, in its words.
type PeerError struct {
	Rank int
	Text string
}

// Error names the rank and its error.
func (e *PeerError) Error() string { return fmt.Sprintf("rank %d: %s", e.Rank, e.Text) }

// Agree is a collective in which the ranks agree whether to go on: it returns
// nil on all ranks if err is nil on all, and otherwise an error on all ranks:
// that of the lowest rank that has one, the error itself there and a
// *PeerError elsewhere. Set-up steps that can fail on one rank alone end with
// it, so that nobody waits for a rank that has left.
func (c *Comm) Agree(ctx context.Context, err error) error {
	first := []int32{int32(c.Size())}
	if err != nil {
		first[0] = int32(c.Rank())
	}
	if e := c.Allreduce(ctx, mem.Of(first), mem.Of(first), mem.Int32, mem.Min); e != nil {
		if err != nil {
			return err
		}
		return e
	}
	rank := int(first[0])
	if rank == c.Size() {
		return nil
	}
	var text []byte
	if rank == c.Rank() {
		text = []byte(err.Error())
	}
	text, e := c.bcastBytes(ctx, text, rank)
	switch {
	case rank == c.Rank():
		return err
	case e != nil:
		return e
	}
	return &PeerError{Rank: rank, Text: string(text)}
}

// bcastBytes sends root's b, whose length only root knows, to all.
func (c *Comm) bcastBytes(ctx context.Context, b []byte, root int) ([]byte, error) {
	n := []int64{int64(len(b))}
	if err := c.Bcast(ctx, mem.Of(n), mem.Int64, root); err != nil {
		return nil, err
	}
	if c.Rank() != root {
		b = make([]byte, n[0])
	}
	return b, c.Bcast(ctx, mem.Of(b), mem.Uint8, root)
}
