package nbc_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/chain"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/schedule"
)

// slow is a device whose operations end two polls after they began, as a
// GPU's do.
type slow struct {
	nbc.Device
	begun, ended []nbc.Completion
}

func (s *slow) Reduce(tok nbc.Token, dt mem.Datatype, op mem.Op, dst, a, b mem.Buffer) (bool, error) {
	_, err := s.Device.Reduce(tok, dt, op, dst, a, b)
	s.begun = append(s.begun, nbc.Completion{Token: tok, Err: err})
	return false, nil
}

func (s *slow) Divide(tok nbc.Token, dt mem.Datatype, dst, src mem.Buffer, by float64) (bool, error) {
	_, err := s.Device.Divide(tok, dt, dst, src, by)
	s.begun = append(s.begun, nbc.Completion{Token: tok, Err: err})
	return false, nil
}

func (s *slow) Copy(tok nbc.Token, dst, src mem.Buffer) (bool, error) {
	_, err := s.Device.Copy(tok, dst, src)
	s.begun = append(s.begun, nbc.Completion{Token: tok, Err: err})
	return false, nil
}

func (s *slow) Poll(done []nbc.Completion) (int, error) {
	n := copy(done, s.ended)
	s.ended = append(s.ended[n:], s.begun...)
	s.begun = nil
	return n, nil
}

func host(t testing.TB) nbc.Device {
	t.Helper()
	k, err := kernels.NewCPU()
	if err != nil {
		t.Fatal(err)
	}
	return device.CPU(k)
}

