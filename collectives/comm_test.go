package collectives_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
)

// world runs one function on each of n ranks of one process.
func world(t testing.TB, n int, seed uint64, opts nbc.Options, run func(c *collectives.Comm, e *nbc.Engine) error) error {
	t.Helper()
	w := inproc.NewWorld(n, inproc.Options{Seed: seed})
	errs := make([]error, n)
	engines := make([]*nbc.Engine, n)
	var wg sync.WaitGroup
	for r := range n {
		k, err := kernels.NewCPU()
		if err != nil {
			t.Fatal(err)
		}
		if engines[r], err = nbc.Start(w.Open(r), device.CPU(k), opts); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := run(collectives.World(engines[r], collectives.Options{}), engines[r]); err != nil {
				errs[r] = fmt.Errorf("rank %d: %w", r, err)
			}
		})
	}
	wg.Wait()
	for _, e := range engines {
		_ = e.Close()
	}
	return errors.Join(errs...)
}

func parse(t *testing.T, text string) spec.Spec {
	t.Helper()
	s, err := spec.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// value is a contribution that is unique per (rank, index) and sums exactly.
func value(rank, i int) int64 { return int64(rank+1)*1_000_003 + int64(i)*7 }

// TestCollectives runs every collective with every kind of spec, odd counts included,
// out of place and in place, delivery in order and in random order.
func TestCollectives(t *testing.T) {
	defer goleak.VerifyNone(t)
	specs := []string{"linear", "chain,chunk=64", "binomial,chunk=64", "chain:2,chunk=64/binomial,chunk=32", "chain:3,chunk=40/chain:2,chunk=64/linear", "CB-8", "CC-2"}
	for _, n := range []int{1, 2, 3, 5, 8} {
		for _, text := range specs {
			for _, seed := range []uint64{0, 7} {
				t.Run(fmt.Sprintf("%d ranks/%s/seed %d", n, text, seed), func(t *testing.T) {
					s := parse(t, text)
					err := world(t, n, seed, nbc.Options{Deadline: 10 * time.Minute}, func(c *collectives.Comm, _ *nbc.Engine) error {
						for _, count := range []int{0, 1, 13, 100} {
							if err := runAll(c, s, count); err != nil {
								return fmt.Errorf("count %d: %w", count, err)
							}
						}
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
				})
			}
		}
	}
}

func runAll(c *collectives.Comm, s spec.Spec, count int) error {
	ctx := context.Background()
	root := c.Size() / 2
	with := collectives.With(s)
	mine, sum := make([]int64, count), make([]int64, count)
	for i := range mine {
		mine[i] = value(c.Rank(), i)
		for r := range c.Size() {
			sum[i] += value(r, i)
		}
	}
	same := func(what string, got, want []int64) error {
		for i := range want {
			if got[i] != want[i] {
				return fmt.Errorf("%s: element %d is %d, not %d", what, i, got[i], want[i])
			}
		}
		return nil
	}
	out, in := make([]int64, count), append([]int64(nil), mine...)
	if err := c.Reduce(ctx, mem.Of(in), mem.Of(out), mem.Int64, mem.Sum, root, with); err != nil {
		return err
	}
	if err := same("reduce left its input alone", in, mine); err != nil {
		return err
	}
	if c.Rank() == root {
		if err := same("reduce", out, sum); err != nil {
			return err
		}
	}
	if err := c.Bcast(ctx, mem.Of(out), mem.Int64, root, with); err != nil {
		return err
	}
	if err := same("bcast", out, sum); err != nil {
		return err
	}
	clear(out)
	if err := c.Allreduce(ctx, mem.Of(in), mem.Of(out), mem.Int64, mem.Sum, with); err != nil {
		return err
	}
	if err := same("allreduce", out, sum); err != nil {
		return err
	}
	if err := c.Allreduce(ctx, mem.Of(in), mem.Of(in), mem.Int64, mem.Sum, with); err != nil {
		return err
	}
	return same("allreduce in place", in, sum)
}

// TestSplit divides five ranks by parity, in reverse order; both parts and the
// whole do collectives at the same time.
func TestSplit(t *testing.T) {
	ctx := context.Background()
	err := world(t, 5, 9, nbc.Options{Deadline: 10 * time.Minute}, func(c *collectives.Comm, _ *nbc.Engine) error {
		part, err := c.Split(ctx, c.Rank()%2, -c.Rank())
		if err != nil {
			return err
		}
		wantSize, wantRank := 3-c.Rank()%2, (4-c.Rank())/2
		if part.Size() != wantSize || part.Rank() != wantRank {
			return fmt.Errorf("is rank %d of %d, not %d of %d", part.Rank(), part.Size(), wantRank, wantSize)
		}
		dup, err := part.Dup(ctx)
		if err != nil {
			return err
		}
		sum := func(on *collectives.Comm, mine int64) (*nbc.Request, []int64, error) {
			buf := []int64{mine}
			r, err := on.Iallreduce(mem.Of(buf), mem.Of(buf), mem.Int64, mem.Sum)
			return r, buf, err
		}
		var reqs [3]*nbc.Request
		var got [3][]int64
		for i, on := range []*collectives.Comm{c, part, dup} {
			if reqs[i], got[i], err = sum(on, int64((c.Rank()+1)*(i+1))); err != nil {
				return err
			}
		}
		want := []int64{15, 9, 9}
		if c.Rank()%2 == 1 {
			want = []int64{15, 6, 6}
		}
		for i, r := range reqs {
			if err := r.Wait(ctx); err != nil {
				return err
			}
			r.Close()
			if got[i][0] != want[i]*int64(i+1) {
				return fmt.Errorf("communicator %d sums to %d, not %d", i, got[i][0], want[i]*int64(i+1))
			}
		}
		color := -1
		if c.Rank() == 3 {
			color = 0
		}
		lone, err := c.Split(ctx, color, 0)
		if err != nil {
			return err
		}
		if (lone == nil) != (c.Rank() != 3) {
			return fmt.Errorf("color %d gave %v", color, lone)
		}
		if lone != nil {
			return lone.Barrier(ctx)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAvg: the mean over the ranks, where the result is wanted and nowhere else.
func TestAvg(t *testing.T) {
	ctx := context.Background()
	err := world(t, 4, 3, nbc.Options{Deadline: 10 * time.Minute}, func(c *collectives.Comm, _ *nbc.Engine) error {
		in, out := []float32{float32(c.Rank()), 6}, []float32{-1, -1}
		if err := c.Reduce(ctx, mem.Of(in), mem.Of(out), mem.Float32, mem.Avg, 2); err != nil {
			return err
		}
		want := []float32{-1, -1}
		if c.Rank() == 2 {
			want = []float32{1.5, 6}
		}
		if out[0] != want[0] || out[1] != want[1] {
			return fmt.Errorf("reduce gave %v, not %v", out, want)
		}
		if err := c.Allreduce(ctx, mem.Of(in), mem.Of(in), mem.Float32, mem.Avg); err != nil {
			return err
		}
		if in[0] != 1.5 || in[1] != 6 {
			return fmt.Errorf("allreduce gave %v", in)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCallersTakeTurns: callers that wait drive the engine themselves where they
// can; beside requests that are started and waited for later, and beside each
// other, everything still ends.
func TestCallersTakeTurns(t *testing.T) {
	ctx := context.Background()
	err := world(t, 3, 0, nbc.Options{Deadline: 10 * time.Minute}, func(c *collectives.Comm, e *nbc.Engine) error {
		var comms []*collectives.Comm
		for range 3 {
			d, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			comms = append(comms, d)
		}
		errs := make([]error, len(comms))
		var wg sync.WaitGroup
		for k, on := range comms {
			wg.Go(func() {
				buf := []int64{0}
				r, err := on.AllreduceInit(mem.Of(buf), mem.Of(buf), mem.Int64, mem.Sum)
				if err != nil {
					errs[k] = err
					return
				}
				defer r.Close()
				for i := range 200 {
					buf[0] = int64(i + c.Rank())
					if k == 0 {
						err = errors.Join(r.Start(), e.Do(ctx, func() error { return nil }), r.Wait(ctx))
					} else {
						err = r.Run(ctx)
					}
					if err == nil && buf[0] != int64(3*i+3) {
						err = fmt.Errorf("round %d of %d: %d", i, k, buf[0])
					}
					if err != nil {
						errs[k] = err
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

// TestOrderOfStarts starts several requests in different orders on different
// ranks.
func TestOrderOfStarts(t *testing.T) {
	const requests = 6
	err := world(t, 3, 3, nbc.Options{Deadline: 10 * time.Minute}, func(c *collectives.Comm, _ *nbc.Engine) error {
		var reqs []*nbc.Request
		bufs := make([][]int64, requests)
		for k := range requests {
			bufs[k] = []int64{value(c.Rank(), k), value(c.Rank(), k+100)}
			r, err := c.AllreduceInit(mem.Of(bufs[k]), mem.Of(bufs[k]), mem.Int64, mem.Sum)
			if err != nil {
				return err
			}
			defer r.Close()
			reqs = append(reqs, r)
		}
		for k := range requests {
			if err := reqs[(k*(1+4*(c.Rank()%2))+c.Rank())%requests].Start(); err != nil {
				return err
			}
		}
		for k, r := range reqs {
			if err := r.Wait(context.Background()); err != nil {
				return err
			}
			want := value(0, k) + value(1, k) + value(2, k)
			if bufs[k][0] != want {
				return fmt.Errorf("request %d: %d, not %d", k, bufs[k][0], want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRestart starts a persistent request many times.
func TestRestart(t *testing.T) {
	err := world(t, 3, 5, nbc.Options{Deadline: 10 * time.Minute}, func(c *collectives.Comm, _ *nbc.Engine) error {
		in, out := make([]int64, 500), make([]int64, 500)
		r, err := c.AllreduceInit(mem.Of(in), mem.Of(out), mem.Int64, mem.Sum, collectives.With(spec.Spec{Levels: []spec.Level{{Algorithm: "chain", Chunk: 256}}}))
		if err != nil {
			return err
		}
		defer r.Close()
		for round := range 50 {
			for i := range in {
				in[i] = value(c.Rank(), i+round)
			}
			if err := errors.Join(r.Start(), r.Wait(context.Background())); err != nil {
				return err
			}
			for i := range out {
				if want := value(0, i+round) + value(1, i+round) + value(2, i+round); out[i] != want {
					return fmt.Errorf("round %d, element %d: %d, not %d", round, i, out[i], want)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDeadlineNamesTheEdge leaves one rank out of a reduction.
func TestDeadlineNamesTheEdge(t *testing.T) {
	var atRoot error
	synctest.Test(t, func(t *testing.T) {
		deadline := nbc.Options{Deadline: 200 * time.Millisecond, MaxDeadline: 200 * time.Millisecond}
		_ = world(t, 3, 0, deadline, func(c *collectives.Comm, e *nbc.Engine) error {
			buf := mem.Of(make([]float32, 8))
			if c.Rank() == 1 { // the chain's middle never calls
				<-e.Failed()
				return nil
			}
			err := c.Reduce(context.Background(), buf, buf, mem.Float32, mem.Sum, 0, collectives.With(parse(t, "chain")))
			if c.Rank() == 0 {
				atRoot = err
			}
			return err
		})
	})
	// Its own deadline may pass first, or that of rank 2, which tells it.
	if got, want := fmt.Sprint(atRoot), "rank 0 waits for chunk 0 of reduce#1 from rank 1"; !strings.Contains(got, want) {
		t.Errorf("the error reads %q, without %q", got, want)
	}
}

// TestMismatchedSizes gives one rank a shorter buffer.
func TestMismatchedSizes(t *testing.T) {
	err := world(t, 2, 0, nbc.Options{Deadline: 10 * time.Minute}, func(c *collectives.Comm, _ *nbc.Engine) error {
		buf := mem.Of(make([]float32, 8+c.Rank()))
		return c.Reduce(context.Background(), buf, buf, mem.Float32, mem.Sum, 1, collectives.With(parse(t, "chain")))
	})
	if got, want := fmt.Sprint(err), "rank 0 called reduce of 8 elements, root 1, spec chain, f32 sum"; !strings.Contains(got, want) {
		t.Errorf("the error reads %q, without %q", got, want)
	}
}

// TestAgree lets one rank fail.
func TestAgree(t *testing.T) {
	broken := errors.New("no such file: mean.binaryproto")
	errs := make([]error, 4)
	err := world(t, 4, 0, nbc.Options{Deadline: 10 * time.Minute}, func(c *collectives.Comm, _ *nbc.Engine) error {
		if err := c.Agree(context.Background(), nil); err != nil {
			return err
		}
		var mine error
		if c.Rank() >= 2 {
			mine = broken
		}
		errs[c.Rank()] = c.Agree(context.Background(), mine)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(errs[2], broken) {
		t.Errorf("rank 2 ended with %v", errs[2])
	}
	for r, err := range errs {
		var agreed *collectives.AgreedError
		if !errors.As(err, &agreed) || agreed.Rank != 2 || agreed.Text != broken.Error() {
			t.Errorf("rank %d ended with %v", r, err)
		}
	}
}

// TestCompare names ranks that have other numbers, for each number of several.
func TestCompare(t *testing.T) {
	err := world(t, 4, 0, nbc.Options{Deadline: 10 * time.Minute}, func(c *collectives.Comm, _ *nbc.Engine) error {
		r := uint64(c.Rank())
		got, err := c.Compare(context.Background(), []uint64{1 << 63, r / 3, r, r % 2, 5})
		if err != nil {
			return err
		}
		want := []string{
			"", "ranks 0, 1, 2 have one, rank 3 another", "rank 0 has one, rank 1 another, rank 2 another, rank 3 another",
			"ranks 0, 2 have one, ranks 1, 3 another", "",
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("rank %d has %q, want %q", c.Rank(), got, want)
		}
		got, err = c.Compare(context.Background(), nil)
		if err == nil && len(got) > 0 {
			err = fmt.Errorf("of nothing %q", got)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAbort lets one rank give up while the others wait for it.
func TestAbort(t *testing.T) {
	errs := make([]error, 3)
	_ = world(t, 3, 0, nbc.Options{Deadline: 10 * time.Minute}, func(c *collectives.Comm, e *nbc.Engine) error {
		if c.Rank() == 2 {
			errs[2] = e.Abort(context.Background(), "record 17 of the LMDB is corrupt")
			return nil
		}
		errs[c.Rank()] = c.Barrier(context.Background())
		return nil
	})
	for r := range 2 {
		var abort *nbc.AbortError
		if !errors.As(errs[r], &abort) || abort.Rank != 2 {
			t.Errorf("rank %d ended with %v", r, errs[r])
		}
	}
	if errs[2] != nil {
		t.Errorf("abort: %v", errs[2])
	}
}

// The engine counts what messages hold, in both directions, once for every execution,
// whichever way it takes.
func TestPayload(t *testing.T) {
	const ranks, count, times = 3, 1000, 4
	err := world(t, ranks, 0, nbc.Options{}, func(c *collectives.Comm, e *nbc.Engine) error {
		b := make([]int32, count)
		r, err := c.BcastInit(mem.Of(b), mem.Int32, 1, collectives.With(parse(t, "chain")))
		if err != nil {
			return err
		}
		defer r.Close()
		for range times {
			if err := errors.Join(r.Start(), r.Wait(context.Background())); err != nil {
				return err
			}
		}
		if err := r.Run(context.Background()); err != nil {
			return err
		}
		all := int64(4 * count * (times + 1))
		want := []nbc.Payload{{Received: all}, {Sent: all}, {Sent: all, Received: all}}[c.Rank()] // 1, 2, 0
		if got := e.Payload(); got != want || c.Payload() != want {
			return fmt.Errorf("%+v, want %+v", got, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
