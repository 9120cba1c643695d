package nbc_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/schedule"
)

// anywhere is a transport that any thread may call.
type anywhere struct{ nbc.Transport }

func (anywhere) Migrate() bool { return true }

// TestWhoTurnsTheLoop: collectives end with the right sums whoever turns the loop for
// them: their callers in Wait and Test, at once or later, or the engine's goroutine,
// next to other requests and after a wait that was given up.
func TestWhoTurnsTheLoop(t *testing.T) {
	const ranks, rounds = 3, 150
	w := inproc.NewWorld(ranks, inproc.Options{})
	var wg sync.WaitGroup
	errs := make([]error, ranks)
	for rank := range ranks {
		wg.Go(func() {
			open := func() (nbc.Transport, error) {
				inner, err := w.Open(rank)()
				return anywhere{inner}, err
			}
			e, err := nbc.Start(open, host(t), nbc.Options{Deadline: time.Minute})
			if err != nil {
				errs[rank] = err
				return
			}
			for i := 0; i < rounds && err == nil; i++ {
				err = anyway(t, e, i)
			}
			errs[rank] = errors.Join(err, e.Close())
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// anyway starts some reductions and comes to their ends in a way that is drawn.
func anyway(t *testing.T, e *nbc.Engine, round int) error {
	alike := rand.New(rand.NewPCG(uint64(round), 1))
	own := rand.New(rand.NewPCG(uint64(round), uint64(2+e.Rank())))
	ctx := context.Background()
	n := 1 + alike.IntN(3)
	requests, sums := make([]*nbc.Request, n), make([][]float32, n)
	for k := range requests {
		count := []int{8, 50_000}[alike.IntN(2)] // 50,000 elements are too many to be left to the caller
		in, out := make([]float32, count), make([]float32, count)
		for i := range in {
			in[i] = float32(e.Rank() + i + round)
		}
		r, err := e.Prepare(chainReduce(t, e.Rank(), e.Size(), count, count/2), nbc.Binding{
			Name: "reduce", Instance: uint32(round*8 + k), In: mem.Of(in), Out: mem.Of(out), Datatype: mem.Float32, Op: mem.Sum,
		})
		if err != nil {
			return err
		}
		defer r.Close()
		requests[k], sums[k] = r, out
		if err := r.Start(); err != nil {
			return err
		}
	}
	for _, k := range own.Perm(n) {
		if err := reach(ctx, requests[k], own.IntN(5)); err != nil {
			return err
		}
		for i, sum := range sums[k] {
			if want := float32(e.Size()*(i+round) + e.Size()*(e.Size()-1)/2); e.Rank() == 0 && sum != want {
				return fmt.Errorf("round %d, request %d: element %d is %v, not %v", round, k, i, sum, want)
			}
		}
	}
	return nil
}

// reach comes to the end of a request.
func reach(ctx context.Context, r *nbc.Request, how int) error {
	switch how {
	case 1:
		time.Sleep(time.Millisecond)
	case 2:
		for {
			if ended, err := r.Test(); ended {
				return err
			}
		}
	case 3:
		short, cancel := context.WithTimeout(ctx, 50*time.Microsecond)
		defer cancel()
		if err := r.Wait(short); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	return r.Wait(ctx)
}

// patient is a transport that counts how often a thread offers its core, and whether one
// only waits.
type patient struct {
	nbc.Transport
	yields, waited *atomic.Int64
}

func (patient) Migrate() bool { return true }
func (patient) Crowded() bool { return true }
func (p patient) Yield()      { p.yields.Add(1) }
func (p patient) Waits(only bool) {
	if only {
		p.waited.Add(1)
	}
}

// two runs f on both ranks of a world, over the transports that as makes of its own.
func two(t *testing.T, as func(rank int, inner nbc.Transport) nbc.Transport, f func(*nbc.Engine)) {
	t.Helper()
	w := inproc.NewWorld(2, inproc.Options{})
	var wg sync.WaitGroup
	for rank := range 2 {
		wg.Go(func() {
			e, err := nbc.Start(func() (nbc.Transport, error) {
				inner, err := w.Open(rank)()
				return as(rank, inner), err
			}, host(t), nbc.Options{Deadline: time.Minute})
			if err != nil {
				t.Error(err)
				return
			}
			f(e)
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestTheProgressThreadLetsItsCallerGoOn: what is started while nothing is under way is
// posted, and then the progress thread, perhaps on its caller's core, offers that; and a
// transport learns that a caller only waits.
func TestTheProgressThreadLetsItsCallerGoOn(t *testing.T) {
	var yields, waited atomic.Int64
	two(t, func(_ int, inner nbc.Transport) nbc.Transport { return patient{inner, &yields, &waited} }, func(e *nbc.Engine) {
		for i := range uint32(50) {
			r := chained(t, e, i+1, 12, 0) // more bytes than its caller begins by itself
			start(t, r)
			time.Sleep(time.Duration(i%2) * time.Millisecond)
			wait(t, r)
		}
	})
	if yields.Load() == 0 || waited.Load() == 0 { // the loop may be looking around just then, but not always
		t.Errorf("of 100 requests the progress thread let %d callers go on, and %d waited themselves", yields.Load(), waited.Load())
	}
}

// followed is a patient transport that notes which thread looked last, and whose threads do come to run when one yields.
type followed struct {
	patient
	thread *atomic.Int64
}

func (f followed) Yield() { time.Sleep(100 * time.Microsecond) }

func (f followed) Poll(done []nbc.Completion) (int, error) {
	f.thread.Store(int64(unix.Gettid()))
	return f.Transport.Poll(done)
}

// TestTheProgressThreadGivesUpTheLoop: a goroutine that waits for the only request under way turns the loop by itself,
// though the engine's has had it.
func TestTheProgressThreadGivesUpTheLoop(t *testing.T) {
	const rounds = 20
	var yields, waited, looked atomic.Int64
	waits := make(chan bool, rounds)
	two(t, func(rank int, inner nbc.Transport) nbc.Transport {
		if rank == 1 {
			return patient{inner, &yields, &waited}
		}
		return followed{patient{inner, &yields, &waited}, &looked}
	}, func(e *nbc.Engine) {
		rank := e.Rank()
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		given := 0
		for i := range uint32(rounds) {
			r := chained(t, e, i+1, 12, 0) // more bytes than its caller begins by itself
			if rank == 1 {
				<-waits
				time.Sleep(time.Millisecond)
			}
			start(t, r)
			if rank == 0 {
				time.Sleep(time.Millisecond) // the engine's goroutine waits for rank 1
				waits <- true
			}
			wait(t, r)
			if looked.Load() == int64(unix.Gettid()) {
				given++
			}
		}
		if rank == 0 && given == 0 { // it may look around just then, but not always
			t.Errorf("of %d callers none has got the loop", rounds)
		}
	})
}

// TestNobodyIsLeftWithoutTheLoop: callers that ask for it, give up and come again, more of them than requests can be given
// it for, all come to their ends.
func TestNobodyIsLeftWithoutTheLoop(t *testing.T) {
	var yields, waited atomic.Int64
	two(t, func(_ int, inner nbc.Transport) nbc.Transport { return patient{inner, &yields, &waited} }, func(e *nbc.Engine) {
		var callers sync.WaitGroup
		for caller := range uint32(4) {
			callers.Go(func() {
				for i := range uint32(100) {
					r := chained(t, e, caller*1000+i+1, 12, 0)
					start(t, r)
					short, cancel := context.WithTimeout(context.Background(), time.Duration(i%3)*20*time.Microsecond)
					_ = r.Wait(short)
					cancel()
					wait(t, r)
					r.Close()
				}
			})
		}
		callers.Wait()
	})
}

// offering is a transport whose thread, while it only waits, lets another rank go on when it offers its core.
type offering struct {
	nbc.Transport
	waits   *bool
	offered func()
}

func (offering) Migrate() bool     { return true }
func (offering) Crowded() bool     { return true }
func (o offering) Waits(only bool) { *o.waits = only }
func (o offering) Yield() {
	if *o.waits {
		o.offered()
	}
}

// TestACoreIsOfferedBeforeAPartIsAdded: a rank that waits, and has the messages of some of those that it adds in one pass, lets the others
// have its core first: here rank 2 gives nothing before.
func TestACoreIsOfferedBeforeAPartIsAdded(t *testing.T) {
	const ranks, count = 3, 1000
	w := inproc.NewWorld(ranks, inproc.Options{})
	offered := make(chan bool)
	var once sync.Once
	var wg sync.WaitGroup
	for rank := range ranks {
		wg.Go(func() {
			e, err := nbc.Start(func() (nbc.Transport, error) {
				inner, err := w.Open(rank)()
				if rank == 0 {
					return offering{inner, new(bool), func() { once.Do(func() { close(offered) }) }}, err
				}
				return inner, err
			}, host(t), nbc.Options{Deadline: time.Minute})
			if err != nil {
				t.Error(err)
				return
			}
			in, out := make([]float32, count), make([]float32, count)
			for i := range in {
				in[i] = float32(i + rank)
			}
			b := schedule.NewBuilder(rank, ranks, count)
			all := schedule.Range{Len: count}
			mine, sum := schedule.Ref{Buf: schedule.In, Range: all}, schedule.Ref{Buf: schedule.Out, Range: all}
			if rank == 0 {
				b.RecvReduce(1, mine, sum)
				b.RecvReduce(2, sum, sum)
			} else {
				b.Send(0, mine)
			}
			p, err := nbc.Compile(b.Schedule())
			if err != nil {
				t.Error(err)
				return
			}
			r, err := e.Prepare(p, nbc.Binding{Name: "reduce", In: mem.Of(in), Out: mem.Of(out), Datatype: mem.Float32, Op: mem.Sum})
			if err != nil {
				t.Error(err)
				return
			}
			if rank == 2 {
				select {
				case <-offered:
				case <-time.After(20 * time.Second):
					t.Error("rank 0 added a part, and waited, without offering its core")
				}
			}
			if err := r.Run(context.Background()); err != nil {
				t.Error(err)
			}
			for i, v := range out {
				if want := float32(3*i + 3); rank == 0 && v != want {
					t.Errorf("element %d is %v, not %v", i, v, want)
					break
				}
			}
			r.Close()
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