// chainReduce returns the plan of rank of size for a chunked chain.
func chainReduce(t testing.TB, rank, size, count, chunk int) *nbc.Plan {
	t.Helper()
	p, err := plan(rank, size, count, chunk)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func plan(rank, size, count, chunk int) (*nbc.Plan, error) {
	b := schedule.NewBuilder(rank, size, count)
	chain.Reduce(b, schedule.Params{Rank: rank, Size: size, Count: count, Chunk: chunk})
	return nbc.Compile(b.Schedule())
}

// ring runs f on n engines at once.
func ring(t testing.TB, n int, device func() nbc.Device, f func(e *nbc.Engine) error) {
	t.Helper()
	w := inproc.NewWorld(n, inproc.Options{})
	errs := make([]error, n)
	engines := make([]*nbc.Engine, n)
	var wg sync.WaitGroup
	for r := range n {
		e, err := nbc.Start(w.Open(r), device(), nbc.Options{Deadline: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		engines[r] = e
		wg.Go(func() { errs[r] = f(e) })
	}
	wg.Wait()
	for _, e := range engines {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// stuckDevice never ends what it begins, until it is told to forget it.
type stuckDevice struct {
	nbc.Device
	begun   chan struct{}
	drained atomic.Bool
}

func (s *stuckDevice) Reduce(nbc.Token, mem.Datatype, mem.Op, mem.Buffer, mem.Buffer, mem.Buffer) (bool, error) {
	close(s.begun)
	return false, nil
}

func (s *stuckDevice) Drain() { s.drained.Store(true) }

// drains is a transport that is told to end its copies.
type drains struct {
	nbc.Transport
	drained *atomic.Bool
}

func (d drains) Drain() { d.drained.Store(true) }

// TestADeviceIsDrainedBeforeBuffersAreGivenBack: a failure may find an addition
// under way, and copies of the transport's.
func TestADeviceIsDrainedBeforeBuffersAreGivenBack(t *testing.T) {
	defer goleak.VerifyNone(t)
	stuck := &stuckDevice{Device: host(t), begun: make(chan struct{})}
	w := inproc.NewWorld(2, inproc.Options{})
	var engines [2]*nbc.Engine
	var copies atomic.Bool
	for r, d := range []nbc.Device{stuck, host(t)} {
		open := func() (nbc.Transport, error) {
			inner, err := w.Open(r)()
			if r == 0 {
				inner = drains{inner, &copies}
			}
			return inner, err
		}
		var err error
		if engines[r], err = nbc.Start(open, d, nbc.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	var requests [2]*nbc.Request
	for r, e := range engines {
		var err error
		if requests[r], err = e.Prepare(chainReduce(t, r, 2, 8, 8), reductionOf(8)); err != nil {
			t.Fatal(err)
		}
		start(t, requests[r])
	}
	<-stuck.begun
	if err := engines[1].Abort(context.Background(), "the disk is full"); err != nil {
		t.Fatal(err)
	}
	if err := requests[0].Wait(context.Background()); err == nil || !stuck.drained.Load() || !copies.Load() {
		t.Errorf("ended with %v, drained: %v, its copies: %v", err, stuck.drained.Load(), copies.Load())
	}
	for _, e := range engines {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// boundDevice is a device whose calls are bound to a thread.
type boundDevice struct {
	nbc.Device
	thread atomic.Int64
	wrong  atomic.Int64 // calls on another
}

func (b *boundDevice) Migrate() bool {
	b.thread.Store(int64(unix.Gettid()))
	return true
}

func (b *boundDevice) Reduce(tok nbc.Token, dt mem.Datatype, op mem.Op, dst, x, y mem.Buffer) (bool, error) {
	if b.thread.Load() != int64(unix.Gettid()) {
		b.wrong.Add(1)
	}
	return b.Device.Reduce(tok, dt, op, dst, x, y)
}

// TestADeviceMovesWithTheTransport to the thread of a caller that turns the
// loop, and back.
func TestADeviceMovesWithTheTransport(t *testing.T) {
	bound := &boundDevice{Device: host(t)}
	devices := []nbc.Device{bound, host(t)}
	var next atomic.Int64
	ring(t, 2, func() nbc.Device { return devices[next.Add(1)-1] }, func(e *nbc.Engine) error {
		b := reductionOf(100)
		r, err := e.Prepare(chainReduce(t, e.Rank(), 2, 100, 10), b)
		if err != nil {
			return err
		}
		defer r.Close()
		for i := range 50 {
			if i%2 == 0 {
				err = r.Run(context.Background())
			} else {
				err = errors.Join(r.Start(), r.Wait(context.Background()))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if n := bound.wrong.Load(); n > 0 {
		t.Errorf("%d additions on a thread that the device was not moved to", n)
	}
}

// TestAsynchronousDevice runs a reduction on a device that completes later.
func TestAsynchronousDevice(t *testing.T) {
	defer goleak.VerifyNone(t)
	const n, count = 4, 1000
	ring(t, n, func() nbc.Device { return &slow{Device: host(t)} }, func(e *nbc.Engine) error {
		in, out := make([]int64, count), make([]int64, count)
		for i := range in {
			in[i] = int64(e.Rank()*1000 + i)
		}
		r, err := e.Prepare(chainReduce(t, e.Rank(), n, count, 64), nbc.Binding{Name: "reduce", In: mem.Of(in), Out: mem.Of(out), Datatype: mem.Int64, Divide: 2})
		if err != nil {
			return err
		}
		defer r.Close()
		if err := errors.Join(r.Start(), r.Wait(context.Background())); err != nil {
			return err
		}
		for i := range out {
			if want := int64(3000 + 2*i); e.Rank() == 0 && out[i] != want {
				t.Errorf("element %d is %d, not %d", i, out[i], want)
				break
			}
		}
		return nil
	})
}

// TestSteadyStateAllocatesNothing starts a request again and again: no
// allocation per op may remain.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	const n, count, chunk, runs = 2, 1 << 16, 256, 50
	var perRun float64
	ring(t, n, func() nbc.Device { return host(t) }, func(e *nbc.Engine) error {
		buf := mem.Of(make([]float32, count))
		r, err := e.Prepare(chainReduce(t, e.Rank(), n, count, chunk), nbc.Binding{Name: "reduce", In: buf, Out: buf, Datatype: mem.Float32})
		if err != nil {
			return err
		}
		defer r.Close()
		once := func() {
			if err := errors.Join(r.Start(), r.Wait(context.Background())); err != nil {
				t.Error(err)
			}
		}
		if e.Rank() > 0 {
			for range runs + 1 { // AllocsPerRun runs once more, to warm up
				once()
			}
			return nil
		}
		perRun = testing.AllocsPerRun(runs, once)
		return nil
	})
	if ops := float64(count / chunk); perRun > ops/16 {
		t.Errorf("%v allocations per run of %v chunks", perRun, ops)
	}
}

// TestBadUse is refused with an error, never a panic or a hang.
func TestBadUse(t *testing.T) {
	ring(t, 1, func() nbc.Device { return host(t) }, func(e *nbc.Engine) error {
		p := chainReduce(t, 0, 2, 100, 10)
		if _, err := e.Prepare(p, nbc.Binding{Name: "reduce", In: mem.Of(make([]float32, 99)), Out: mem.Of(make([]float32, 100))}); err == nil {
			t.Error("a buffer that is too short was accepted")
		}
		buf := mem.Of(make([]float32, 100))
		r, err := e.Prepare(p, nbc.Binding{Name: "reduce", In: buf, Out: buf, Deadline: 100 * time.Millisecond, Ranks: []int{0, 0}})
		if err != nil {
			return err
		}
		if err := r.Start(); err != nil {
			return err
		}
		if err := r.Start(); err == nil {
			t.Error("a request in flight was started again")
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := r.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a canceled wait ended with %v", err)
		}
		var deadline *nbc.DeadlineError
		if err := r.Wait(context.Background()); !errors.As(err, &deadline) {
			t.Errorf("a reduction without peers ended with %v", err)
		}
		if err := r.Start(); err == nil {
			t.Error("a failed engine started a request")
		}
		return nil
	})
}

// TestCompileRefusesForwardDependencies keeps plans acyclic.
func TestCompileRefusesForwardDependencies(t *testing.T) {
	s, err := schedule.Parse("rank 0 of 1 count 4 scratch 0\n0: copy out[0:2] in[0:2] after 1\n1: copy out[2:4] in[2:4]\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nbc.Compile(s); err == nil {
		t.Error("an op that waits for a later one was accepted")
	}
}

// BenchmarkOp measures what the engine spends on one op: a chunked chain of
// two ranks with chunks of one element, one op a chunk on each rank.
func BenchmarkOp(b *testing.B) {
	const n, count = 2, 4096
	ring(b, n, func() nbc.Device { return host(b) }, func(e *nbc.Engine) error {
		buf := mem.Of(make([]float32, count))
		r, err := e.Prepare(chainReduce(b, e.Rank(), n, count, 1), nbc.Binding{Name: "reduce", In: buf, Out: buf, Datatype: mem.Float32})
		if err != nil {
			return err
		}
		defer r.Close()
		if e.Rank() == 0 {
			b.ResetTimer()
		}
		for range b.N {
			if err := errors.Join(r.Start(), r.Wait(context.Background())); err != nil {
				return err
			}
		}
		if e.Rank() == 0 {
			b.StopTimer()
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*count), "ns/op-of-a-schedule")
		}
		return nil
	})
}

// BenchmarkSmall measures a whole collective of one message.
func BenchmarkSmall(b *testing.B) {
	const n = 2
	ring(b, n, func() nbc.Device { return host(b) }, func(e *nbc.Engine) error {
		buf := mem.Of(make([]float32, 1))
		r, err := e.Prepare(chainReduce(b, e.Rank(), n, 1, 1), nbc.Binding{Name: "reduce", In: buf, Out: buf, Datatype: mem.Float32})
		if err != nil {
			return err
		}
		defer r.Close()
		for range b.N {
			if err := errors.Join(r.Start(), r.Wait(context.Background())); err != nil {
				return err
			}
		}
		return nil
	})
}
