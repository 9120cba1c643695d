package collectives

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/scaffe/scaffe/mem"
)

// worldID is the number of the communicator of all ranks. Another's is the world
// rank of its rank 0 in the upper half, below 1<<31, and in the lower half a
// number that this rank's process gives out once, never 0. So ranks need not
// agree on numbers, and communicators may be made at the same time.
const worldID = 0

// made counts the communicators that this process has offered numbers for.
var made atomic.Uint64

// number returns a fresh number for a communicator.
func number() (int64, error) {
	n := made.Add(1)
	if n > math.MaxUint32 {
		return 0, errors.New("collectives: this process has no number left for another communicator")
	}
	return int64(n), nil
}

// Dup returns a communicator of the same ranks whose collectives do not meet
// this one's. It is a collective.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) { return c.Split(ctx, 0, c.rank) }

// Split divides the communicator: ranks that give the same color, from 0 on,
// make up a new one, ordered by key and, where keys are equal, by rank. A
// negative color takes part in none and gets nil. It is a collective.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	n := c.Size()
	// One row a rank: a fresh number, color, key; zero elsewhere, so that the sum
	// of all ranks' tables is everyone's.
	table := make([]int64, 3*n)
	fresh, failed := number() // its 0 tells the others
	table[c.rank] = fresh
	table[n+c.rank], table[2*n+c.rank] = int64(color), int64(key)
	if err := c.Allreduce(ctx, mem.Of(table), mem.Of(table), mem.Int64, mem.Sum, control); err != nil {
		return nil, err
	}
	numbers, colors, keys := table[:n], table[n:2*n], table[2*n:]
	if failed != nil {
		return nil, failed
	}
	if r := slices.Index(numbers, 0); r >= 0 {
		return nil, fmt.Errorf("collectives: rank %d has no number left for another communicator", r)
	}
	if color < 0 {
		return nil, nil
	}
	var members []int
	for r := range n {
		if colors[r] == int64(color) {
			members = append(members, r)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int {
		switch {
		case keys[a] < keys[b]:
			return -1
		case keys[a] > keys[b]:
			return 1
		}
		return 0
	})
	ranks := make([]int, len(members))
	for i, r := range members {
		ranks[i] = c.ranks[r]
	}
	id := uint64(ranks[0])<<32 | uint64(numbers[members[0]])
	return newComm(c.engine, c.opts, c.Selector(), id, slices.Index(members, c.rank), ranks), nil
}

// Close gives back what the communicator keeps: the requests of its last blocking
// calls, and its plans. Later collectives on it return ErrClosed; requests that
// were made before stay, to be closed by themselves. It is no collective: each
// rank closes its own. It may be called twice.
func (c *Comm) Close() error {
	c.mu.Lock()
	c.closed = true
	kept := c.dropAllLocked()
	c.choices.clear()
	c.mu.Unlock()
	c.plans.clear()
	closeKept(kept)
	return nil
}
