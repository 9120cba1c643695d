package nbc

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// Binding says what a plan is executed on.
type Binding struct {
	// Name says in errors what the collective is: "reduce", which becomes
	// "reduce#812" with Instance.
	Name string
	// Call describes the collective as this rank called it, without type and
	// op, such as "reduce of 100 elements to root 0 by chain:8/binomial". It
	// must be the same text on all ranks: where it, the type or the op are not,
	// no data is mixed, and the collective ends with a *MismatchError that
	// prints both.
	Call string
	// In and Out hold the schedule's Count elements each, and may be the same
	// buffer. One that the schedule does not touch may be empty. In begins with
	// element InAt of the schedule's: of an allgather it holds this rank's part
	// alone, and may be that part of Out. Out begins with element OutAt: of a
	// reduce-scatter it holds this rank's part alone, and may be that part of In.
	In, Out     mem.Buffer
	InAt, OutAt int
	Datatype    mem.Datatype
	Op          mem.Op
	// Scale is what the schedule's Scale ops divide by. Divide, unless 0, is what
	// Out is divided by at the end. Of integers both are whole.
	Scale, Divide float64
	// Comm and Instance identify the collective: no two open requests may
	// share both, and all ranks must agree on them. Package collectives
	// numbers its communicators below 1<<63; the rest is for programs that
	// use an engine directly.
	Comm     uint64
	Instance uint32
	// Ranks maps the schedule's ranks to the transport's; nil: the same.
	Ranks []int
	// Deadline bounds one execution; 0 means the engine's, which is longer
	// where ranks are late (Options.MaxDeadline).
	Deadline time.Duration
	// Priority says how soon the result is needed; 0 is the soonest. Where a
	// link is busy, large messages of requests with a lower number go first,
	// among equals those of the request that started first. It may differ
	// between ranks.
	Priority int
	// Credit, unless 0, says how many bytes of large messages of such requests may be under
	// way to ranks of other nodes together, whichever these are, or one message of more: the most urgent is the next
	// to leave (P3, section 4.2). With 0 a request's messages are bound by two to each rank
	// instead. It may differ between ranks.
	Credit int
	// About, unless nil, says in errors what the collective moves.
	About *About
}

// About is what a collective moves, in the words of its user.
type About struct {
	What   string // "slice 17 of fc6"
	Served bool   // by Server, a rank as those of the schedule
	Server int
}

// Request is one collective on one rank, bound to its buffers: started any
// number of times, one execution at a time.
type Request struct {
	engine   *Engine
	plan     *Plan
	at       [3]int   // with which element each buffer begins
	bind     *Binding // shared with those that Again returns: instance takes its Instance's place
	what     *what    // of bind, likewise
	instance uint32
	library  *LibraryCall  // instead of a schedule
	buffers  [3]mem.Buffer // by schedule.Buffer
	lone     *lone         // nil where it is not executed alone
	inPlace  bool          // In and Out have memory in common
	spreads  bool          // sums are stored where others wait for them,
	relays   bool          // and messages that are passed on: see place.go

	active  atomic.Bool
	closed  atomic.Bool
	given   atomic.Bool                   // closed, and ended
	lingers atomic.Bool                   // see lone.go
	holds   bool                          // its number is among the engine's identities
	wakes   atomic.Pointer[chan struct{}] // see waking; nil: nobody has waited yet
	member  *member                       // of the set that it is in; nil: none
	failure atomic.Pointer[error]         // why the last execution that ended failed; nil where it did not
	tells   *func(error)                  // see StartTelling; nil: nobody asked

	// What follows is guarded by the engine's loopLock.
	slot        uint32
	order       uint64       // of admission
	state       []int32      // per op: how many ops it still waits for, or one of the states below
	data        []mem.Buffer // by op: the message that is to be added or passed on; of a send, where that lies at its receiver's
	queue       []int32      // ops in the order in which they became ready
	head        int
	enlisted    bool // in executor.ready
	left        int  // ops not completed
	divided     bool
	print       uint32
	round       uint32        // executions begun
	loneDone    int           // ops of one that lingers
	loneSeen    bool          // it has lingered for a nap
	maxDeadline time.Duration // see Options
	watch       *watch        // nil where the loop has not had it yet
	event       Event         // after which it begins; nil: at once, or it has passed
	submitted   time.Time     // where there is one
	began       time.Time     // when that had passed; see Began
}

