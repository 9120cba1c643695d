package trace_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/trace"
)

// world runs one function on each of n ranks of this process.
func world(t *testing.T, n int, opts collectives.Options, run func(ctx context.Context, c *collectives.Comm) error) {
	t.Helper()
	w := inproc.NewWorld(n, inproc.Options{})
	errs := make([]error, n)
	engines := make([]*nbc.Engine, n)
	var wg sync.WaitGroup
	for r := range n {
		k, err := kernels.NewCPU()
		if err != nil {
			t.Fatal(err)
		}
		if engines[r], err = nbc.Start(w.Open(r), device.CPU(k), nbc.Options{Deadline: time.Minute}); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { errs[r] = run(t.Context(), collectives.World(engines[r], opts)) })
	}
	wg.Wait()
	for _, e := range engines {
		_ = e.Close()
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// skewed is a clock that is ahead, and drifts.
func skewed(ahead time.Duration, drift float64) func() time.Time {
	began := time.Now()
	return func() time.Time {
		now := time.Now()
		return now.Add(ahead + time.Duration(drift*float64(now.Sub(began))))
	}
}

// Ranks with clocks seconds apart note the same true moments; afterwards the
// moments are the same within what the measurements promise.
func TestGatherAlignsClocks(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, n := range []int{1, 2, 3, 5} {
		for _, drift := range []float64{0, 1e-3} {
			t.Run(fmt.Sprintf("%d ranks, drift %v", n, drift), func(t *testing.T) { aligned(t, n, drift) })
		}
	}
}

func aligned(t *testing.T, n int, drift float64) {
	const moments = 20
	recs := make([]*trace.Recorder, n)
	ahead := func(r int) time.Duration { return time.Duration(r) * -3 * time.Second }
	for r := range recs {
		recs[r] = trace.New(r, trace.Options{Host: fmt.Sprintf("host%d", r), Clock: skewed(ahead(r), float64(r)*drift)})
	}
	recs[0].Describe("design", "SC-B")
	recs[0].SetBuckets([]trace.Bucket{{Bucket: 0, Layers: []int{1, 2}}})
	slack := make([]time.Duration, moments) // how long noting a moment took
	var got *trace.Trace
	world(t, n, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
		rec := recs[c.Rank()]
		if err := trace.Align(ctx, c, rec); err != nil {
			return err
		}
		if c.Rank() == 0 {
			for i := range moments {
				before := time.Now()
				for _, r := range recs {
					at := r.Now()
					r.Add(trace.Event{Kind: trace.Forward, Name: "conv", Iter: int32(i), Layer: 4, Begin: at, End: at})
				}
				slack[i] = time.Since(before)
			}
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		tr, err := trace.Gather(ctx, c, rec)
		if c.Rank() == 0 {
			got = tr
		} else if tr != nil {
			return errors.New("a trace at a rank that is not 0")
		}
		return err
	})
	if len(got.Ranks) != n || got.Meta["design"] != "SC-B" || len(got.Buckets) != 1 {
		t.Fatalf("%d ranks, %v, %v", len(got.Ranks), got.Meta, got.Buckets)
	}
	for r, k := range got.Ranks {
		var bound time.Duration
		for _, o := range k.Clock {
			bound = max(bound, o.Bound)
			if off := o.Offset - ahead(r); drift == 0 && max(off, -off) > o.Bound {
				t.Errorf("rank %d: measured %v instead of %v, with a bound of %v", r, o.Offset, ahead(r), o.Bound)
			}
		}
		if r > 0 && len(k.Clock) != 2 || bound > got.ClockBound() {
			t.Errorf("rank %d: clocks %v, bound %v", r, k.Clock, got.ClockBound())
		}
		if k.Host != fmt.Sprintf("host%d", r) || len(k.Events) != moments {
			t.Fatalf("rank %d on %s: %d events", r, k.Host, len(k.Events))
		}
		for i, e := range k.Events {
			// Drift: the clocks' error grows by it while a moment is noted.
			off := e.Begin - got.Ranks[0].Events[i].Begin
			if max(off, -off) > bound+slack[i]+time.Microsecond {
				t.Errorf("rank %d: moment %d is off by %v; the bound is %v, noting took %v", r, i, off, bound, slack[i])
			}
		}
	}
}

// Alignment and gathering do not depend on the spec that the run uses.
func TestGatherUnderAnySpec(t *testing.T) {
	for _, text := range []string{"chain:4/binomial", "direct", "ring"} {
		s, err := spec.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		world(t, 3, collectives.Options{Spec: s}, func(ctx context.Context, c *collectives.Comm) error {
			rec := trace.New(c.Rank(), trace.Options{})
			rec.Add(trace.Event{Name: "x", Begin: rec.Now(), End: rec.Now()})
			tr, err := trace.Gather(ctx, c, rec)
			if err == nil && c.Rank() == 0 && len(tr.Ranks[2].Events) != 1 {
				err = fmt.Errorf("gathered %+v", tr.Ranks[2])
			}
			return err
		})
	}
}
