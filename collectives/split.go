package collectives

import (
	"context"
	"slices"
	"sync"

	"github.com/scaffe/scaffe/mem"
)

// ids hands out numbers of communicators. All communicators of an engine share
// one; a number is new to every rank that takes part.
type ids struct {
	mu   sync.Mutex
	last int64
}

// Dup returns a communicator of the same ranks whose collectives do not meet
// this one's. It is a collective.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) { return c.Split(ctx, 0, c.rank) }

// Split divides the communicator: ranks that give the same color, from 0 on,
// make up a new one, ordered by key and, where keys are equal, by rank. A
// negative color takes part in none and gets nil. It is a collective.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	n := c.Size()
	// One row a rank: last id, color, key; zero elsewhere, so that the sum of
	// all ranks' tables is everyone's.
	table := make([]int64, 3*n)
	c.ids.mu.Lock()
	table[c.rank] = c.ids.last
	c.ids.mu.Unlock()
	table[n+c.rank], table[2*n+c.rank] = int64(color), int64(key)
	if err := c.Allreduce(ctx, mem.Of(table), mem.Of(table), mem.Int64, mem.Sum, control); err != nil {
		return nil, err
	}
	id := slices.Max(table[:n]) + 1
	c.ids.mu.Lock()
	c.ids.last = max(c.ids.last, id)
	c.ids.mu.Unlock()
	if color < 0 {
		return nil, nil
	}
	colors, keys := table[n:2*n], table[2*n:]
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
	return newComm(c.engine, c.opts, c.Selector(), uint32(id), slices.Index(members, c.rank), ranks, c.ids), nil
}
