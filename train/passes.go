package train

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/kernels/vec"
	"github.com/scaffe/scaffe/mem"
)

// passes runs a worker's training passes on a goroutine of their own, while the solver's loop stays
// in step with the other ranks, which may go on without this one (Consistency.Drop), or be some
// iterations behind (Consistency.SSP). They have a net with parameters and gradients of its own: what
// arrives at the solver's does not touch them.
type passes struct {
	net   *net.Net
	size  int // the solver's iter_size
	next  int // the iteration whose batch the data layers give next
	pass  int // of the iteration, counted from 0
	time  timeline
	calls passCalls
	hooks net.Hooks

	ctx     context.Context
	fail    context.CancelCauseFunc
	begin   chan int    // iterations
	done    chan result // once for each
	running bool        // the loop's, of one iteration at a time: done is still to be taken from

	// Of a worker that is offered its parameters by the loop:
	params   [][]exchange.Range
	offered  chan int     // layers, ascending, of the iteration that was begun
	ready    int          // the last layer of this iteration that has been offered, -1: none
	restedAt atomic.Int64 // when the passes ended, since the start of the run; 0: they have not
	since    time.Time

	wait sync.WaitGroup
}

// passCalls are made by the passes' goroutine; any may be nil.
type passCalls struct {
	starts func(iter int) error
	before func(pass, layer int) error                  // a layer's forward: its parameters must be there when it returns
	after  func(pass, layer int) error                  // a layer's backward
	passed func(iter int, part float64) (result, error) // all passes have ended, with this part of the loss
	ended  func(iter int) error                         // and the loop may know
}

// result is what the passes of an iteration came to.
type result struct {
	loss    float64   // this worker's part
	outputs []float64 // as solver.Outputs says, where they are to be displayed
}

// newPasses starts the goroutine, which lives until close; ahead is how many iterations at most are
// begun and not taken.
func newPasses(ctx context.Context, s *solver.Solver, t timeline, ahead int, calls passCalls, fail context.CancelCauseFunc) *passes {
	p := &passes{
		net: s.Computes(), size: int(s.Param().GetIterSize()), next: s.Iter(), time: t, calls: calls, ctx: ctx, fail: fail,
		begin: make(chan int, ahead), done: make(chan result, ahead), since: time.Now(),
	}
	p.hooks = net.Hooks{BeforeForward: p.beforeForward, AfterBackward: p.afterBackward}
	p.wait.Go(func() {
		for iter := range p.begin {
			if err := p.run(iter); err != nil {
				p.fail(err)
				return
			}
		}
	})
	return p
}

// takesOffers has the passes wait, before the forward of a layer, until the loop has offered its
// parameters.
func (p *passes) takesOffers(layers []exchange.Layer) {
	p.offered = make(chan int, len(layers))
	for _, l := range layers {
		p.params = append(p.params, l.Params)
	}
	p.calls.starts = func(int) error {
		p.ready = -1
		return nil
	}
	p.calls.before = func(_, layer int) error {
		for p.ready < layer {
			select {
			case p.ready = <-p.offered:
			case <-p.ctx.Done():
				return context.Cause(p.ctx)
			}
		}
		return nil
	}
}

// start has the passes of an iteration run, whose layers are offered one after the other. Those
// before have ended; what they came to is thrown away if nobody has taken it.
func (p *passes) start(iter int) {
	p.rest()
	p.running = true
	p.restedAt.Store(0)
	select {
	case p.begin <- iter:
	case <-p.ctx.Done(): // the goroutine has ended, or will
	}
}

// offer gives the passes a layer's parameters.
func (p *passes) offer(layer int, from mem.Buffer) {
	data, _ := p.net.Packed()
	for _, r := range p.params[layer] {
		copy(mem.Float32s(data)[r.Off:r.End()], mem.Float32s(from)[r.Off:r.End()])
	}
	p.offered <- layer
}

// rest waits until no pass is under way, and throws away what was not taken.
func (p *passes) rest() {
	if !p.running {
		return
	}
	select {
	case <-p.done:
		_, diff := p.net.Packed()
		clear(mem.Float32s(diff))
	case <-p.ctx.Done():
	}
	p.running = false
}

// take brings the gradients of the iteration that has ended into a buffer of zeros, times scale,
// and returns this worker's part of the loss.
func (p *passes) take(into mem.Buffer, scale float32) (float64, error) {
	select {
	case r := <-p.done:
		p.running = false
		_, diff := p.net.Packed()
		vec.Scale(mem.Float32s(into), scale, mem.Float32s(diff))
		clear(mem.Float32s(diff))
		return r.loss * float64(scale), nil
	case <-p.ctx.Done():
		return 0, context.Cause(p.ctx)
	}
}

// restingSince says when the passes have ended, if they have.
func (p *passes) restingSince() (time.Time, bool) {
	at := p.restedAt.Load()
	return p.since.Add(time.Duration(at)), at > 0
}

// run runs the passes of an iteration.
func (p *passes) run(iter int) error {
	if iter != p.next { // after iterations without this worker
		if err := p.net.SeekBatch(int64(iter) * int64(p.size)); err != nil {
			return solver.InIteration(iter, err)
		}
	}
	p.next = iter + 1
	r := result{}
	var err error
	if p.calls.starts != nil {
		err = p.calls.starts(iter)
	}
	if err == nil {
		r.loss, err = p.compute(iter)
	}
	if err == nil && p.calls.passed != nil {
		r, err = p.calls.passed(iter, r.loss)
	}
	if err != nil {
		return solver.InIteration(iter, err)
	}
	p.restedAt.Store(max(1, int64(time.Since(p.since))))
	p.done <- r
	if p.calls.ended == nil {
		return nil
	}
	return p.calls.ended(iter)
}

// beforeForward and afterBackward are the hooks of its net.
func (p *passes) beforeForward(layer int) error {
	p.time.forwardEnds()
	if p.calls.before != nil {
		if err := p.calls.before(p.pass, layer); err != nil {
			return err
		}
	}
	p.time.forwardBegins(layer)
	return nil
}

func (p *passes) afterBackward(layer int) error {
	p.time.backwardEnds(layer)
	if p.calls.after != nil {
		if err := p.calls.after(p.pass, layer); err != nil {
			return err
		}
	}
	p.time.backwardBegins()
	return context.Cause(p.ctx)
}

// compute returns this worker's part of the loss; the gradients are in the net's buffer.
func (p *passes) compute(iter int) (float64, error) {
	p.time.start(iter)
	p.net.Hooks = p.hooks
	defer func() { p.net.Hooks = net.Hooks{} }()
	var sum net.Loss
	for p.pass = range p.size {
		if _, err := p.net.Forward(); err != nil {
			return 0, err
		}
		p.time.forwardEnds()
		loss := p.net.Loss()
		sum.Mean, sum.Sum = sum.Mean+loss.Mean, sum.Sum+loss.Sum
		p.time.backwardBegins()
		if err := p.net.Backward(); err != nil {
			return 0, err
		}
	}
	n := float32(p.size)
	return net.Loss{Mean: sum.Mean / n, Sum: sum.Sum / n}.Of(p.net.BatchShare), nil
}

// close ends the goroutine; ctx has ended, or no pass is under way.
func (p *passes) close() {
	if p == nil {
		return
	}
	close(p.begin)
	p.wait.Wait()
}
