package exchange

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/syncer/dgc"
	"github.com/scaffe/scaffe/syncer/ps"
	"github.com/scaffe/scaffe/trace"
)

// Config says what to exchange and how. Design, Scheme, Schemes, Spec, Bucket, Slice,
// Root, Book, UpdateAtOnce and the layers must be alike on all ranks.
type Config struct {
	Design Design
	// Scheme is that of all layers, unless Schemes has one for each of Layers. The
	// zero value, Auto, is Reduce: an exchange executes what Choose has come to.
	Scheme  Scheme
	Schemes []Scheme
	// Book is needed by PS and Adam: it has the servers, and New deals its pairs for the buckets
	// (Book.Deal). Its layers are those of Layers that have parameters.
	Book *coordinator.Book
	// Spec, unless it has no levels, is how the collectives are done. Those of PS and Adam
	// are always linear (package syncer/ps).
	Spec spec.Spec
	// Bucket is the least size of a bucket in bytes; 0 means AutoBucket's, by scheme.
	Bucket int
	// Buckets, unless nil, are what AutoBucket has come to by scheme: another exchange's of
	// the same layers (MinBuckets).
	Buckets map[Scheme]int
	// Slice is what buckets of Reduce and Allreduce are cut into, whose parts are summed, updated and
	// pulled by themselves; those of PS are Book's pairs.
	Slice coordinator.Slice
	// Credit, unless 0, is how many slices, or large messages that come to so many bytes, are under way to other nodes together, whichever
	// these are, those of the first buckets first (collectives.Credit, coordinator.Slice.CreditBytes).
	Credit int
	// FirstCome has all buckets be equally urgent: what is handed over first goes first, of what is pushed, and then of what is pulled.
	FirstCome bool
	// Team says who works; nil means all ranks. Ranks that only serve take part in what
	// moves by PS and Adam alone, and call the same methods as the others, without computing.
	Team *syncer.Team
	// Root updates with the scheme Reduce: the number of a worker.
	Root int
	// Layers are those of the net, in forward order.
	Layers []Layer
	// Data and Diff are the packed parameters and gradients, float32, equally
	// long, best from the communicator's Alloc. With the schemes Reduce and Allreduce alone they may lie in a GPU's
	// memory, from AllocIn.
	Data, Diff mem.Buffer
	// Queues, unless nil, are the GPU's that computes them: AfterBackward says that a layer's gradients have been begun, OnSum
	// that the part's update has, and what is pushed and pulled waits for these by itself.
	Queues syncer.Queues
	// OnSum is called when the gradients of a part of a bucket have been summed.
	// Where this rank has the sum (Updates), the part's parameters are to be updated
	// by it; elsewhere the gradients are of no more use. In either case the next
	// backward finds in Diff what OnSum leaves there. It runs on the bucket's
	// goroutine, at the same time as the computing goroutine and other buckets.
	OnSum func(iter int, s Sum) error
	// UpdateAtOnce asks that no bucket is updated before all sums have arrived,
	// for updates that depend on all gradients (clipping). OnSum then runs on the
	// computing goroutine, in Finish, after BeforeUpdates.
	UpdateAtOnce bool
	// BeforeUpdates, which may be nil, is called with UpdateAtOnce when all sums
	// have arrived, before the first OnSum, with the sums that this rank is to update by,
	// ascending.
	BeforeUpdates func(iter int, own []Sum) error
	// Momentum, and what part of the gradients is sent, with the scheme DGC; Clip, unless nil, returns in an iteration
	// whose backward pass has ended what this rank's gradients are multiplied with before any of them is
	// sent (dgc.Syncer.Scale): all layers go by DGC then.
	Momentum float32
	Sparse   *coordinator.Sparse
	Clip     func() float32
	// Links, unless nil, have each worker be in step with the servers alone (ps.Links), which take what is
	// pushed: no Sum is OnSum's to update by. All layers go by PS then.
	Links *ps.Links
	// Events, unless nil, takes what moves and what is waited for: Push, Pull,
	// WaitPush and WaitPull.
	Events trace.Sink
	// Disorder, unless nil, takes what does not go in the order of urgency on this rank while the exchange is there: Overtaken and LetGo, in
	// the iteration that has started last.
	Disorder trace.Sink
}

