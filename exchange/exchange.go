package exchange

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/trace"
)

// Config says what to exchange and how. Design, Scheme, Spec, Bucket, Root,
// Together and the layers must be alike on all ranks.
type Config struct {
	Design Design
	Scheme Scheme
	// Spec, unless it has no levels, is how the collectives are done.
	Spec spec.Spec
	// Bucket is the least size of a bucket in bytes; 0 means AutoBucket's.
	Bucket int
	// Root updates with the scheme Reduce.
	Root int
	// Layers are those of the net, in forward order.
	Layers []Layer
	// Data and Diff are the packed parameters and gradients, float32, equally
	// long, best from the communicator's Alloc.
	Data, Diff mem.Buffer
	// Use is called when this rank is done with a bucket's gradients of an
	// iteration. With sum, they are the sum over all ranks, and the bucket's
	// parameters are to be updated; without, they are of no more use. In either
	// case the next backward finds in Diff what Use leaves there. It runs on the
	// bucket's helper, beside the computing goroutine and other buckets.
	Use func(iter int, b *Bucket, sum bool) error
	// Together asks that no bucket is used before all have arrived, for updates
	// that depend on all gradients (clipping). Use then runs on the caller's
	// goroutine, in Finish, after All.
	Together bool
	// All, which may be nil, is called with Together before the buckets are
	// used, with sum as Use is.
	All func(iter int, sum bool) error
	// Trace takes events; it may be nil.
	Trace *trace.Recorder
}

// Exchange keeps the replicas of a net's parameters in step. Its methods are
// for the one goroutine that computes.
type Exchange struct {
	c       Config
	comm    *collectives.Comm
	least   int       // size of a bucket
	buckets []Bucket  // as the net is cut
	flows   []*flow   // what moves together: each bucket, or all of them
	owner   []*flow   // by layer; nil where it has no parameters
	uses    [][]*flow // by layer: what must be current before its forward
	eager   bool      // helpers start the pulls
	ctx     context.Context
	cancel  context.CancelFunc
	helpers sync.WaitGroup

	iter  int
	left  int   // layers whose backward has not ended
	err   error // the first failure, after which nothing starts any more
	watch watch
}

// New makes the exchange, which lives no longer than ctx. It is a collective,
// in that all ranks must make it in the same order among their collectives; it
// moves nothing yet. With the scheme Reduce, Data is current at the root alone
// and the first Start brings it to the others; with Allreduce it must be equal
// on all ranks already.
func New(ctx context.Context, comm *collectives.Comm, c Config) (*Exchange, error) {
	x := &Exchange{comm: comm, least: c.Bucket, watch: newWatch()}
	x.ctx, x.cancel = context.WithCancel(ctx)
	if comm.Size() == 1 { // nothing to overlap: no work beside the computing goroutine
		c.Design, c.Together = SCB, true
	}
	x.c = c
	if x.least == 0 {
		var err error
		if x.least, err = autoBucket(comm, &c); err != nil {
			return nil, err
		}
	}
	var err error
	if x.buckets, err = divide(c.Layers, c.Data.Len()/mem.Float32.Size(), x.least); err != nil {
		return nil, fmt.Errorf("design: %w", err)
	}
	if err := x.makeFlows(); err != nil {
		x.Close()
		return nil, err
	}
	return x, nil
}

// Buckets returns how the net is cut, in forward order.
func (x *Exchange) Buckets() []Bucket { return x.buckets }

// LeastBucket returns the least size of a bucket in bytes, asked for or chosen.
func (x *Exchange) LeastBucket() int { return x.least }

// Start begins iteration iter.
func (x *Exchange) Start(iter int) error {
	x.iter, x.left = iter, 0
	for _, f := range x.flows {
		f.left = f.layers
		x.left += f.layers
	}
	switch x.c.Design {
	case SCOBNaive:
		return x.fetchAfter(-1)
	default:
		return x.fetchAll()
	}
}

// fetchAll starts what brings every bucket that is not current.
func (x *Exchange) fetchAll() error {
	for _, f := range x.flows {
		if err := x.fetch(f); err != nil {
			return err
		}
	}
	return nil
}

// fetchAfter starts what brings the bucket after number i.
func (x *Exchange) fetchAfter(i int) error {
	if i+1 < len(x.flows) {
		return x.fetch(x.flows[i+1])
	}
	return nil
}

// fetch starts what makes f current, unless it is that or on its way: the
// pull, or with Allreduce a push that was put off.
func (x *Exchange) fetch(f *flow) error {
	if f.busy || f.current {
		return nil
	}
	if x.c.Scheme == Allreduce {
		return x.push(f)
	}
	if x.err != nil {
		return x.err
	}
	begin := time.Now()
	if x.err = f.sync.Pull(); x.err != nil {
		return x.err
	}
	x.hand(f, job{iter: x.iter, pull: true, begin: begin})
	return nil
}

// push starts to aggregate f's gradients.
func (x *Exchange) push(f *flow) error {
	if x.err != nil {
		return x.err
	}
	begin := time.Now()
	if x.err = f.sync.Push(); x.err != nil {
		return x.err
	}
	f.current, f.pushed = false, false
	x.hand(f, job{iter: f.complete, push: true, pull: x.eager, begin: begin})
	return nil
}

