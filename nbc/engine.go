package nbc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/scaffe/scaffe/internal/passage"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc/internal/backoff"
	"github.com/scaffe/scaffe/schedule"
)

// What bounds a collective where Options and Binding do not say otherwise.
const (
	DefaultDeadline    = 2 * time.Minute
	DefaultMaxDeadline = 30 * time.Minute
)

// Options of an engine; the zero value is good.
type Options struct {
	// Deadline bounds every execution of every request whose Binding has no
	// deadline; 0 means DefaultDeadline. A collective that outlasts it fails
	// the engine, since its peers cannot be trusted to be there any more.
	Deadline time.Duration
	// MaxDeadline takes the place of Deadline while the ranks that a
	// collective waits for answer that they have not come to it yet: they
	// compute, or write a file; of a guest's collectives always, since its ranks answer within calls
	// alone. 0 means DefaultMaxDeadline; at least Deadline.
	MaxDeadline time.Duration
	// Warn, unless nil, is told on rank 0 when a collective is waited for
	// beyond Deadline, on a separate goroutine; of a patient engine on every rank that waits.
	Warn func(text string)
	// Exit, unless nil, takes the place of printing err on stderr and ending the
	// process, with status 1, where a rank does not come out of a blocking collective
	// of the MPI library (LibraryCall.Blocking).
	Exit func(err error)
	// Patient says that a program waits for its peers as long as it likes: what a collective waits for beyond Deadline is
	// said (Warn), on every rank that waits, and only MaxDeadline ends it. A guest is patient.
	Patient bool
	// Guest says that the engine has no thread: all is done within calls, on the threads that make them. See
	// the file guest.go.
	Guest bool
}

// Engine executes requests: one goroutine, locked to its OS thread, that makes
// the calls to the transport and the device (the progress thread; S-Caffe
// section 4.3 calls it the helper thread). A caller that does nothing but wait
// for the only request there is (Request.Run) takes its place meanwhile, which
// saves waking two threads.
//
// The executor decides which ops may begin, the linkQueue which large send goes
// next, the stallMonitor what has stalled; the Engine connects them with the
// transport and the device.
type Engine struct {
	opts       Options
	transport  Transport
	device     Device
	scratch    [2]scratch // of host memory, and of the accelerator's
	identities identities
	watchdog   *watchdog
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

	onNote     atomic.Pointer[func(from int, text string)]
	onDisorder atomic.Pointer[func(Disorder)]

	payloadOut, payloadIn atomic.Int64  // see Payload
	copies                atomic.Uint32 // numbers those of Copy

	// loopLock is held by the goroutine that runs the loop: the engine's or a
	// caller.
	loopLock  sync.Mutex
	expecter  Expecter       // the transport, where it is one
	expected  *Request       // of which it was told last
	sums      Expecter       // the device, where it is one
	folder    Folder         // the device, where it is one
	spreader  Spreader       // likewise
	placer    Placer         // the transport, where it is one
	lander    Lander         // likewise
	operands  []mem.Buffer   // of one addition
	places    []mem.Buffer   // of its sum
	eager     Eager          // nil where no request is executed alone
	naps      bool           // the goroutine naps, and so looks after requests that linger, or are left to their callers
	left      atomic.Int32   // whether what is under way is left to its caller; see startHere
	wanted    atomic.Int32   // how many goroutines ask for the loop; see takeOver
	migrator  ThreadMigrator // nil where the engine's goroutine alone may turn it
	waiter    Waiter         // nil where the transport is none
	waits     bool           // it is that of a blocking call who turns the loop
	offered   int            // how often the core has been since something moved; see partly
	looks     int            // how often the loop has looked for the rest of what an accelerator is to add; see partlyThere
	binder    ThreadMigrator // the device, where its calls are bound to a thread; nil otherwise
	other     Accelerator    // the device, where it is one and the transport carries what lies in its memory; nil otherwise
	carrier   Carrier        // likewise the transport
	wakers    [8]waker       // by the contexts whose end wakes who turns the loop; see wakeAtEnd
	nextWaker int
	hasty     bool            // ranks are on several nodes: the goroutine takes a core from who computes as soon as it wakes
	migrated  bool            // a caller has taken transport and device to its thread
	wakeIdle  chan struct{}   // ends the goroutine's sleep while nothing is under way, where that is no nap of the transport's
	idle      *time.Timer     // of that sleep
	slept     passage.Passage // of the goroutine, when it does not turn the loop

	// What follows is guarded by loopLock.
	exec executor
	// Requests that were begun alone and are not handed to the loop yet, in the order of
	// their starts.
	lingering []*Request
	links     linkQueue
	stalls    stallMonitor
	held      []*Request // the library's blocking calls that wait until they are alone
	after     []*Request // submitted, and their events have not passed: see event.go
	taken     []*Request
	done      [64]Completion
	summed    int             // bytes, since the transport was last asked what has arrived
	looked    time.Time       // when the loop last looked at the clock
	turned    passage.Passage // of whoever turns the loop
	failed    error
	told      chan struct{} // closed when the other ranks know of a failure of this one's own; nil: there is none
	ending    bool          // Close was called
}