// Exchange keeps the replicas of a net's parameters in step. Its methods are
// for the one goroutine that computes.
type Exchange struct {
	c       Config
	whole   *collectives.Comm
	team    *syncer.Team
	alone   bool             // there is one rank
	min     map[Scheme]int   // bytes of a bucket
	buckets []Bucket         // as the net is cut
	moved   []*bucketState   // what moves as one: each bucket, or neighbors packed
	pairs   []ps.Pair        // of the buckets of PS and Adam, in the packed buffers
	own     []Sum            // what this rank updates by
	owner   []*bucketState   // by layer; nil where it has no parameters
	uses    [][]*bucketState // by layer: what must be current before its forward
	factors []putter         // by layer; none but for SFB's and Adam's
	asking  *ps.Asking       // nil unless parameters are asked for (coordinator.PullRequest)

	ctx        context.Context
	cancel     context.CancelFunc
	goroutines sync.WaitGroup

	iter  int
	now   atomic.Int32 // iter, for goroutines that do not compute
	begun bool         // the first iteration has
	left  int          // layers whose backward has not ended
	clip  struct {
		iter  int // whose scale is known; below 0: none's
		scale float32
	}
	err error // the first failure, after which nothing starts any more
}

// New makes the exchange, which lives no longer than ctx. It is a collective,
// in that all ranks must make it in the same order among their collectives; it
// moves no parameters yet. With the scheme Reduce, Data is current at the root alone
// and the first Start brings it to the other workers; with other schemes it must be equal
// on all ranks already.
func New(ctx context.Context, comm *collectives.Comm, c Config) (*Exchange, error) {
	x := &Exchange{whole: comm, team: c.Team, alone: comm.Size() == 1, min: c.Buckets}
	if x.team == nil {
		x.team = syncer.Everyone(comm)
	}
	x.clip.iter = -1
	if x.alone { // nothing to overlap: all work is the computing goroutine's
		c.Design, c.UpdateAtOnce, c.Slice = SCB, true, coordinator.LayerSlice
	}
	if c.Scheme == Auto {
		c.Scheme = Reduce
	}
	if c.Events == nil {
		c.Events = trace.Sinks{}
	}
	x.c = c
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("exchange: %w", err)
	}
	if err := x.cut(); err != nil {
		return nil, fmt.Errorf("exchange: %w", err)
	}
	x.ctx, x.cancel = context.WithCancel(ctx)
	if err := x.prepare(); err != nil {
		x.Close()
		return nil, err
	}
	return x, nil
}

// check refuses schemes that layers, or where these lie, cannot have.
func (c *Config) check() error {
	if c.Schemes != nil && len(c.Schemes) != len(c.Layers) {
		return fmt.Errorf("schemes of %d layers, where there are %d", len(c.Schemes), len(c.Layers))
	}
	for i := range c.Layers {
		l, s := &c.Layers[i], c.schemeOf(i)
		switch {
		case len(l.Params) == 0:
		case c.Diff.Space() != mem.Host && !OnDevice(s):
			return fmt.Errorf("layer %q goes by %v, where gradients and parameters lie in %v memory: that is for reduce and allreduce", l.Name, s, c.Diff.Space())
		case c.Clip != nil && s != DGC:
			return fmt.Errorf("layer %q goes by %v, where gradients are clipped before they are sent", l.Name, s)
		case s.FactorsOnly() && l.Factors == nil:
			return fmt.Errorf("layer %q cannot go by %v: it has no sufficient factors", l.Name, s)
		}
	}
	return nil
}

// cut makes the buckets, and deals what servers hold.
func (x *Exchange) cut() (err error) {
	if x.min == nil {
		if x.min, err = x.leastBuckets(x.whole.Selector()); err != nil {
			return err
		}
	}
	if x.buckets, err = divide(x.c.Layers, x.c.schemeOf, x.c.Data.Len()/mem.Float32.Size(), x.min); err != nil {
		return err
	}
	return x.deal()
}

// prepare makes the buckets' requests and goroutines. It is a collective.
func (x *Exchange) prepare() (err error) {
	if slices.ContainsFunc(x.buckets, func(b Bucket) bool { return b.Scheme == PS }) && x.c.Book.Pull == coordinator.PullRequest && !x.alone {
		if x.asking, err = ps.NewAsking(x.ctx, x.team, x.c.Book.Servers); err != nil {
			return err
		}
	}
	if err := x.makeBuckets(); err != nil {
		return err
	}
	if x.c.Disorder != nil {
		x.whole.HandleDisorder(x.disorder)
	}
	return nil
}

// OnDevice reports whether what goes by a scheme may lie in a GPU's memory (Config.Data): all of it moves in collectives on whole
// buckets. Others' servers and owners compute on the host.
func OnDevice(s Scheme) bool { return s == Reduce || s == Allreduce }

// disorder adds what did not go in order to the timeline. It runs on the engine's goroutine.
func (x *Exchange) disorder(d nbc.Disorder) {
	kind := trace.Overtaken
	if d.Kind == nbc.LetGo {
		kind = trace.LetGo
	}
	x.c.Disorder.Add(trace.Event{Kind: kind, Name: d.What, Iter: x.now.Load(), Begin: d.Begin, End: d.End})
}

// schemeOf returns the scheme of a layer.
func (c *Config) schemeOf(layer int) Scheme {
	if c.Schemes != nil {
		return c.Schemes[layer]
	}
	return c.Scheme
}

