package syncer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/scaffe/scaffe/collectives"
	ct "github.com/scaffe/scaffe/collectives/collectivestest"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/syncer"
)

// TestServersApartBeginWithDifferentWorkers: a broadcast sends to those behind its root first, so each of the servers that do not work is
// numbered before the workers of another node. One on a worker's own node is the last, and workers stay in order whoever serves.
func TestServersApartBeginWithDifferentWorkers(t *testing.T) {
	for _, c := range []struct {
		nodes, workers, servers []int
		before                  []int // by server: the worker that it begins with, -1 where it is the last
	}{
		{[]int{0, 1, 2, 3, 4, 5}, []int{0, 1, 2}, []int{3, 4, 5}, []int{0, 1, 2}},
		{[]int{0, 1, 2, 3, 4}, []int{3, 4}, []int{0, 1, 2}, []int{3, 4, 3}},
		{[]int{0, 0, 1, 1, 2, 3}, []int{0, 1, 2, 3}, []int{4, 5}, []int{0, 2}},
		{[]int{0, 0, 1, 2}, []int{0, 2}, []int{1, 3}, []int{-1, 2}},
		{[]int{0, 1, 2}, []int{0, 1}, []int{0, 2}, []int{0, 0}},
	} {
		t.Run(fmt.Sprint(c.nodes, c.workers, c.servers), func(t *testing.T) {
			w := inproc.NewWorld(len(c.nodes), inproc.Options{Nodes: c.nodes})
			var mu sync.Mutex
			ranks := map[int][]int{} // by server: the ranks that have a number between it and the workers, in that order
			for _, s := range c.servers {
				ranks[s] = make([]int, len(c.workers)+1)
			}
			for _, err := range ct.World(len(c.nodes), w.Open, nbc.Options{}, func(comm *collectives.Comm, _ *nbc.Engine) error {
				team, err := syncer.NewTeam(context.Background(), comm, c.workers, c.servers)
				if err != nil {
					return err
				}
				defer team.Close()
				for _, s := range c.servers {
					between, root, err := team.Between(s)
					if err != nil || between == nil {
						if comm.Rank() == s || team.Works(comm.Rank()) || err != nil {
							return fmt.Errorf("rank %d, server %d: %w", comm.Rank(), s, err)
						}
						continue
					}
					mu.Lock()
					ranks[s] = ranks[s][:between.Size()]
					ranks[s][between.Rank()] = comm.Rank()
					mu.Unlock()
					if (comm.Rank() == s) != (between.Rank() == root) {
						return fmt.Errorf("rank %d is %d of those between workers and server %d, whose number is %d", comm.Rank(), between.Rank(), s, root)
					}
				}
				return comm.Barrier(context.Background())
			}) {
				if err != nil {
					t.Fatal(err)
				}
			}
			for i, s := range c.servers {
				want := slices.Clone(c.workers)
				switch at := slices.Index(want, c.before[i]); {
				case slices.Contains(c.workers, s):
				case at < 0:
					want = append(want, s)
				default:
					want = slices.Insert(want, at, s)
				}
				if !slices.Equal(ranks[s], want) {
					t.Errorf("server %d is in the order %v, want %v", s, ranks[s], want)
				}
			}
		})
	}
}