const (
	opPosted    int32 = -1 // handed to the transport or device
	opDone      int32 = -2
	opArrived   int32 = -3 // a message that is to be added, or stored at several places
	opCombining int32 = -4 // it is being that
)

// Prepare binds plan to buffers. The request must be closed.
func (e *Engine) Prepare(plan *Plan, b Binding) (*Request, error) {
	if b.Credit < 0 {
		return nil, fmt.Errorf("nbc: %s: the credit must not be negative (got %d): use 0 to bind each link by itself", b.name(), b.Credit)
	}
	at := [3]int{schedule.In: b.InAt, schedule.Out: b.OutAt}
	if plan.schedule.Apart && b.In.Overlaps(b.Out) {
		return nil, fmt.Errorf("nbc: %s: in and out overlap, but must lie apart", b.name())
	}
	for buf, given := range [2]mem.Buffer{schedule.In: b.In, schedule.Out: b.Out} {
		if uses := plan.uses[buf]; uses.Len > 0 && uses.Off < at[buf] {
			return nil, fmt.Errorf("nbc: %s: buffer %q begins with element %d, but element %d is used", b.name(), schedule.Buffer(buf), at[buf], uses.Off)
		}
		elements := max(0, plan.uses[buf].End()-at[buf])
		if !e.Serves(given.Space()) {
			return nil, fmt.Errorf("nbc: %s: buffer %q: %w", b.name(), schedule.Buffer(buf), e.unserved(given.Space()))
		}
		if need := b.Datatype.Bytes(elements); given.Len() < need {
			return nil, fmt.Errorf("nbc: %s: buffer %q has %d bytes, %d %s need %d", b.name(), schedule.Buffer(buf), given.Len(), elements, b.Datatype, need)
		}
	}
	r := &Request{engine: e, plan: plan, bind: &b, what: b.what(), instance: b.Instance, print: b.fingerprint(), at: at}
	r.limit(e.opts)
	if !r.number() {
		return nil, r.taken()
	}
	if err := r.provide(nil); err != nil {
		return nil, err
	}
	return r, nil
}

// provide gives the request its scratch memory, and binds it for being executed alone:
// as another one of the same plan and buffers is, unless that is nil.
func (r *Request) provide(like *lone) error {
	own, err := r.engine.scratchOf(r.bind.space()).get(r.bind.Datatype.Bytes(r.plan.schedule.Scratch))
	if err != nil {
		r.Detach()
		return fmt.Errorf("nbc: %s: scratch memory: %w", r.name(), err)
	}
	r.buffers = [3]mem.Buffer{r.bind.In, r.bind.Out, own}
	r.inPlace = r.bind.In.Overlaps(r.bind.Out)
	r.spreads = r.engine.spreads(r, r.plan.places)
	r.relays = r.engine.relays(r)
	if r.lone = like; like == nil || like.scratch != own {
		r.lone = r.engine.bindLone(r)
	}
	return nil
}

// Again returns another request of the same plan on the same buffers, as collective
// number instance: what Prepare would, for less. fresh says that no request of the
// communicator has ever had that number. r may be under way, or closed.
func (r *Request) Again(instance uint32, fresh bool) (*Request, error) {
	a := &Request{
		engine: r.engine, plan: r.plan, bind: r.bind, at: r.at, what: r.what, instance: instance, library: r.library,
		print: r.print, maxDeadline: r.maxDeadline,
	}
	if !fresh && !a.number() {
		return nil, a.taken()
	}
	if r.library != nil {
		return a, nil
	}
	if err := a.provide(r.lone); err != nil {
		return nil, err
	}
	return a, nil
}