// Buckets returns how the net is cut, in forward order.
func (x *Exchange) Buckets() []Bucket { return x.buckets }

// MinBucket returns the least size of a bucket in bytes, asked for or chosen; of several schemes
// the largest.
func (x *Exchange) MinBucket() int {
	most := 0
	for _, size := range x.min {
		most = max(most, size)
	}
	return most
}

// MinBuckets returns it by scheme. It is for reading.
func (x *Exchange) MinBuckets() map[Scheme]int { return x.min }

// Own returns what this rank updates, ascending.
func (x *Exchange) Own() []Sum { return x.own }

// Start begins iteration iter.
func (x *Exchange) Start(iter int) error {
	x.iter, x.left = iter, 0
	x.now.Store(int32(iter))
	for _, b := range x.moved {
		b.left = b.layers
		x.left += b.layers
	}
	if !x.begun { // the first parameters, which follow no sum
		for _, b := range x.moved {
			if b.policy.pullAt == oneAhead {
				continue
			}
			if err := x.startDue(b); err != nil {
				return err
			}
		}
	}
	x.begun = true
	if err := x.reach(atStart, x.moved); err != nil {
		return err
	}
	return x.reachOneAhead(0)
}

// BeforeForward waits until the parameters that a layer uses are current, and
// for no others.
func (x *Exchange) BeforeForward(layer int) error {
	for _, b := range x.uses[layer] {
		if err := x.awaitCurrent(b); err != nil {
			return err
		}
	}
	if b := x.owner[layer]; b != nil {
		return x.reachOneAhead(b.Index + 1)
	}
	return nil
}

// AfterPass says that the backward of a layer has ended in one of the passes whose
// gradients are summed, the last included: there are factors of it, where the layer
// goes by SFB or Adam.
func (x *Exchange) AfterPass(layer, pass int) {
	if f := x.factors[layer]; f.sync != nil {
		f.sync.Put(f.matrix, pass)
	}
}

// AfterBackward says that a layer's gradients are complete.
func (x *Exchange) AfterBackward(layer int) error {
	b := x.owner[layer]
	if b == nil {
		return nil
	}
	x.left--
	b.left--
	if b.left == 0 {
		b.state, b.complete = stale, x.iter
		if err := x.reach(afterLayers, x.moved[b.Index:b.Index+1]); err != nil {
			return err
		}
	}
	if x.left > 0 {
		return nil
	}
	return x.reach(afterBackward, x.moved)
}

// Finish ends the iteration's passes. With UpdateAtOnce the updates are made
// here.
func (x *Exchange) Finish() error { return x.reach(atFinish, x.moved) }

// reachOneAhead says that bucket i is the next that the forward pass comes to.
func (x *Exchange) reachOneAhead(i int) error {
	if i >= len(x.moved) {
		return nil
	}
	return x.reach(oneAhead, x.moved[i:i+1])
}

