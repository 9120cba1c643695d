//go:build linux && (amd64 || arm64)

package shm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/scaffe/scaffe/direct"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
)

// TestTheSimulationKnowsTheLimits: the cost model may not import this package, so it
// has copies of what decides how a message goes.
func TestTheSimulationKnowsTheLimits(t *testing.T) {
	for _, c := range []struct {
		what     string
		is, copy int
	}{
		{"travel with their descriptor", blockRoom, sim.ShortBytes},
		{"are copied before anybody asks", eagerCopy, sim.EagerCopy},
		{"are copied by both ranks", shareFrom, sim.HalvedFrom},
		{"are copied around the caches", kernels.StreamFrom, sim.StreamFrom},
		{"are still added or sent by who is alone", addedRoom, sim.AloneAdded},
	} {
		if c.is != c.copy {
			t.Errorf("messages that %s: %d bytes, in the simulation %d", c.what, c.is, c.copy)
		}
	}
}

// TestAloneOrTogether: what a caller copies that executes its collective alone is never
// a message that two ranks copy, of which it would leave none to the other.
func TestAloneOrTogether(t *testing.T) {
	if loneRoom >= shareFrom {
		t.Errorf("a caller copies messages of up to %d bytes by itself; two ranks copy those from %d on", loneRoom, shareFrom)
	}
}

// TestAtTheLimits: messages at and beside each limit, between ranks of which one is
// sometimes late, and which do nothing for each other once their collective has ended.
func TestAtTheLimits(t *testing.T) {
	const n, rounds = 2, 30
	var sizes []int
	for _, limit := range []int{copyRoom, blockRoom, eagerCopy, shareFrom, addedRoom} {
		sizes = append(sizes, limit/8-1, limit/8, limit/8+1)
	}
	for _, registered := range []bool{true, false} {
		t.Run(fmt.Sprintf("registered %v", registered), func(t *testing.T) {
			t.Parallel()
			ended := make([]sync.WaitGroup, rounds*len(sizes))
			for i := range ended {
				ended[i].Add(n)
			}
			enginesWith(t, n, Options{Room: 1 << 28, forceShare: true}, func(e *nbc.Engine) error {
				rng := rand.New(rand.NewPCG(uint64(e.Rank()), 17))
				for i := range ended {
					count := n * sizes[i%len(sizes)] // direct sends a part to each rank
					in, giveIn, err := numbers(e, count, registered)
					if err != nil {
						return err
					}
					out, giveOut, err := numbers(e, count, registered)
					if err != nil {
						return err
					}
					for j := range in {
						in[j] = int64(j + e.Rank())
					}
					r, err := loneAllreduce(e, schedule.Algorithm{Reduce: direct.Reduce, Bcast: direct.Bcast, Allreduce: direct.Allreduce}, count, uint32(i+1), in, out)
					if err != nil {
						return err
					}
					time.Sleep(time.Duration(rng.IntN(4)*rng.IntN(60)) * time.Microsecond)
					if err := r.Run(context.Background()); err != nil {
						return err
					}
					for j, got := range out {
						if want := int64(n*j + n*(n-1)/2); got != want {
							return fmt.Errorf("rank %d, round %d, element %d of %d: %d, want %d", e.Rank(), i, j, count, got, want)
						}
					}
					ended[i].Done()
					ended[i].Wait()
					r.Close()
					giveIn()
					giveOut()
				}
				return nil
			})
		})
	}
}

// Ranks share cores where there are fewer of those than of them, whatever this one may run on.
func TestCrowded(t *testing.T) {
	for _, c := range []struct {
		ranks, own, all int
		crowded         bool
	}{{2, 1, 2, false}, {2, 2, 2, false}, {4, 2, 2, true}, {2, 1, 1, true}} {
		var tr Transport
		if tr.rest.open(c.ranks, c.own, c.all); tr.Crowded() != c.crowded {
			t.Errorf("%d ranks on %d cores: crowded is %v", c.ranks, c.all, tr.Crowded())
		}
	}
}