// blockedWait bounds how long Blocked waits for the thread that turns the loop.
const blockedWait = 200 * time.Millisecond

// Start starts an engine: open is called on the goroutine and OS thread that
// makes all later calls to the transport, as MPI libraries want it.
func Start(open func() (Transport, error), device Device, opts Options) (*Engine, error) {
	return StartWith(func() (Transport, Device, error) {
		t, err := open()
		return t, device, err
	}, opts)
}

// StartWith is Start where the device depends on the transport, as a rank's GPU does on its place
// on the node.
func StartWith(open func() (Transport, Device, error), opts Options) (*Engine, error) {
	if opts.Deadline == 0 {
		opts.Deadline = DefaultDeadline
	}
	if opts.MaxDeadline == 0 {
		opts.MaxDeadline = DefaultMaxDeadline
	}
	opts.MaxDeadline = max(opts.MaxDeadline, opts.Deadline)
	e := &Engine{
		opts: opts, hasFailed: make(chan struct{}), finished: make(chan struct{}),
		wakeIdle: make(chan struct{}, 1), idle: time.NewTimer(time.Hour),
	}
	if opts.Guest {
		if err := e.open(open); err != nil {
			return nil, err
		}
		return e, nil
	}
	opened := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(e.finished)
		err := e.open(open)
		if err == nil {
			// A large message passes a network only as fast as the threads at both ends look, also on cores where others
			// compute: an allreduce of 4 MiB over two lab nodes, 35 ms, beside a computation as long took 57 ms without this,
			// with it 43 (AMD EPYC, Zen 4).
			if e.hasty = slices.Max(e.Nodes()) > 0; e.hasty {
				defer backoff.RunAtOnce()()
			}
		}
		opened <- err
		if err == nil {
			e.loop()
		}
	}()
	if err := <-opened; err != nil {
		return nil, err
	}
	return e, nil
}

// open opens the transport, and connects it with the engine's parts.
func (e *Engine) open(open func() (Transport, Device, error)) error {
	t, device, err := open()
	if err != nil {
		return err
	}
	e.transport, e.device, e.rank, e.size = t, device, t.Rank(), t.Size()
	e.stalls = stallMonitor{rank: e.rank, size: e.size, exec: &e.exec, identities: &e.identities, warn: e.opts.Warn, note: e.note, patient: e.opts.Patient || e.opts.Guest}
	e.stalls.notifier, _ = t.(Notifier)
	if _, ok := e.device.(Immediate); ok {
		e.eager, _ = t.(Eager)
	}
	e.binder, _ = e.device.(ThreadMigrator)
	e.expecter, _ = t.(Expecter)
	e.waiter, _ = t.(Waiter)
	e.sums, _ = e.device.(Expecter)
	e.folder, _ = e.device.(Folder)
	e.spreader, _ = e.device.(Spreader)
	e.placer, _ = t.(Placer)
	e.lander, _ = t.(Lander)
	e.exec.folds = e.folder != nil
	e.migrator, _ = t.(ThreadMigrator)
	if e.migrator != nil && !e.migrate() {
		e.migrator = nil
	}
	if e.opts.Guest && e.migrator == nil {
		return errors.Join(errors.New("nbc: a guest's transport must be one that any thread may call"), t.Close())
	}
	e.scratch[0] = scratch{alloc: e.Alloc, give: e.Free}
	e.openMemory()
	e.links.open(e.rank, e.Nodes(), time.Now())
	e.links.disorder, e.exec.overtaken, e.exec.awaited = e.disorder, e.sumOvertaken, e.awaited
	e.watchdog = newWatchdog(e.rank, e.opts)
	return nil
}

// Rank returns this engine's rank, Size the number of ranks of its transport.
func (e *Engine) Rank() int { return e.rank }

// Size returns the number of ranks.
func (e *Engine) Size() int { return e.size }