// reach does what the policy says for some buckets at a point: it starts pushes,
// waits for sums, starts pulls, waits for parameters. Gradients go in the order
// of the backward pass, parameters in that of the forward pass.
func (x *Exchange) reach(p point, bs []*bucketState) error {
	for _, b := range slices.Backward(bs) {
		if p == b.policy.pushAt && b.state == stale {
			if err := x.push(b); err != nil {
				return err
			}
		}
	}
	if err := x.awaitSums(p, bs); err != nil {
		return err
	}
	for _, b := range bs {
		if p == b.policy.pullAt && b.state == summed {
			if err := x.pull(b); err != nil {
				return err
			}
		}
	}
	for _, b := range bs {
		if p == b.policy.pullAwaitedAt {
			if err := x.awaitCurrent(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitSums waits for what is on its way where the policy says so at p, and updates
// where that is done at once: at Finish, for all buckets.
func (x *Exchange) awaitSums(p point, bs []*bucketState) error {
	for _, b := range slices.Backward(bs) {
		if p != b.policy.pushAwaitedAt {
			continue
		}
		if err := x.await(b); err != nil {
			return err
		}
	}
	if !x.c.UpdateAtOnce || p != atFinish || len(bs) == 0 {
		return nil
	}
	if x.c.BeforeUpdates != nil {
		if err := x.c.BeforeUpdates(x.iter, x.own); err != nil {
			return err
		}
	}
	for _, b := range bs {
		for part := range b.sums {
			if err := x.use(b, x.iter, part); err != nil {
				return err
			}
		}
		b.state = b.afterUse()
	}
	return nil
}

// afterUse is the state of a bucket whose sum has been used.
func (b *bucketState) afterUse() state {
	if b.policy.pullAt == never { // every rank has updated
		return current
	}
	return summed
}

// push starts to sum b's gradients.
func (x *Exchange) push(b *bucketState) error {
	if x.err != nil {
		return x.err
	}
	begin := time.Now()
	if s, ok := b.sync.(*dgc.Syncer); ok {
		s.Iteration(b.complete)
		if x.c.Clip != nil {
			if x.clip.iter != b.complete {
				x.clip.iter, x.clip.scale = b.complete, x.c.Clip()
			}
			s.Scale(x.clip.scale)
		}
	}
	if x.err = b.sync.Push(); x.err != nil {
		return x.err
	}
	b.state = pushing
	x.submit(b, job{iter: b.complete, push: true, begin: begin})
	return nil
}

// pull starts to bring b's parameters.
func (x *Exchange) pull(b *bucketState) error {
	if x.err != nil {
		return x.err
	}
	begin := time.Now()
	for part := range b.sums {
		if x.err = b.sync.Pull(part); x.err != nil {
			return x.err
		}
	}
	b.state = pulling
	x.submit(b, job{iter: x.iter, begin: begin})
	return nil
}

// submit gives b's goroutine a job.
func (x *Exchange) submit(b *bucketState, j job) {
	b.iter = j.iter
	if x.alone { // it has ended already
		b.done <- x.do(b, j)
		return
	}
	b.jobs <- j
}

// await waits until b's goroutine has done its job, if it has one.
func (x *Exchange) await(b *bucketState) error {
	if !b.busy() {
		return nil
	}
	begin := time.Now()
	var err error
	select {
	case err = <-b.done:
	default: // it has not ended yet
		err = <-b.done
		x.waited(b, begin, time.Now())
	}
	switch {
	case err != nil:
		x.err, b.state = err, stale // no matter: nothing starts any more
		return err
	case b.state == pulling, b.policy.pullAt == onSum:
		b.state = current
	case x.c.UpdateAtOnce:
		b.state = summed
	default:
		b.state = b.afterUse()
	}
	return nil
}

// waited accounts for a wait, which may have been for a push and then for the
// pull that followed it.
func (x *Exchange) waited(b *bucketState, begin, end time.Time) {
	add := func(kind trace.Kind, begin, end time.Time) {
		if end.After(begin) {
			x.c.Events.Add(trace.Event{Kind: kind, Name: b.Name, Iter: int32(b.iter), Bucket: int32(b.Index), Begin: begin, End: end})
		}
	}
	turn := begin
	if b.state == pushing {
		if begin.Before(b.beganAt) { // until then it was computation that was waited for
			begin = b.beganAt
		}
		turn = end
		if b.policy.pullAt == onSum && b.summedAt.Before(end) {
			turn = b.summedAt
		}
		if turn.Before(begin) {
			turn = begin
		}
	}
	add(trace.WaitPush, begin, turn)
	add(trace.WaitPull, turn, end)
}

// startDue starts what brings b nearer to current, unless that is under way.
func (x *Exchange) startDue(b *bucketState) error {
	switch b.state {
	case stale: // a push that was put off
		return x.push(b)
	case summed:
		return x.pull(b)
	}
	return nil
}

// awaitCurrent waits until b is current.
func (x *Exchange) awaitCurrent(b *bucketState) error {
	for b.state != current {
		if err := x.startDue(b); err != nil {
			return err
		}
		if err := x.await(b); err != nil {
			return err
		}
	}
	return nil
}

// Updated waits until every update of the iterations so far has been made,
// where it is made: a snapshot may be written there.
func (x *Exchange) Updated() error {
	for _, b := range x.moved {
		if b.Scheme != Reduce { // one whose sum may be awaited before forward
			return x.Current()
		}
	}
	for _, b := range slices.Backward(x.moved) {
		if err := x.await(b); err != nil {
			return err
		}
	}
	return nil
}

// Current waits until all parameters are current on this rank, on one that only serves
// those that it serves, and starts what brings them. All ranks must call it at the same
// point.
func (x *Exchange) Current() error {
	for _, b := range x.moved {
		if err := x.startDue(b); err != nil {
			return err
		}
	}
	for _, b := range x.moved {
		if err := x.awaitCurrent(b); err != nil {
			return err
		}
	}
	return nil
}

// Outdated says that parameters have been updated where they are, though by no push: the next Current
// brings them. Nothing may be under way.
func (x *Exchange) Outdated() {
	for _, b := range x.moved {
		b.state = b.afterUse()
	}
}

// Close ends the buckets' goroutines and the requests. What is under way is given
// up; the buffers stay in use until the engine has ended.
func (x *Exchange) Close() {
	if x.c.Disorder != nil {
		x.whole.HandleDisorder(nil)
	}
	x.cancel()
	for _, b := range x.moved {
		close(b.jobs)
	}
	x.goroutines.Wait()
	for _, b := range x.moved {
		b.sync.Close()
	}
	x.asking.Close()
	x.moved, x.asking = nil, nil
}
