//go:build linux && (amd64 || arm64)

package shm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scaffe/scaffe/binomial"
	"github.com/scaffe/scaffe/direct"
	"github.com/scaffe/scaffe/doubling"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/linear"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/schedule"
)

// counts are the operations that the loop begins: a request that its caller executes
// alone begins none; the messages that such a caller sends; those for which the loop
// has a place where they may be copied; and how often such a caller had copied a part of what it sends.
type counts struct{ begun, put, placed, assisted atomic.Int64 }

type counting struct {
	*Transport
	*counts
}

func (c counting) Put(tok nbc.Token, to int, tag nbc.Tag, src mem.Buffer, lend bool) bool {
	ok := c.Transport.Put(tok, to, tag, src, lend)
	if ok {
		c.put.Add(1)
	}
	return ok
}

func (c counting) Lent() []nbc.Token {
	lent := c.Transport.Lent()
	for i := range c.claims {
		if atomic.LoadUint64(&c.claims[i].word)>>bySender&mostTaken != 0 {
			c.assisted.Add(1)
			break
		}
	}
	return lent
}

func (c counting) Send(tok nbc.Token, to int, tag nbc.Tag, src mem.Buffer) error {
	c.begun.Add(1)
	return c.Transport.Send(tok, to, tag, src)
}

func (c counting) Recv(tok nbc.Token, from int, tag nbc.Tag, dst mem.Buffer) error {
	c.begun.Add(1)
	return c.Transport.Recv(tok, from, tag, dst)
}

func (c counting) RecvBorrow(tok nbc.Token, from int, tag nbc.Tag, n int) error {
	c.begun.Add(1)
	return c.Transport.RecvBorrow(tok, from, tag, n)
}

func (c counting) RecvBorrowTo(tok nbc.Token, from int, tag nbc.Tag, dst mem.Buffer) error {
	c.begun.Add(1)
	c.placed.Add(1)
	return c.Transport.RecvBorrowTo(tok, from, tag, dst)
}

// engines runs f on n engines of one node and returns what each has begun.
func engines(t *testing.T, n int, f func(e *nbc.Engine) error) []*counts {
	t.Helper()
	return enginesWith(t, n, Options{Room: 1 << 28}, f)
}

func enginesWith(t *testing.T, n int, o Options, f func(e *nbc.Engine) error) []*counts {
	t.Helper()
	return enginesCounted(t, n, o, func(e *nbc.Engine, _ *counts) error { return f(e) })
}

