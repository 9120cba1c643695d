package nbc

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// DefaultDeadline bounds a collective where nobody says otherwise.
const DefaultDeadline = 2 * time.Minute

// Options of an engine; the zero value is good.
type Options struct {
	// Deadline bounds every execution of every request; 0 means
	// DefaultDeadline. A collective that outlasts it fails the engine, since
	// its peers cannot be trusted to be there any more.
	Deadline time.Duration
}

// Engine executes requests: one goroutine, locked to its OS thread, that
// makes every call to the transport and the device (S-Caffe section 4.2, the
// helper thread). A caller that does nothing but wait for the only request
// there is (Request.Run) takes its place meanwhile, which saves waking two
// threads.
type Engine struct {
	opts       Options
	transport  Transport
	device     Device
	scratch    scratch
	identities identities
	rank       int
	size       int

	mu        sync.Mutex
	starts    []*Request // submitted, not yet seen by the loop
	calls     []*call    // of Do, not yet begun
	closing   bool
	err       error         // why the engine failed, sticky
	pending   atomic.Bool   // starts, calls or closing hold something new
	hasFailed chan struct{} // closed when err is set
	finished  chan struct{} // closed when the loop has ended

	onNote atomic.Pointer[func(from int, text string)]

	// own is held by whoever turns the loop: the engine's goroutine or a caller.
	own   sync.Mutex
	mover Mover         // nil where the engine's goroutine alone may turn it
	lent  bool          // a caller has moved the transport to its thread
	stir  chan struct{} // ends the goroutine's sleep while nothing is under way
	idle  *time.Timer   // of that sleep

	// What follows belongs to whoever holds own.
	active []*Request // by slot; nil where free
	inUse  int
	taken  []*Request
	done   [64]Completion
	failed error
	links  []*link // by rank; nil for those of this node
	held   int     // sends held back
	orders uint64  // requests admitted

	notifier  Notifier // nil where the transport is none
	noticeBuf [NoticeRoom]byte
	history   history
	inquiries uint64         // how many there have been
	telling   sync.WaitGroup // goroutines that tell the other ranks of a failure
}

// call is a function for the thread that turns the loop.
type call struct {
	f      func() error
	result chan error
}

// blockedWait bounds how long Blocked waits for the thread that turns the loop.
const blockedWait = 200 * time.Millisecond

// Start starts an engine: open is called on the goroutine and OS thread that
// makes all later calls to the transport, as MPI libraries want it.
func Start(open func() (Transport, error), device Device, opts Options) (*Engine, error) {
	if opts.Deadline == 0 {
		opts.Deadline = DefaultDeadline
	}
	e := &Engine{opts: opts, device: device, hasFailed: make(chan struct{}), finished: make(chan struct{}), stir: make(chan struct{}, 1), idle: time.NewTimer(time.Hour)}
	opened := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(e.finished)
		t, err := open()
		if err != nil {
			opened <- err
			return
		}
		e.transport, e.rank, e.size = t, t.Rank(), t.Size()
		e.notifier, _ = t.(Notifier)
		if m, ok := t.(Mover); ok && m.Move() {
			e.mover = m
		}
		e.scratch.alloc, e.scratch.give = e.Alloc, e.Free
		e.makeLinks()
		opened <- nil
		e.loop()
	}()
	if err := <-opened; err != nil {
		return nil, err
	}
	return e, nil
}

// Rank returns this engine's rank, Size the number of ranks of its transport.
func (e *Engine) Rank() int { return e.rank }

// Size returns the number of ranks.
func (e *Engine) Size() int { return e.size }

// Nodes returns for every rank the index of its node: all 0 where the
// transport does not know.
func (e *Engine) Nodes() []int {
	if p, ok := e.transport.(Placed); ok {
		return p.Nodes()
	}
	return make([]int, e.size)
}

// Transport returns the transport, for what only one kind of it has. It belongs
// to the engine's thread: call its methods within Do.
func (e *Engine) Transport() Transport { return e.transport }

// HasLibrary reports whether PrepareLibrary works.
func (e *Engine) HasLibrary() bool {
	_, ok := e.transport.(Library)
	return ok
}

