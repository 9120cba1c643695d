package collectives_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/scaffe/scaffe/collectives"
	ct "github.com/scaffe/scaffe/collectives/collectivestest"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/faulty"
)

// ring has each rank need what all others send, so that none can end without them.
var ring = spec.Spec{Levels: []spec.Level{{Algorithm: "ring"}}}

// throughPorts runs allreductions by a ring, of large messages, among ranks of a node each, two times: their
// priorities, credits and starts are drawn differently on each rank. It returns the bits of rank 0's
// results, how the ranks ended, and what became of the order.
func throughPorts(n int, seed uint64, credits int, opts nbc.Options, plan func(rank int) faulty.Plan) (bits []float32, errs []error, order nbc.Order) {
	const requests, count = 12, nbc.LinkBytes
	portMessage := mem.Float32.Bytes(count / n) // of a ring
	nodes := make([]int, n)
	for i := range nodes {
		nodes[i] = i
	}
	var mu sync.Mutex
	errs = ct.World(n, under(n, nodes, seed, plan), opts, func(c *collectives.Comm, e *nbc.Engine) error {
		ctx := context.Background()
		random := rand.New(rand.NewPCG(seed, uint64(c.Rank())))
		data, all := make([][]float32, requests), make([]*nbc.Request, requests)
		for i := range all {
			data[i] = make([]float32, count)
			how := []collectives.Option{collectives.Priority(random.IntN(requests)), collectives.With(ring)}
			if credits > 0 {
				how = append(how, collectives.Credit(random.IntN(credits+1)*portMessage))
			}
			var err error
			if all[i], err = c.AllreduceInit(mem.Of(data[i]), mem.Of(data[i]), mem.Float32, mem.Sum, how...); err != nil {
				return err
			}
			defer all[i].Close()
		}
		for round := range 2 {
			for i, x := range data {
				for k := range x {
					x[k] = float32(c.Rank()+1) / float32(1+i+round+k%97) // no exact sums
				}
			}
			for _, i := range random.Perm(requests) {
				if err := all[i].Start(); err != nil {
					return err
				}
			}
			for _, i := range random.Perm(requests) {
				if err := all[i].Wait(ctx); err != nil {
					return err
				}
			}
			mu.Lock()
			if c.Rank() == 0 {
				for _, x := range data {
					bits = append(bits, x...)
				}
			}
			mu.Unlock()
		}
		mu.Lock()
		order = order.Add(e.Order())
		mu.Unlock()
		return nil
	})
	return bits, errs, order
}

// TestP3_OrderAndCreditChangeNoBit: priorities drawn differently on each rank, starts in any
// order, messages that are late and come in any order, and ports of any credit: no rank waits for
// ever, and the sums have the bits of links without a port.
func TestP3_OrderAndCreditChangeNoBit(t *testing.T) {
	defer goleak.VerifyNone(t)
	seeds := 12
	if testing.Short() {
		seeds = 4
	}
	const n = 4
	want, errs, _ := throughPorts(n, 0, 0, patient, none)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	unhurried(t, seeds, func(i int) {
		plan := faulty.Plan{Seed: uint64(i), Delay: i % 5, Reorder: i%2 == 0}
		got, errs, _ := throughPorts(n, uint64(i+1), 1+i%3, patient, func(int) faulty.Plan { return plan })
		if err := errors.Join(errs...); err != nil {
			t.Errorf("seed %d: %v", i, err)
			return
		}
		for k := range want {
			if got[k] != want[k] {
				t.Errorf("seed %d: element %d is %v, not %v", i, k, got[k], want[k])
				return
			}
		}
	})
}

// TestP3_ALossAtThePort ends in the deadline's error, which names the edge.
func TestP3_ALossAtThePort(t *testing.T) {
	defer goleak.VerifyNone(t)
	unhurried(t, 4, func(i int) {
		_, errs, _ := throughPorts(3, uint64(i), 1, nbc.Options{Deadline: 2e9, MaxDeadline: 4e9}, func(rank int) faulty.Plan {
			if rank == 1 {
				return faulty.Plan{Seed: uint64(i), Drop: 3 + 5*i}
			}
			return faulty.Plan{Seed: uint64(i)}
		})
		var deadline *nbc.DeadlineError
		if err := errors.Join(errs...); !errors.As(err, &deadline) || len(deadline.Edges) == 0 {
			t.Errorf("seed %d ends with %v", i, err)
		}
		if len(errs) != 3 || errs[0] == nil || errs[1] == nil || errs[2] == nil {
			t.Error(fmt.Errorf("seed %d: a rank ends well: %w", i, errors.Join(errs...)))
		}
	})
}
