package nbc_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
)

// point is an event that a test has pass, or fail.
type point struct {
	passed atomic.Bool
	asked  atomic.Int64
	err    error
}

func (p *point) Passed() (bool, error) {
	p.asked.Add(1)
	return p.passed.Load(), p.err
}

// sums prepares the sum of a buffer over two ranks at rank 0, in place.
func sums(t *testing.T, e *nbc.Engine, instance uint32, buf []int64, deadline time.Duration) (*nbc.Request, error) {
	b := nbc.Binding{Name: "reduce", Instance: instance, In: mem.Of(buf), Out: mem.Of(buf), Datatype: mem.Int64, Deadline: deadline}
	return e.Prepare(chainReduce(t, e.Rank(), 2, len(buf), 16), b)
}

// TestStartAfter: an execution reads its buffers when its event has passed, and not before; others overtake it, while its starter
// does what it likes; a set begins as a whole; and it can be started again.
func TestStartAfter(t *testing.T) {
	defer goleak.VerifyNone(t)
	const count = 100
	ring(t, 2, func() nbc.Device { return host(t) }, func(e *nbc.Engine) error {
		ctx := context.Background()
		var requests []*nbc.Request
		var bufs [][]int64
		for i := range 3 {
			buf := make([]int64, count)
			r, err := sums(t, e, uint32(i), buf, 0)
			if err != nil {
				return err
			}
			defer r.Close()
			requests, bufs = append(requests, r), append(bufs, buf)
		}
		late, set := requests[0], nbc.NewSet(requests[1:]...)
		for round := range int64(3) {
			var is, all point
			if err := late.StartAfter(&is); err != nil {
				return err
			}
			for _, buf := range bufs[1:] {
				for i := range buf {
					buf[i] = round
				}
			}
			all.passed.Store(true)
			if err := set.StartAfter(&all); err != nil {
				return err
			}
			for range 2 {
				if _, err := set.Next(ctx); err != nil {
					return err
				}
			}
			if ended, _ := late.Test(); ended {
				t.Errorf("rank %d, round %d: it has ended before its event", e.Rank(), round)
			}
			for i := range bufs[0] { // what a kernel would have computed meanwhile
				bufs[0][i] = 7*round + int64(i)
			}
			before := time.Now()
			is.passed.Store(true)
			if err := late.Wait(ctx); err != nil {
				return err
			}
			if began, others := late.Began(), set.Began(); began.Before(before) || began.After(time.Now()) || others.IsZero() || others.After(before) {
				t.Errorf("rank %d, round %d: it began at %v and the others at %v, and its event passed after %v", e.Rank(), round, began, others, before)
			}
			for i, v := range bufs[0] {
				if e.Rank() == 0 && (v != 2*(7*round+int64(i)) || bufs[1][i] != 2*round || bufs[2][i] != 2*round) {
					t.Errorf("round %d: element %d: %d, %d, %d", round, i, v, bufs[1][i], bufs[2][i])
					break
				}
			}
		}
		return late.StartAfter(nil)
	})
}

// TestStartAfterNothing: an event that fails, or does not pass in time, ends all ranks with what it was; an engine that closes ends
// who waits.
func TestStartAfterNothing(t *testing.T) {
	defer goleak.VerifyNone(t)
	broken := errors.New("the GPU is on fire")
	for _, c := range []struct {
		name     string
		err      error
		deadline time.Duration
		close    bool
		want     string
	}{
		{"fails", broken, 0, false, "reduce#5, before it began: the GPU is on fire"},
		{"hangs", nil, 50 * time.Millisecond, false, "reduce#5, before it began: after 50ms: the event that it is to begin after has not passed"},
		{"closes", nil, 0, true, "failed before it began"},
	} {
		w := inproc.NewWorld(2, inproc.Options{})
		var engines []*nbc.Engine
		var waits []*nbc.Request
		for r := range 2 {
			e, err := nbc.Start(w.Open(r), host(t), nbc.Options{Deadline: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			q, err := sums(t, e, 5, make([]int64, 10), c.deadline)
			if err != nil {
				t.Fatal(err)
			}
			engines, waits = append(engines, e), append(waits, q)
		}
		if err := waits[0].StartAfter(&point{err: c.err}); err != nil {
			t.Fatal(err)
		}
		if !c.close {
			if err := waits[1].Start(); err != nil {
				t.Fatal(err)
			}
		} else if err := engines[0].Close(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if err := waits[0].Wait(ctx); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v: want %q", c.name, err, c.want)
		}
		if !c.close {
			var abort *nbc.AbortError
			if err := waits[1].Wait(ctx); !errors.As(err, &abort) && !strings.Contains(err.Error(), "has not ended") {
				t.Errorf("%s: the other rank ends with %v", c.name, err)
			}
		}
		cancel()
		for r, e := range engines {
			waits[r].Close()
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestStartAfterIsAskedSeldom: who waits for an event alone does not keep a core busy.
func TestStartAfterIsAskedSeldom(t *testing.T) {
	ring(t, 2, func() nbc.Device { return host(t) }, func(e *nbc.Engine) error {
		r, err := sums(t, e, 1, make([]int64, 10), 0)
		if err != nil {
			return err
		}
		defer r.Close()
		var p point
		if err := r.StartAfter(&p); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
		if n := p.asked.Load(); n == 0 || n > int64(100*time.Millisecond/(5*time.Microsecond)) {
			t.Errorf("asked %d times in a tenth of a second", n)
		}
		p.passed.Store(true)
		return r.Wait(context.Background())
	})
}