// enginesCounted lets f see what its engine has begun so far.
func enginesCounted(t *testing.T, n int, o Options, f func(e *nbc.Engine, c *counts) error) []*counts {
	t.Helper()
	w := inproc.NewWorld(n, inproc.Options{})
	all := make([]*counts, n)
	for r := range all {
		all[r] = &counts{}
	}
	k, err := kernels.NewCPU()
	if err != nil {
		t.Fatal(err)
	}
	err = each(n, func(r int) error {
		open := func() (nbc.Transport, error) {
			inner, err := w.Open(r)()
			if err != nil {
				return nil, err
			}
			x, err := New(inner, o)
			if err != nil {
				return nil, err
			}
			return counting{base(x), all[r]}, nil
		}
		e, err := nbc.Start(open, device.CPU(k), nbc.Options{})
		if err != nil {
			return err
		}
		err = f(e, all[r])
		if err != nil { // or the others wait for this rank
			err = errors.Join(err, e.Abort(context.Background(), err.Error()))
		}
		return errors.Join(err, e.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// loneAllreduce prepares an allreduce of count elements that is to be run again and
// again.
func loneAllreduce(e *nbc.Engine, a schedule.Algorithm, count int, instance uint32, in, out []int64) (*nbc.Request, error) {
	b := schedule.NewBuilder(e.Rank(), e.Size(), count)
	a.Add(b, schedule.Allreduce, schedule.Params{Rank: e.Rank(), Size: e.Size(), Count: count})
	p, err := nbc.Compile(b.Schedule())
	if err != nil {
		return nil, err
	}
	return e.Prepare(p, nbc.Binding{
		Name: "allreduce", Call: fmt.Sprint(count), In: mem.Of(in), Out: mem.Of(out), Datatype: mem.Int64, Op: mem.Sum, Instance: instance,
	})
}

// TestAlone: a caller that executes its collective alone, one that has the loop do
// it since something else is under way, and one that comes late, all serve each
// other.
func TestAlone(t *testing.T) {
	const rounds = 60
	for _, n := range []int{2, 3, 5} {
		for name, a := range map[string]schedule.Algorithm{
			"linear": {Reduce: linear.Reduce, Bcast: linear.Bcast}, "binomial": {Reduce: binomial.Reduce, Bcast: binomial.Bcast},
			"doubling": {Allreduce: doubling.Allreduce}, "direct": {Allreduce: direct.Allreduce},
		} {
			t.Run(fmt.Sprintf("%d ranks, %s", n, name), func(t *testing.T) {
				engines(t, n, func(e *nbc.Engine) error { return aloneRounds(e, a, rounds) })
			})
		}
	}
}

func aloneRounds(e *nbc.Engine, a schedule.Algorithm, rounds int) error {
	rng := rand.New(rand.NewPCG(uint64(e.Rank()), 7))
	same := rand.New(rand.NewPCG(1, 7)) // draws alike on all ranks
	ctx := context.Background()
	one := make([]int64, 1)
	for i := range rounds {
		count := []int{1, 4, 5, 33, 300, 512, 600, 5000, 20000}[same.IntN(9)] // 20000: too large to be executed alone
		in, giveIn, err := numbers(e, count, rng.IntN(2) == 0)
		if err != nil {
			return err
		}
		out, giveOut, err := numbers(e, count, rng.IntN(2) == 0)
		if err != nil {
			return err
		}
		for j := range in {
			in[j] = int64(e.Rank()*1000 + i + j)
		}
		r, err := loneAllreduce(e, a, count, uint32(2*i+1), in, out)
		if err != nil {
			return err
		}
		other, err := loneAllreduce(e, a, 1, uint32(2*i+2), []int64{1}, one)
		if err != nil {
			return err
		}
		early := rng.IntN(3) == 0
		if early { // then the loop is at work
			if err := other.Start(); err != nil {
				return err
			}
		}
		if rng.IntN(8) == 0 {
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
		}
		if err := r.Run(ctx); err != nil {
			return err
		}
		if early {
			err = other.Wait(ctx)
		} else {
			err = other.Run(ctx)
		}
		if err != nil {
			return err
		}
		n := e.Size()
		for j, got := range out {
			if want := int64(1000*n*(n-1)/2 + n*(i+j)); got != want {
				return fmt.Errorf("rank %d, round %d, element %d of %d: %d, want %d", e.Rank(), i, j, count, got, want)
			}
		}
		if one[0] != int64(n) {
			return fmt.Errorf("rank %d, round %d: the other came to %d", e.Rank(), i, one[0])
		}
		r.Close()
		other.Close()
		giveIn()
		giveOut()
	}
	return nil
}

// numbers returns memory of the engine's, which peers may read in place, or ordinary
// memory; and how to give it back.
func numbers(e *nbc.Engine, n int, registered bool) ([]int64, func(), error) {
	if !registered {
		return make([]int64, n), func() {}, nil
	}
	b, err := e.Alloc(8 * n)
	if err != nil {
		return nil, nil, err
	}
	return mem.View[int64](b), func() { e.Free(b) }, nil
}

// TestAloneBeginsNothing: where nothing else is under way and the messages are there,
// the loop has nothing to do; and nothing is allocated.
func TestAloneBeginsNothing(t *testing.T) {
	const runs = 100 // fit into a ring
	var allocated float64
	sent := make(chan struct{})
	begun := engines(t, 2, func(e *nbc.Engine) error {
		buf := make([]int64, 8)
		r, err := loneReduce(e, buf, time.Minute)
		if err != nil {
			return err
		}
		defer r.Close()
		r.Detach()
		instance := uint32(1)
		var failed error
		once := func() {
			instance++
			if err := r.RunAs(context.Background(), instance, true); err != nil {
				failed = err
			}
		}
		if e.Rank() == 0 {
			select {
			case <-sent:
			case <-e.Failed():
				return e.Err()
			}
			allocated = testing.AllocsPerRun(runs-1, once) // which runs it once more
			return failed
		}
		defer close(sent)
		for range runs {
			once()
		}
		return failed
	})
	if allocated >= 1 {
		t.Errorf("%v allocations per execution", allocated)
	}
	for rank, b := range begun {
		if n := b.begun.Load(); n > runs/2 { // the loop may look around just then, but not always
			t.Errorf("the loop of rank %d began %d operations of %d executions", rank, n, runs)
		}
	}
}

// loneReduce prepares a reduction to rank 0.
func loneReduce(e *nbc.Engine, buf []int64, deadline time.Duration) (*nbc.Request, error) {
	b := schedule.NewBuilder(e.Rank(), e.Size(), len(buf))
	linear.Reduce(b, schedule.Params{Rank: e.Rank(), Size: e.Size(), Count: len(buf)})
	p, err := nbc.Compile(b.Schedule())
	if err != nil {
		return nil, err
	}
	return e.Prepare(p, nbc.Binding{
		Name: "reduce", Instance: 1, In: mem.Of(buf), Out: mem.Of(buf), Datatype: mem.Int64, Deadline: deadline,
	})
}

// TestALoneRankIsWaitedFor: a rank that never comes is named when the deadline is
// over, as if the loop had executed all.
func TestALoneRankIsWaitedFor(t *testing.T) {
	engines(t, 2, func(e *nbc.Engine) error {
		if e.Rank() == 1 {
			<-e.Failed()
			return nil
		}
		buf := make([]int64, 8)
		r, err := loneReduce(e, buf, 50*time.Millisecond)
		if err != nil {
			return err
		}
		defer r.Close()
		err = r.Run(context.Background())
		var late *nbc.DeadlineError
		if !errors.As(err, &late) || len(late.Edges) != 1 || late.Edges[0].Peer != 1 || late.Request != "reduce#1" {
			return fmt.Errorf("it ends with %v", err)
		}
		return nil
	})
}

// TestLingering: requests that are started and waited for later, in another order, some
// of them tested in between, some left for the loop to end, and some closed in flight. Half of them are in registered
// memory, and so large that they would be lent if their callers waited.
func TestLingering(t *testing.T) {
	const n, rounds, each = 3, 40, 20 // more of them than may linger
	enginesWith(t, n, Options{Room: 1 << 28, forceShare: true}, func(e *nbc.Engine) error {
		rng := rand.New(rand.NewPCG(uint64(e.Rank()), 11))
		ctx := context.Background()
		for i := range rounds {
			var requests [each]*nbc.Request
			var out [each][]int64
			for k := range requests {
				count, registered := 5, k%2 > 0
				if registered {
					count = (copyRoom + blockRoom) / 16
				}
				in, giveIn, err := numbers(e, count, registered)
				if err != nil {
					return err
				}
				defer giveIn()
				var giveOut func()
				if out[k], giveOut, err = numbers(e, count, registered); err != nil {
					return err
				}
				defer giveOut()
				in[3], in[4] = 4, int64(e.Rank())
				requests[k], err = loneAllreduce(e, schedule.Algorithm{Reduce: binomial.Reduce, Bcast: binomial.Bcast}, count,
					uint32(i*each+k+1), in, out[k])
				if err != nil {
					return err
				}
			}
			for _, k := range rng.Perm(each) {
				if err := requests[k].Start(); err != nil {
					return err
				}
			}
			if rng.IntN(4) == 0 {
				time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
			}
			for _, k := range rng.Perm(each) {
				for range rng.IntN(3) {
					if _, err := requests[k].Test(); err != nil {
						return err
					}
				}
				if k == 0 { // its number and memory are given back when it ends
					requests[k].Close()
				}
				if err := requests[k].Wait(ctx); err != nil {
					return err
				}
				if out[k][3] != 4*n || out[k][4] != n*(n-1)/2 {
					return fmt.Errorf("rank %d, round %d, request %d: %v", e.Rank(), i, k, out[k])
				}
				requests[k].Close()
			}
		}
		return nil
	})
}

// TestALingeringRequestEnds: one that nobody tests ends all the same, and one whose
// peer never comes fails like others.
func TestALingeringRequestEnds(t *testing.T) {
	engines(t, 2, func(e *nbc.Engine) error {
		buf := make([]int64, 8)
		r, err := loneReduce(e, buf, 100*time.Millisecond)
		if err != nil {
			return err
		}
		defer r.Close()
		if err := r.Start(); err != nil {
			return err
		}
		if err := r.Wait(context.Background()); err != nil {
			return err
		}
		if e.Rank() == 1 {
			<-e.Failed()
			return nil
		}
		if err := r.Start(); err != nil { // rank 1 does not
			return err
		}
		<-e.Failed() // though nobody waits
		var late *nbc.DeadlineError
		if err := r.Wait(context.Background()); !errors.As(err, &late) {
			return fmt.Errorf("it ends with %v", err)
		}
		return nil
	})
}

// TestLentMemory: who lends a message has its memory back when the call returns, however
// late the receiver comes; and the loop takes over meanwhile, also of a request that lingers and would lend its messages
// if it were waited for.
func TestLentMemory(t *testing.T) {
	for _, lingers := range []bool{false, true} {
		t.Run(fmt.Sprintf("another lingers %v", lingers), func(t *testing.T) { lentMemory(t, lingers) })
	}
}

func lentMemory(t *testing.T, lingers bool) {
	const n, rounds = 8 << 10, 5
	all := enginesWith(t, 2, Options{Room: 1 << 28, forceShare: true}, func(e *nbc.Engine) error {
		ctx := context.Background()
		buf, give, err := numbers(e, n, true)
		if err != nil {
			return err
		}
		defer give()
		r, err := loneReduce(e, buf, time.Minute)
		if err != nil {
			return err
		}
		defer r.Close()
		other, giveOther, err := numbers(e, (copyRoom+blockRoom)/16, true)
		if err != nil {
			return err
		}
		defer giveOther()
		beside, err := loneAllreduce(e, schedule.Algorithm{Allreduce: doubling.Allreduce}, len(other), 2, other, other)
		if err != nil {
			return err
		}
		defer beside.Close()
		for round := range int64(rounds) {
			for i := range buf {
				buf[i] = round
			}
			if e.Rank() == 0 {
				time.Sleep(5 * time.Millisecond)
			}
			if lingers {
				if err := beside.Start(); err != nil {
					return err
				}
			}
			if err := r.Run(ctx); err != nil {
				return err
			}
			if e.Rank() == 1 {
				clear(buf)
			}
			if lingers {
				if err := beside.Wait(ctx); err != nil {
					return err
				}
			}
			if e.Rank() == 0 && (buf[0] != 2*round || buf[n-1] != 2*round) {
				return fmt.Errorf("round %d: the sum is %d and %d", round, buf[0], buf[n-1])
			}
		}
		return nil
	})
	if lent, sent := all[1].put.Load(), all[1].begun.Load(); !lingers && lent+sent != rounds { // the loop may be looking around, and then it sends
		t.Errorf("of %d messages %d were lent and %d sent by the loop", rounds, lent, sent)
	}
}

// TestAPipelineIsTheLoops: a caller that executes its request alone would lend one chunk
// after another, where the loop has several under way.
func TestAPipelineIsTheLoops(t *testing.T) {
	const chunk = 4 << 10 // elements: too many bytes for a ring
	for chunks, alone := range map[int]bool{2: true, 3: false} {
		all := engines(t, 2, func(e *nbc.Engine) error {
			b := schedule.NewBuilder(e.Rank(), 2, chunks*chunk)
			linear.Reduce(b, schedule.Params{Rank: e.Rank(), Size: 2, Count: chunks * chunk, Chunk: chunk})
			p, err := nbc.Compile(b.Schedule())
			if err != nil {
				return err
			}
			buf, give, err := numbers(e, chunks*chunk, true)
			if err != nil {
				return err
			}
			defer give()
			r, err := e.Prepare(p, nbc.Binding{Name: "reduce", In: mem.Of(buf), Out: mem.Of(buf), Datatype: mem.Int64, Instance: 1})
			if err != nil {
				return err
			}
			defer r.Close()
			return r.Run(context.Background())
		})
		if put, begun := all[1].put.Load(), all[1].begun.Load(); put+begun != int64(chunks) || !alone && put > 0 {
			t.Errorf("of %d chunks %d were lent and %d sent by the loop", chunks, put, begun)
		}
	}
}

// TestAloneAddsWhatTheLoopWouldShare: a reduction of a message so large that two ranks would copy it, where it is moved, is executed alone by
// both, as far as who adds it has it all in the cache.
func TestAloneAddsWhatTheLoopWouldShare(t *testing.T) {
	const rounds = 20
	for n, alone := range map[int]bool{shareFrom: true, addedRoom: true, addedRoom + 8: false} {
		for _, registered := range []bool{true, false} {
			all := enginesWith(t, 2, Options{Room: 1 << 28, forceShare: true}, func(e *nbc.Engine) error {
				buf, give, err := numbers(e, n/8, registered)
				if err != nil {
					return err
				}
				defer give()
				r, err := loneReduce(e, buf, time.Minute)
				if err != nil {
					return err
				}
				defer r.Close()
				for i := range int64(rounds) {
					for j := range buf {
						buf[j] = i + int64(j)
					}
					if err := r.Run(context.Background()); err != nil {
						return err
					}
					for j := range buf {
						if want := 2 * (i + int64(j)); e.Rank() == 0 && buf[j] != want {
							return fmt.Errorf("round %d, element %d: %d, want %d", i, j, buf[j], want)
						}
					}
				}
				return nil
			})
			if put, begun := all[1].put.Load(), all[1].begun.Load(); put+begun != rounds || alone == (put == 0) {
				t.Errorf("%d bytes, registered %v: of %d messages %d were lent and %d sent by the loop", n, registered, rounds, put, begun)
			}
		}
	}
}

// TestWhoIsAloneHelpsToCopy a message that its receiver, whose loop executes the same broadcast, only moves.
func TestWhoIsAloneHelpsToCopy(t *testing.T) {
	const long, count = 20 * time.Second, addedRoom / 8 // how many rounds it takes is a matter of what else the cores have to do
	for _, registered := range []bool{true, false} {
		all := enginesCounted(t, 2, Options{Room: 1 << 28, forceShare: true}, func(e *nbc.Engine, c *counts) error {
			b := schedule.NewBuilder(e.Rank(), 2, count)
			linear.Bcast(b, schedule.Params{Rank: e.Rank(), Size: 2, Count: count})
			p, err := nbc.Compile(b.Schedule())
			if err != nil {
				return err
			}
			x, give, err := numbers(e, count, registered)
			if err != nil {
				return err
			}
			defer give()
			r, err := e.Prepare(p, nbc.Binding{Name: "bcast", Out: mem.Of(x), Datatype: mem.Int64})
			if err != nil {
				return err
			}
			defer r.Close()
			for i, end := int64(0), time.Now().Add(long); ; i++ {
				if e.Rank() == 0 {
					for j := range x {
						x[j] = i + int64(j)
					}
					if c.put.Load() > 0 && c.assisted.Load() > 0 || time.Now().After(end) {
						x[0] = -1 // the last round
					}
				} else { // or it would always be there before, and say where it wants the message
					time.Sleep(time.Duration(i%4) * 200 * time.Microsecond)
				}
				if err := r.Run(context.Background()); err != nil {
					return err
				}
				for j := range x {
					if x[j] != i+int64(j) && (j > 0 || x[j] != -1) {
						return fmt.Errorf("round %d, element %d: %d", i, j, x[j])
					}
				}
				if x[0] == -1 {
					return nil
				}
			}
		})
		if put, helped := all[0].put.Load(), all[0].assisted.Load(); put == 0 || helped == 0 {
			t.Errorf("registered %v: in %v %d messages were sent alone, and their sender had copied a part of %d", registered, long, put, helped)
		}
	}
}

// TestLentToNobody: a receiver that never comes is named.
func TestLentToNobody(t *testing.T) {
	engines(t, 2, func(e *nbc.Engine) error {
		if e.Rank() == 0 {
			<-e.Failed()
			return nil
		}
		buf, _, err := numbers(e, 8<<10, true) // not given back: the receiver might still come
		if err != nil {
			return err
		}
		r, err := loneReduce(e, buf, 50*time.Millisecond)
		if err != nil {
			return err
		}
		defer r.Close()
		err = r.Run(context.Background())
		var late *nbc.DeadlineError
		if !errors.As(err, &late) || len(late.Edges) != 1 || late.Edges[0].Peer != 0 || !late.Edges[0].Sending {
			return fmt.Errorf("it ends with %v", err)
		}
		return nil
	})
}

// TestASendersBytesMayChangeOnceItsCallHasEnded: where a receiver does not read private
// memory, and comes late, it gets what each call sent.
func TestASendersBytesMayChangeOnceItsCallHasEnded(t *testing.T) {
	const calls, count = 3, 1000 // too many bytes for a ring
	sent := make(chan struct{})
	enginesWith(t, 2, Options{Room: 1 << 28, forbidVM: true}, func(e *nbc.Engine) error {
		b := schedule.NewBuilder(e.Rank(), 2, count)
		linear.Bcast(b, schedule.Params{Rank: e.Rank(), Size: 2, Count: count})
		p, err := nbc.Compile(b.Schedule())
		if err != nil {
			return err
		}
		x := make([]int64, count)
		r, err := e.Prepare(p, nbc.Binding{Name: "bcast", Out: mem.Of(x), Datatype: mem.Int64})
		if err != nil {
			return err
		}
		defer r.Close()
		if e.Rank() == 1 {
			select {
			case <-sent:
			case <-time.After(50 * time.Millisecond): // the loop of rank 0 may have a send under way, which waits for this
			}
		} else {
			defer close(sent)
		}
		for i := range int64(calls) {
			if e.Rank() == 0 {
				x[count-1] = i + 1
			}
			if err := r.Run(context.Background()); err != nil {
				return err
			}
			if x[count-1] != i+1 {
				return fmt.Errorf("call %d brought %d", i+1, x[count-1])
			}
		}
		return nil
	})
}