// size returns the bytes of the collective's buffer.
func (r *Request) size() int { return r.bind.Datatype.Bytes(r.plan.schedule.Count) }

// limit sets the request's deadlines. An explicit one is never extended.
func (r *Request) limit(o Options) {
	r.maxDeadline = r.bind.Deadline
	if r.bind.Deadline == 0 {
		r.bind.Deadline, r.maxDeadline = o.Deadline, o.MaxDeadline
	}
}

// PrepareLibrary returns a request that runs a collective of the transport's
// library. Of b, Name, Call, Comm, Instance and Deadline count; the identity
// serves diagnosis alone.
func (e *Engine) PrepareLibrary(c LibraryCall, b Binding) (*Request, error) {
	l, ok := e.transport.(Library)
	if !ok {
		return nil, fmt.Errorf("nbc: %s: the transport has no library of collectives", b.Name)
	}
	if err := l.Supports(c); err != nil { // once begun it would be every rank's failure
		return nil, fmt.Errorf("nbc: %s: %w", b.name(), err)
	}
	b.Datatype, b.Op = c.Datatype, c.Op
	if c.Blocking {
		e.watchdog.begin()
	}
	r := &Request{engine: e, plan: libraryPlan, bind: &b, what: b.what(), instance: b.Instance, library: &c, print: b.fingerprint()}
	r.limit(e.opts)
	if !r.number() {
		return nil, r.taken()
	}
	return r, nil
}

// libraryPlan stands for the one op of a library's collective.
var libraryPlan = func() *Plan {
	p, err := Compile(&schedule.Schedule{Ops: []schedule.Op{{Kind: schedule.Copy, Peer: -1}}})
	if err != nil {
		panic(err) // one op that waits for nothing
	}
	return p
}()

// Start begins an execution. The buffers belong to the request until it ends.
func (r *Request) Start() error { return r.start(nil) }

// StartTelling is Start, and has f called once with how the execution ends: on the thread that ends it, so f must be
// brief and call no method of the request's. Where it returns an error f is not called.
func (r *Request) StartTelling(f func(error)) error { return r.start(&f) }

func (r *Request) start(tell *func(error)) error {
	if r.engine.opts.Guest {
		return r.startGuest()
	}
	if ended, err := r.begin(tell); ended || err != nil {
		return err
	}
	if r.engine.startLone(r) || r.engine.startHere(r) {
		return nil
	}
	return r.engine.submit(r)
}

// Detach gives the number of a request back that is not under way. After that RunAs
// alone starts it, each time under another number.
func (r *Request) Detach() {
	if r.holds {
		r.holds = false
		r.engine.identities.give(r.identity())
	}
}

// RunAs is Run of a request that was detached, as collective number instance, of the
// same plan on the same buffers. fresh says that no request of the communicator has
// ever had that number: then it is not looked for among those of open requests,
// unless the execution is to last.
func (r *Request) RunAs(ctx context.Context, instance uint32, fresh bool) error {
	r.instance, r.round = instance, 0
	if !fresh && !r.number() {
		return r.taken()
	}
	err := r.runDetached(ctx)
	if r.holds && !r.active.Load() {
		r.Detach()
	}
	return err
}

// runDetached is Run of a request that nobody else waits for: where it is executed
// alone, its state need not say so.
func (r *Request) runDetached(ctx context.Context) error {
	e := r.engine
	if r.lone == nil || e.opts.Guest || r.closed.Load() || !e.enter() {
		return r.Run(ctx)
	}
	done, ended, failed := e.runLone(r, 0, true)
	if ended {
		e.endLone(r)
		e.leave()
		return nil
	}
	_, err := r.begin(nil)
	if err == nil {
		e.proceed(ctx, r, done, failed)
	} else if r.lone.lends {
		e.eager.Keep(noToken) // nobody waits for the rest
	}
	e.leave()
	if err != nil {
		return err
	}
	return r.Wait(ctx)
}

// number takes the request's number, and reports whether it was free.
func (r *Request) number() bool {
	if !r.holds {
		r.holds = r.engine.identities.take(r)
	}
	return r.holds
}