// Nodes returns for every rank the index of its node: all 0 where the
// transport does not know.
func (e *Engine) Nodes() []int {
	if p, ok := e.transport.(Topology); ok {
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
		edges = e.stalls.edges(math.MaxInt)
		return nil
	})
	return edges
}

// Close ends the engine; requests under way end with ErrClosed. It may be
// called twice.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closing = true
	e.mu.Unlock()
	e.wake()
	if e.opts.Guest {
		e.closeGuest()
	}
	<-e.finished
	return nil
}

func (e *Engine) wake() {
	e.pending.Store(true)
	e.wakeLoop()
}

// wakeLoop ends a sleep of the engine's goroutine, of either kind, and what the transport does for long.
func (e *Engine) wakeLoop() {
	e.transport.Wake()
	select {
	case e.wakeIdle <- struct{}{}:
	default:
	}
}

// submit hands a request to the loop.
func (e *Engine) submit(r *Request) error {
	r.number()
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
		err = fmt.Errorf("%s cannot start: %w", r.name(), err)
		r.tells = nil // who starts it hears of it
		r.end(err)
		return err
	}
	e.wake()
	return nil
}

// takeNew takes what was submitted since the last call, and reports whether
// the loop should continue.
func (e *Engine) takeNew() bool {
	e.pending.Store(false)
	e.mu.Lock()
	e.taken, e.starts = e.starts, e.taken[:0]
	calls, closing := len(e.calls), e.closing
	e.mu.Unlock()
	for i, r := range e.taken {
		if r.event != nil {
			e.defers(r)
		} else {
			e.admit(r, nil, nil)
		}
		e.taken[i] = nil
	}
	for ; calls > 0; calls-- {
		if c := e.nextCall(); c != nil { // otherwise its caller has taken it back
			c.result <- c.f()
		}
	}
	return !closing
}

// admit begins an execution of r, of which some ops are done, but for messages that
// are lent.
func (e *Engine) admit(r *Request, done []int32, lent []Token) {
	if e.failed != nil {
		r.end(e.failed)
		return
	}
	r.round++
	e.links.admit(r)
	e.stalls.admit(r, time.Now())
	e.exec.admit(r, done, lent)
}

// progress does what can be done and takes what has ended; it reports whether
// there was anything.
func (e *Engine) progress() bool {
	moved := len(e.after) > 0 && e.admitPassed()
	moved = e.perform() || moved
	moved = e.fill() || moved
	moved = e.callHeld() || moved
	if moved && e.exec.inUse == 0 {
		return true // all has ended at once: a caller may be waiting for that
	}
	n, err := e.transport.Poll(e.done[:])
	if err != nil {
		e.fail(err)
		return false
	}
	e.summed = 0
	for _, c := range e.done[:n] {
		e.received(c)
		e.performAlone()
	}
	m, err := e.device.Poll(e.done[:])
	if err != nil {
		e.failAndTell(err)
		return false
	}
	for _, c := range e.done[:m] {
		e.combined(c)
		e.performAlone()
	}
	if e.exec.inUse > 1 && (n+m > 0 || !e.exec.sums.empty()) && e.perform() || moved || n+m > 0 {
		e.offered = 0
		e.relay()
		return true
	}
	return e.partly()
}

// relay passes the most urgent message on that has waited until all want it, as they do now: nothing tells of that.
func (e *Engine) relay() {
	if e.exec.hasPart(onHost) && e.partWanted() && e.exec.partly(onHost) {
		e.perform()
	}
}

// performAlone does what follows from one completion before it looks at others, where one request is
// under way at most: its order is that in which they have come.
func (e *Engine) performAlone() {
	if e.exec.inUse <= 1 {
		e.perform()
	}
}

// perform does what the executor asks for, and reports whether that was
// anything. Where several requests are under way it adds little before it looks again what
// has arrived: something more urgent waits for one addition, whatever else could be added.
func (e *Engine) perform() (any bool) {
	for {
		a, ok := e.exec.next(e.summed < LinkBytes || e.exec.inUse == 1)
		if !ok {
			return any
		}
		any = true
		switch a.step {
		case stepBegin:
			if l := e.links.to(a.r, a.op); l != nil {
				e.links.hold(l, a.r, a.op, time.Now())
			} else if a.r.blocks() {
				e.held = append(e.held, a.r)
			} else {
				e.start(a.r, a.op)
			}
		case stepCombine:
			e.summed += a.r.bind.Datatype.Bytes(a.r.plan.schedule.Ops[a.op].Dst.Len)
			e.combine(a.r, a.op, a.last)
		case stepDivide:
			e.summed += a.r.size()
			done, err := e.device.Divide(a.r.token(a.op), a.r.bind.Datatype, a.r.bind.Out, a.r.bind.Out, a.r.bind.Divide)
			e.began(a.r, a.op, done, err)
		case stepRelease:
			e.transport.Release(a.r.token(a.op))
		case stepEnd:
			e.account(a.r)
			a.r.end(nil)
		}
	}
}