// Alloc returns n zeroed bytes of the memory that the transport moves best.
func (e *Engine) Alloc(n int) (mem.Buffer, error) {
	if a, ok := e.transport.(Allocator); ok && n > 0 {
		return a.Alloc(n)
	}
	return mem.TryAlloc(n)
}

// Free gives back what Alloc returned.
func (e *Engine) Free(b mem.Buffer) {
	if a, ok := e.transport.(Allocator); ok && b.Len() > 0 {
		a.Free(b)
		return
	}
	b.Free()
}

// Do runs f on the thread that the transport belongs to, between messages, and
// returns what it returns. Set-up code that must talk to MPI itself uses it;
// nothing progresses meanwhile. Like Request.Run it takes the engine over where
// nothing else is under way: then that is the caller's thread.
//
// Where ctx ends before f has begun, f never runs, and Do returns the context's
// error. An f that has begun is waited for.
func (e *Engine) Do(ctx context.Context, f func() error) error {
	if done, err := e.doHere(f); done {
		return err
	}
	c, err := e.enqueue(f)
	if err != nil {
		return err
	}
	select {
	case err := <-c.result:
		return err
	case <-ctx.Done():
	}
	if e.takeBack(c) {
		return fmt.Errorf("nbc: the engine's thread did not come to a call: %w", context.Cause(ctx))
	}
	return <-c.result
}

// enqueue hands f to the loop.
func (e *Engine) enqueue(f func() error) (*call, error) {
	c := &call{f, make(chan error, 1)}
	e.mu.Lock()
	if e.closing {
		e.mu.Unlock()
		return nil, ErrClosed
	}
	e.calls = append(e.calls, c)
	e.mu.Unlock()
	e.wake()
	return c, nil
}

// takeBack takes a call out of the queue, and reports whether it was there.
func (e *Engine) takeBack(c *call) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := slices.Index(e.calls, c)
	if i >= 0 {
		e.calls = slices.Delete(e.calls, i, i+1)
	}
	return i >= 0
}

// nextCall takes the oldest call out of the queue, nil if there is none.
func (e *Engine) nextCall() *call {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.calls) == 0 {
		return nil
	}
	c := e.calls[0]
	e.calls = slices.Delete(e.calls, 0, 1)
	return c
}

// Err returns why the engine failed, nil while it works.
func (e *Engine) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// Blocked returns what this rank waits for at the moment: nothing where that
// cannot be learned within a fifth of a second, since a function given to Do
// keeps the engine's thread.
func (e *Engine) Blocked() []Edge {
	ctx, cancel := context.WithTimeout(context.Background(), blockedWait)
	defer cancel()
	var edges []Edge
	_ = e.Do(ctx, func() error {
		edges = e.edges()
		return nil
	})
	return edges
}

// Abort ends every request here and on all other ranks, which learn the
// reason. It returns when they are told or ctx ends, whatever the engine's
// thread does: where that comes later, so does the rest.
func (e *Engine) Abort(ctx context.Context, reason string) error {
	give := func() error {
		e.fail(&AbortError{Rank: e.rank, Reason: reason})
		return nil
	}
	if done, _ := e.doHere(give); !done {
		c, err := e.enqueue(give)
		if err != nil {
			return err
		}
		select {
		case <-c.result:
		case <-ctx.Done():
		}
	}
	return e.transport.Abort(ctx, reason) // which the loop sends: it turns on
}

// Close ends the engine; requests under way end with ErrClosed. It may be
// called twice.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closing = true
	e.mu.Unlock()
	e.wake()
	<-e.finished
	return nil
}

func (e *Engine) wake() {
	e.pending.Store(true)
	e.transport.Wake()
	e.stirLoop()
}

func (e *Engine) stirLoop() {
	select {
	case e.stir <- struct{}{}:
	default:
	}
}

