package collectives_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/collectivestest"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
)

// guests runs f on n ranks of this process, whose engines have no thread.
func guests(n int, f func(c *collectives.Comm, e *nbc.Engine) error) error {
	w := inproc.NewWorld(n, inproc.Options{Seed: 3})
	return errors.Join(collectivestest.World(n, w.Open, nbc.Options{Guest: true}, f)...)
}

// Two threads of each rank have a communicator each, and their ranks come to the
// collectives of the two in different orders: whichever thread turns the loop serves both, and when
// it leaves the other goes on.
func TestGuestOfTwoThreads(t *testing.T) {
	ctx := context.Background()
	err := guests(3, func(c *collectives.Comm, _ *nbc.Engine) error {
		other, err := c.Split(ctx, 0, -c.Rank()) // in another order of ranks
		if err != nil {
			return err
		}
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for i, c := range []*collectives.Comm{c, other} {
			wg.Go(func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				rng := rand.New(rand.NewPCG(1, uint64(i)))        // alike on all ranks
				own := rand.New(rand.NewPCG(2, uint64(c.Rank()))) // not
				for round := range 60 {
					n := 1 << rng.IntN(18)
					v := make([]float32, n)
					for k := range v {
						v[k] = float32(c.Rank() + 1)
					}
					time.Sleep(time.Duration(own.IntN(200)) * time.Microsecond)
					if err := c.Allreduce(ctx, mem.Of(v), mem.Of(v), mem.Float32, mem.Sum); err != nil {
						errs[i] = err
						return
					}
					if v[0] != 6 || v[n-1] != 6 {
						errs[i] = fmt.Errorf("round %d of communicator %d: the sum is %g and %g, not 6", round, i, v[0], v[n-1])
						return
					}
				}
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A guest, or another patient engine, whose peer is late says so when its deadline has passed, and waits on.
func TestGuestWaitsOn(t *testing.T) {
	t.Run("guest", func(t *testing.T) { waitsOn(t, nbc.Options{Guest: true}, "rank 1 has not answered") })
	t.Run("patient", func(t *testing.T) { waitsOn(t, nbc.Options{Patient: true}, "rank 1 has not entered allreduce") })
}

func waitsOn(t *testing.T, o nbc.Options, why string) {
	ctx := context.Background()
	said := make(chan string, 8)
	o.Deadline, o.MaxDeadline, o.Warn = 50*time.Millisecond, time.Hour, func(text string) { said <- text }
	err := errors.Join(collectivestest.World(2, inproc.NewWorld(2, inproc.Options{}).Open, o, func(c *collectives.Comm, _ *nbc.Engine) error {
		if c.Rank() == 1 {
			for range 2 { // it is said again
				if text := <-said; !strings.Contains(text, "rank 0 has waited in allreduce") || !strings.Contains(text, why) {
					return fmt.Errorf("it says %q", text)
				}
			}
		}
		v := []float32{1}
		if err := c.Allreduce(ctx, mem.Of(v), mem.Of(v), mem.Float32, mem.Sum); err != nil {
			return err
		}
		if v[0] != 2 {
			return fmt.Errorf("the sum is %g, not 2", v[0])
		}
		return nil
	})...)
	if err != nil {
		t.Fatal(err)
	}
}

// All collectives, datatypes and ops.
func TestGuestConformance(t *testing.T) {
	ctx := context.Background()
	err := guests(4, func(c *collectives.Comm, e *nbc.Engine) error {
		v := mem.Of([]float32{1})
		if _, err := c.Iallreduce(v, v, mem.Float32, mem.Sum); err == nil || !strings.Contains(err.Error(), "Run alone") {
			return fmt.Errorf("a guest started a request that nobody moves: %v", err)
		}
		ran := false
		if err := e.Do(ctx, func() error { ran = true; return nil }); err != nil || !ran {
			return fmt.Errorf("Do: %v, ran: %v", err, ran)
		}
		for _, count := range []int{1, 100, 70000} {
			in, out := make([]float64, count), make([]float64, count)
			for i := range in {
				in[i] = float64(i % 7 * (c.Rank() + 1))
			}
			if err := c.Reduce(ctx, mem.Of(in), mem.Of(out), mem.Float64, mem.Sum, 2); err != nil {
				return err
			}
			if err := c.Bcast(ctx, mem.Of(out), mem.Float64, 2); err != nil {
				return err
			}
			for i := range out {
				if out[i] != float64(i%7*10) {
					return fmt.Errorf("element %d of %d is %g, not %d", i, count, out[i], i%7*10)
				}
			}
		}
		return c.Barrier(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A rank that gives up is heard of by the others within their calls, and all come back.
func TestGuestGivesUp(t *testing.T) {
	w := inproc.NewWorld(3, inproc.Options{})
	errs := collectivestest.World(3, w.Open, nbc.Options{Guest: true}, func(c *collectives.Comm, e *nbc.Engine) error {
		if c.Rank() == 1 {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			return e.Abort(ctx, "the disk is full")
		}
		v := mem.Of(make([]float32, 1000))
		return c.Allreduce(context.Background(), v, v, mem.Float32, mem.Sum)
	})
	for r, err := range errs {
		if r != 1 && (err == nil || !strings.Contains(err.Error(), "the disk is full")) {
			t.Errorf("rank %d ended with %v", r, err)
		}
	}
}