// begin makes r active, and reports whether it has ended already. The execution's end is told to tell, unless that is nil.
func (r *Request) begin(tell *func(error)) (ended bool, err error) {
	if r.closed.Load() {
		return false, fmt.Errorf("nbc: %s is started after it was closed", r.name())
	}
	if !r.active.CompareAndSwap(false, true) {
		return false, fmt.Errorf("nbc: %s is started while its last execution is under way: wait for it first", r.name())
	}
	r.tells = tell
	if len(r.plan.schedule.Ops) == 0 && r.engine.size == 1 {
		r.end(nil)
		return true, nil
	}
	return false, nil
}

// Run is Start and then Wait. Where nothing else is under way the calling
// goroutine does the engine's work meanwhile, so that few bytes do not wait for
// threads to wake.
func (r *Request) Run(ctx context.Context) error {
	if r.engine.opts.Guest {
		return r.runGuest(ctx)
	}
	ended, err := r.begin(nil)
	if err == nil && !ended && !r.engine.drive(ctx, r) {
		err = r.engine.submit(r)
	}
	if err != nil {
		return err
	}
	return r.Wait(ctx)
}

// Test reports whether the execution has ended, and how.
func (r *Request) Test() (bool, error) {
	r.engine.resume(context.Background(), r, false)
	return r.ended()
}

func (r *Request) ended() (bool, error) {
	if r.active.Load() {
		return false, nil
	}
	return true, r.err()
}

// err returns why the last execution that ended failed.
func (r *Request) err() error {
	if failure := r.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

// Wait waits until the execution has ended, and says how. It ends without
// that when ctx does; the execution then continues, within its deadline,
// and its buffers are still in use.
func (r *Request) Wait(ctx context.Context) error {
	r.engine.resume(ctx, r, true)
	if ended, err := r.ended(); ended {
		return err
	}
	woken := r.waking()
	for {
		if ended, err := r.ended(); ended { // since we looked: its end may have found nobody who waits
			wakeOne(woken) // there may be others
			return err
		}
		select {
		case <-woken: // perhaps by an execution before
		case <-ctx.Done():
			return fmt.Errorf("nbc: gave up waiting for %s: %w", r.name(), context.Cause(ctx))
		}
	}
}

// waking returns what the end of an execution wakes one who waits by.
func (r *Request) waking() chan struct{} {
	if r.wakes.Load() == nil {
		c := make(chan struct{}, 1)
		r.wakes.CompareAndSwap(nil, &c)
	}
	return *r.wakes.Load()
}

func wakeOne(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // whoever comes next is woken at once
	}
}

// Close gives back the request's scratch memory and its number: at once, or, for
// a request in flight, when it ends. Where that failed the engine has failed as
// a whole, and the memory stays its own. It may be called twice.
func (r *Request) Close() {
	r.closed.Store(true)
	if !r.active.Load() {
		r.giveBack()
	}
}

// giveBack does once what Close asks for.
func (r *Request) giveBack() {
	if !r.given.CompareAndSwap(false, true) {
		return
	}
	r.Detach()
	if r.buffers[schedule.Scratch].Len() > 0 {
		if r.err() == nil { // otherwise messages may still arrive
			r.engine.scratchOf(r.bind.space()).put(r.buffers[schedule.Scratch])
		}
		r.buffers[schedule.Scratch] = mem.Buffer{}
	}
}

// end finishes the execution.
func (r *Request) end(err error) {
	if err != nil {
		failure := err // on the heap where there is one
		r.failure.Store(&failure)
	} else if r.failure.Load() != nil {
		r.failure.Store(nil)
	}
	tell := r.tells
	r.active.Store(false) // from here on it may be started again, for others to be told
	if r.closed.Load() {
		r.giveBack()
	}
	if r.member != nil {
		r.member.end()
	}
	if tell != nil {
		(*tell)(err)
	}
	if c := r.wakes.Load(); c != nil {
		wakeOne(*c)
	}
}