// submit hands a request to the loop.
func (e *Engine) submit(r *Request) error {
	e.mu.Lock()
	err := e.err
	if e.closing {
		err = ErrClosed
	}
	if err == nil {
		e.starts = append(e.starts, r)
	}
	e.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("%s cannot start: %w", r.bind.name(), err)
		r.end(err)
		return err
	}
	e.wake()
	return nil
}

// takeNew takes what was submitted since the last call, and reports whether
// the loop is to go on.
func (e *Engine) takeNew() bool {
	e.pending.Store(false)
	e.mu.Lock()
	e.taken, e.starts = e.starts, e.taken[:0]
	calls, closing := len(e.calls), e.closing
	e.mu.Unlock()
	for _, r := range e.taken {
		e.admit(r)
	}
	for ; calls > 0; calls-- {
		if c := e.nextCall(); c != nil { // otherwise its caller has taken it back
			c.result <- c.f()
		}
	}
	return !closing
}

// admit gives r a slot and makes its first ops ready.
func (e *Engine) admit(r *Request) {
	if e.failed != nil {
		r.end(e.failed)
		return
	}
	slot := slices.Index(e.active, nil)
	if slot < 0 {
		slot = len(e.active)
		e.active = append(e.active, nil)
	}
	r.slot = uint32(slot)
	e.orders++
	r.order = e.orders
	r.reset(time.Now())
	e.history.last = called{r.bind.Name, r.bind.Instance}
	if r.left == 0 { // no elements
		e.ended(r)
		return
	}
	e.active[slot] = r
	e.inUse++
}

// ended ends r, which has done all its ops.
func (e *Engine) ended(r *Request) {
	e.history.add(r)
	r.end(nil)
}

// progress posts what is ready and takes what has ended; it reports whether
// there was anything.
func (e *Engine) progress() bool {
	moved := false
	for _, r := range e.active {
		if r != nil && r.head < len(r.queue) {
			moved = true
			e.post(r)
		}
	}
	moved = e.fill() || moved
	if moved && e.inUse == 0 {
		return true // all has ended at once: a caller may be waiting for that
	}
	n, err := e.transport.Poll(e.done[:])
	if err != nil {
		e.fail(err)
		return false
	}
	for _, c := range e.done[:n] {
		e.received(c)
	}
	m, err := e.device.Poll(e.done[:])
	if err != nil {
		e.fail(err)
		return false
	}
	for _, c := range e.done[:m] {
		e.combined(c)
	}
	return moved || n+m > 0
}

// post begins the ready ops of r.
func (e *Engine) post(r *Request) {
	for r.head < len(r.queue) && e.failed == nil {
		i := r.queue[r.head]
		r.head++
		r.state[i] = opPosted
		if l := e.linkTo(r, &r.plan.schedule.Ops[i]); l != nil {
			e.hold(l, r, i)
		} else {
			e.start(r, i)
		}
	}
}

// start begins op i of r.
func (e *Engine) start(r *Request, i int32) {
	if done, err := e.begin(r, i); err != nil {
		op := &r.plan.schedule.Ops[i]
		e.failAndTell(fmt.Errorf("%s, op %d (%s): %w", r.bind.name(), i, op, err))
	} else if done {
		e.complete(r, i)
	}
}

// begin begins op i of r and reports whether it is done already.
func (e *Engine) begin(r *Request, i int32) (done bool, err error) {
	op := &r.plan.schedule.Ops[i]
	tok := r.token(i)
	if r.library != nil {
		return false, e.transport.(Library).Begin(tok, *r.library)
	}
	switch op.Kind {
	case schedule.Copy:
		return e.device.Copy(tok, r.bytes(op.Dst), r.bytes(op.Src))
	case schedule.Scale:
		return e.device.Divide(tok, r.bind.Datatype, r.bytes(op.Dst), r.bytes(op.Src), r.bind.Scale)
	}
	tag := Tag{Comm: r.bind.Comm, Instance: r.bind.Instance, Message: uint32(op.Msg), Fingerprint: r.print}
	peer := r.peer(op.Peer)
	switch op.Kind {
	case schedule.Send:
		return false, e.transport.Send(tok, peer, tag, r.bytes(op.Src))
	case schedule.Recv:
		return false, e.transport.Recv(tok, peer, tag, r.bytes(op.Dst))
	case schedule.RecvReduce:
		return false, e.transport.RecvBorrow(tok, peer, tag, r.bind.Datatype.Bytes(op.Dst.Len))
	}
	return false, fmt.Errorf("unknown op kind %v", op.Kind)
}