// fill starts sends that were held back, as far as there is room.
func (e *Engine) fill() (any bool) {
	if e.links.held == 0 {
		return false
	}
	now := time.Now()
	for {
		h, ok := e.links.next(now)
		if !ok {
			return any
		}
		any = true
		e.start(h.r, h.op)
	}
}

// start begins op i of r.
func (e *Engine) start(r *Request, i int32) {
	op := &r.plan.schedule.Ops[i]
	tok := r.token(i)
	if e.expected != r && e.expecter != nil {
		e.expecter.Expect(r.size())
		e.expected = r
	}
	tag := r.tag(uint32(op.Msg))
	done, err := false, error(nil)
	switch {
	case r.library != nil:
		err = e.callLibrary(r, tok)
	case op.Kind == schedule.Copy:
		done, err = e.copy(r, tok, r.bytes(op.Dst), r.bytes(op.Src))
	case op.Kind == schedule.Scale:
		done, err = e.device.Divide(tok, r.bind.Datatype, r.bytes(op.Dst), r.bytes(op.Src), r.bind.Scale)
	case op.Kind == schedule.Add:
		e.exec.received(r, i, r.bytes(op.With))
	case op.Kind == schedule.Send:
		err = e.transport.Send(tok, r.peer(op.Peer), tag, e.message(r, i))
	case op.Kind == schedule.RecvReduce, e.exec.folded(r, i):
		err = e.borrow(r, i, tok, tag)
	case op.Kind == schedule.Recv:
		err = e.transport.Recv(tok, r.peer(op.Peer), tag, r.bytes(op.Dst))
	default:
		err = fmt.Errorf("unknown op kind %v", op.Kind)
	}
	e.began(r, i, done, err)
}

// copy has the device copy what nothing adds to.
func (e *Engine) copy(r *Request, tok Token, dst, src mem.Buffer) (bool, error) {
	if e.sums != nil {
		e.sums.Expect(r.size())
		defer e.sums.Expect(0)
	}
	return e.device.Copy(tok, dst, src)
}

// began takes what the device or the transport said when op i of r was handed
// to it.
func (e *Engine) began(r *Request, i int32, done bool, err error) {
	switch {
	case err != nil:
		e.failAndTell(r.opError(i, err))
	case done:
		e.exec.combined(r, i)
	}
}

// received takes a completion from the transport.
func (e *Engine) received(c Completion) {
	r, i := e.exec.lookup(c.Token)
	if r == nil {
		return // of a request that has failed
	}
	if l := e.links.to(r, i); l != nil {
		l.sent(r, i, time.Now())
	}
	if c.Err == nil {
		e.exec.received(r, i, c.Data)
		return
	}
	if err := e.stalls.suspect(r, r.peer(r.plan.schedule.Ops[i].Peer), r.opError(i, c.Err), time.Now()); err != nil {
		e.failAndTell(err)
	}
}

// combined takes a completion from the device.
func (e *Engine) combined(c Completion) {
	if r, i := e.exec.lookup(c.Token); r != nil {
		e.began(r, i, c.Err == nil, c.Err)
	}
}

// look asks, answers and judges what stalls.
func (e *Engine) look() {
	if e.exec.inUse == 0 && e.stalls.notifier == nil {
		return
	}
	now := time.Now()
	e.looked = now
	err := e.stalls.read(e.failed, now)
	if err == nil && e.exec.inUse > 0 {
		err = e.stalls.look(now)
	}
	if err != nil {
		e.failAndTell(err)
	}
}

// rest returns how long the loop may sleep when nothing moves.
func (e *Engine) rest() time.Duration {
	if e.opts.Guest {
		return guestRest
	}
	if e.exec.inUse == 0 && e.failed == nil && len(e.after) == 0 {
		return time.Hour
	}
	if len(e.after) > 0 || e.other != nil && e.other.Busy() {
		return AcceleratorRest
	}
	if e.links.held > 0 {
		return LinkPatience
	}
	return 20 * time.Millisecond
}