// reset prepares the op states for an execution.
func (r *Request) reset() {
	if r.state == nil {
		n := len(r.plan.schedule.Ops)
		r.state, r.queue = make([]int32, n), make([]int32, 0, n)
		if r.plan.adds || r.relays {
			r.data = make([]mem.Buffer, n)
		}
	}
	copy(r.state, r.plan.graph.Waits())
	r.queue, r.head = append(r.queue[:0], r.plan.free...), 0
	r.left = len(r.state)
	r.divided, r.enlisted = false, false
}

// skip marks ops done that need not begin, but for those among them that have begun.
func (r *Request) skip(done []int32, begun []Token) {
	if len(done) == 0 {
		return
	}
	for _, i := range done {
		if slices.Contains(begun, Token(i)) {
			r.state[i] = opPosted
		} else {
			r.complete(i)
		}
	}
	r.queue = r.queue[:0]
	for i, waits := range r.state {
		if waits == 0 {
			r.queue = append(r.queue, int32(i))
		}
	}
}

// complete marks op i done and queues what waited for it alone.
func (r *Request) complete(i int32) {
	r.state[i] = opDone
	r.left--
	for _, j := range r.plan.graph.Waiting(i) {
		if r.state[j] < 0 {
			continue // its receive has begun: see fold.go
		}
		if r.state[j]--; r.state[j] == 0 {
			r.queue = append(r.queue, j)
		}
	}
}

// bytes returns the memory that ref names.
func (r *Request) bytes(ref schedule.Ref) mem.Buffer {
	dt := r.bind.Datatype
	return r.buffers[ref.Buf].Slice(dt.Bytes(ref.Off-r.at[ref.Buf]), dt.Bytes(ref.Len))
}

// tag returns the identity of a message of the request.
func (r *Request) tag(message uint32) Tag {
	return Tag{Comm: r.bind.Comm, Instance: r.instance, Message: message, Fingerprint: r.print}
}

// called is what the request is: put together as text where it is read.
func (r *Request) called() called { return called{r.bind.Name, r.instance} }

func (r *Request) name() string { return r.called().String() }

// describe returns the call in full, for a person.
func (r *Request) describe() string {
	b := *r.bind
	b.Instance = r.instance
	return b.describe()
}

func (r *Request) execution() Execution { return Execution{r.bind.Comm, r.instance, r.round} }

// opError says which op of which request an error came up in.
func (r *Request) opError(i int32, err error) error {
	if r.divided {
		return fmt.Errorf("%s: dividing the sum: %w", r.name(), err)
	}
	return fmt.Errorf("%s, op %d (%s): %w", r.name(), i, &r.plan.schedule.Ops[i], err)
}

// token names op i of this request to the transport and the device.
func (r *Request) token(i int32) Token { return Token(r.slot)<<32 | Token(i) }

func (r *Request) peer(rank int) int {
	if r.bind.Ranks == nil {
		return rank
	}
	return r.bind.Ranks[rank]
}

// edges returns what the request waits for: per peer and direction the first
// message in flight.
func (r *Request) edges(me int) []Edge {
	type key struct {
		peer    int
		sending bool
	}
	seen := map[key]bool{}
	var edges []Edge
	if r.library != nil {
		return []Edge{{Rank: me, Request: r.name(), Op: "the MPI library's own collective", Peer: -1, Execution: r.execution()}}
	}
	for i, st := range r.state {
		op := &r.plan.schedule.Ops[i]
		k := key{op.Peer, op.Kind == schedule.Send}
		if st != opPosted || op.Local() || seen[k] {
			continue
		}
		seen[k] = true
		edge := Edge{
			Rank: me, Request: r.name(), Op: fmt.Sprintf("chunk %d", op.Msg),
			Peer: r.peer(op.Peer), Sending: k.sending, Execution: r.execution(),
		}
		if a := r.bind.About; a != nil {
			edge.About, edge.Server = a.What, a.Served && a.Server == op.Peer
		}
		edges = append(edges, edge)
	}
	return edges
}