// hand gives f's helper a job.
func (x *Exchange) hand(f *flow, j job) {
	f.busy, f.pushing, f.iter = true, j.push, j.iter
	if j.push {
		x.watch.push.begin(j.begin)
	} else {
		x.watch.pull.begin(j.begin)
	}
	if x.comm.Size() == 1 { // it has ended already
		f.done <- x.do(f, j)
		return
	}
	f.jobs <- j
}

// wait waits until f's helper has done its job.
func (x *Exchange) wait(f *flow) error {
	if !f.busy {
		return nil
	}
	begin := time.Now()
	var err error
	select {
	case err = <-f.done:
	default: // it has not ended yet
		err = <-f.done
		x.waited(f, begin, time.Now())
	}
	f.busy = false
	switch {
	case err != nil:
		x.err = err
		return err
	case f.pushing:
		f.pushed = true
		f.current = x.eager || x.c.Scheme == Allreduce && !x.c.Together
	default:
		f.current = true
	}
	return nil
}

// waited accounts for a wait, which may have been for a push and then for the
// pull that followed it.
func (x *Exchange) waited(f *flow, begin, end time.Time) {
	add := func(kind trace.Kind, to *time.Duration, begin, end time.Time) {
		if !end.After(begin) {
			return
		}
		*to += end.Sub(begin)
		x.c.Trace.Add(trace.Event{Kind: kind, Name: f.Name, Iter: int32(f.iter), Bucket: int32(f.Index), Begin: begin, End: end})
	}
	turn := begin
	if f.pushing {
		turn = end
		if x.eager && f.turned.Before(end) {
			turn = f.turned
		}
		if turn.Before(begin) {
			turn = begin
		}
	}
	add(trace.WaitPush, &x.watch.exposedPush, begin, turn)
	add(trace.WaitPull, &x.watch.exposedPull, turn, end)
}

// settle waits until f is current.
func (x *Exchange) settle(f *flow) error {
	for !f.current {
		if err := errors.Join(x.fetch(f), x.wait(f)); err != nil {
			return err
		}
	}
	return nil
}

// BeforeForward waits until the parameters that a layer uses are current, and
// for no others.
func (x *Exchange) BeforeForward(layer int) error {
	for _, f := range x.uses[layer] {
		if err := x.settle(f); err != nil {
			return err
		}
	}
	if x.c.Design == SCOBNaive && x.owner[layer] != nil {
		return x.fetchAfter(x.owner[layer].Index)
	}
	return nil
}

// AfterBackward says that a layer's gradients are complete.
func (x *Exchange) AfterBackward(layer int) error {
	f := x.owner[layer]
	if f == nil {
		return nil
	}
	x.left--
	f.left--
	f.complete = x.iter
	if x.c.Design == SCOBR {
		if f.left > 0 {
			return nil
		}
		return x.push(f)
	}
	if x.left > 0 {
		return nil
	}
	for i := len(x.flows) - 1; i >= 0; i-- {
		f := x.flows[i]
		if f.current, f.pushed = false, false; x.c.Scheme == Allreduce && x.c.Design == SCOBNaive {
			continue // its turn comes with the next forward
		}
		if err := x.push(f); err != nil {
			return err
		}
	}
	return nil
}

// Finish ends the iteration's backward pass: it waits where the design has a
// phase to end.
func (x *Exchange) Finish() error {
	switch {
	case x.c.Together:
		return x.together()
	case x.eager, x.c.Scheme == Allreduce && x.c.Design != SCB:
		return nil
	}
	return x.waitAll()
}

func (x *Exchange) waitAll() error {
	for i := len(x.flows) - 1; i >= 0; i-- {
		if err := x.wait(x.flows[i]); err != nil {
			return err
		}
	}
	return nil
}

// together waits for all gradients and then uses them.
func (x *Exchange) together() error {
	for i := len(x.flows) - 1; i >= 0; i-- {
		f := x.flows[i]
		if !f.busy && !f.pushed {
			if err := x.push(f); err != nil { // put off
				return err
			}
		}
	}
	if err := x.waitAll(); err != nil || len(x.flows) == 0 {
		return err
	}
	if x.c.All != nil {
		if err := x.c.All(x.iter, x.flows[0].sync.Updates()); err != nil {
			return err
		}
	}
	for _, f := range x.flows {
		if err := x.use(f, x.iter); err != nil {
			return err
		}
		f.current = x.c.Scheme == Allreduce
	}
	if x.c.Design == SCOBR {
		return x.fetchAll()
	}
	return nil
}

// Updated waits until every update of the iterations so far has been made,
// where it is made: a snapshot may be written there.
func (x *Exchange) Updated() error {
	if x.c.Scheme == Allreduce {
		return x.Current()
	}
	return x.waitAll()
}

// Current waits until all parameters are current on this rank, and starts what
// brings them. All ranks must call it at the same point.
func (x *Exchange) Current() error {
	if err := x.fetchAll(); err != nil {
		return err
	}
	for _, f := range x.flows {
		if err := x.settle(f); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the helpers and the requests. What is under way is given up; the
// buffers stay in use until the engine has ended.
func (x *Exchange) Close() {
	x.cancel()
	for _, f := range x.flows {
		close(f.jobs)
	}
	x.helpers.Wait()
	for _, f := range x.flows {
		f.sync.Close()
	}
	x.flows = nil
}