// received takes a completion from the transport.
func (e *Engine) received(c Completion) {
	r, i := e.lookup(c.Token)
	if r == nil {
		return // of a request that has failed
	}
	op := &r.plan.schedule.Ops[i]
	if l := e.linkTo(r, op); l != nil {
		e.sent(l)
	}
	err := c.Err
	done := true
	if err == nil && op.Kind == schedule.RecvReduce && r.library == nil {
		done, err = e.device.Reduce(c.Token, r.bind.Datatype, r.bind.Op, r.bytes(op.Dst), c.Data, r.bytes(op.Src))
		if done {
			e.transport.Release(c.Token)
		}
	}
	if err != nil {
		e.suspect(r, r.peer(op.Peer), fmt.Errorf("%s, op %d (%s): %w", r.bind.name(), i, op, err))
		return
	}
	if done {
		e.complete(r, i)
	}
}

// combined takes a completion from the device.
func (e *Engine) combined(c Completion) {
	r, i := e.lookup(c.Token)
	if r == nil {
		return
	}
	if r.plan.schedule.Ops[i].Kind == schedule.RecvReduce && !r.divided {
		e.transport.Release(c.Token)
	}
	switch {
	case c.Err != nil:
		e.failAndTell(fmt.Errorf("%s, op %d (%s): %w", r.bind.name(), i, &r.plan.schedule.Ops[i], c.Err))
	case r.divided:
		e.finish(r)
	default:
		e.complete(r, i)
	}
}

func (e *Engine) lookup(tok Token) (*Request, int32) {
	slot := int(tok >> 32)
	if e.failed != nil || slot >= len(e.active) || e.active[slot] == nil {
		return nil, 0
	}
	return e.active[slot], int32(uint32(tok))
}

// complete marks op i of r done, and r with its last op.
func (e *Engine) complete(r *Request, i int32) {
	r.complete(i)
	if r.left > 0 {
		return
	}
	done, err := true, error(nil)
	if r.bind.Divide > 0 {
		dt := r.bind.Datatype
		r.divided = true
		done, err = e.device.Divide(r.token(i), dt, r.bind.Out, r.bind.Out, r.bind.Divide)
	}
	if err != nil {
		e.failAndTell(fmt.Errorf("%s: dividing the sum: %w", r.bind.name(), err))
	} else if done {
		e.finish(r)
	}
}

// finish ends r in success.
func (e *Engine) finish(r *Request) {
	e.active[r.slot] = nil
	e.inUse--
	e.ended(r)
}

// fail ends every request with err; the engine starts no more.
func (e *Engine) fail(err error) {
	if e.failed != nil {
		return
	}
	e.failed = err
	e.clearLinks()
	e.mu.Lock()
	e.err = err
	e.mu.Unlock()
	close(e.hasFailed)
	for slot, r := range e.active {
		if r != nil {
			e.active[slot] = nil
			r.end(r.failure(e.rank, err))
		}
	}
	e.inUse = 0
}

// failAndTell fails the engine, and tells the other ranks.
func (e *Engine) failAndTell(err error) {
	if e.failed != nil {
		return
	}
	e.fail(err)
	e.telling.Go(func() { // the loop must go on polling for the notice to leave
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = e.transport.Abort(ctx, err.Error())
	})
}

// rest returns how long the loop may sleep when nothing moves.
func (e *Engine) rest() time.Duration {
	if e.inUse == 0 && e.failed == nil {
		return time.Hour
	}
	if e.held > 0 {
		return linkPatience
	}
	return 20 * time.Millisecond
}

func (e *Engine) edges() []Edge {
	var edges []Edge
	for _, r := range e.active {
		if r != nil {
			edges = append(edges, r.edges(e.rank)...)
		}
	}
	return edges
}
