package nbc

import (
	"context"
	"fmt"
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
	// buffer. One that the schedule does not touch may be empty.
	In, Out  mem.Buffer
	Datatype mem.Datatype
	Op       mem.Op
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
}

// Request is one collective on one rank, bound to its buffers: started any
// number of times, one execution at a time.
type Request struct {
	engine  *Engine
	plan    *Plan
	bind    Binding
	library *LibraryCall  // instead of a schedule
	buffers [3]mem.Buffer // by schedule.Buffer

	active atomic.Bool
	closed atomic.Bool
	given  atomic.Bool   // closed, and ended
	done   chan struct{} // holds a token while the last execution has ended
	err    error         // why it failed; read after taking the token

	// What follows is guarded by the engine's loopLock.
	slot        uint32
	order       uint64  // of admission
	state       []int32 // per op: how many ops it still waits for, or one of the states below
	queue       []int32 // ops in the order in which they became ready
	head        int
	enlisted    bool // in executor.ready
	left        int  // ops not completed
	divided     bool
	print       uint32
	round       uint32        // executions begun
	maxDeadline time.Duration // see Options
	watch       watch
}

const (
	opPosted int32 = -1 // handed to the transport or device
	opDone   int32 = -2
)

// Prepare binds plan to buffers. The request must be closed.
func (e *Engine) Prepare(plan *Plan, b Binding) (*Request, error) {
	s := plan.schedule
	need := b.Datatype.Bytes(s.Count)
	for buf, given := range [2]mem.Buffer{schedule.In: b.In, schedule.Out: b.Out} {
		if plan.uses[buf] && given.Len() < need {
			return nil, fmt.Errorf("nbc: %s: buffer %q has %d bytes, %d %s need %d", b.name(), schedule.Buffer(buf), given.Len(), s.Count, b.Datatype, need)
		}
	}
	if !e.identities.take(b.identity()) {
		return nil, b.taken(b.Instance)
	}
	own, err := e.scratch.get(b.Datatype.Bytes(s.Scratch))
	if err != nil {
		e.identities.give(b.identity())
		return nil, fmt.Errorf("nbc: %s: scratch memory: %w", b.name(), err)
	}
	r := &Request{
		engine:  e,
		plan:    plan,
		bind:    b,
		buffers: [3]mem.Buffer{b.In, b.Out, own},
		done:    make(chan struct{}, 1),
		print:   b.fingerprint(),
	}
	r.limit(e.opts)
	r.done <- struct{}{}
	return r, nil
}

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
	if !e.identities.take(b.identity()) {
		return nil, b.taken(b.Instance)
	}
	r := &Request{engine: e, plan: libraryPlan, bind: b, library: &c, done: make(chan struct{}, 1), print: b.fingerprint()}
	r.limit(e.opts)
	r.done <- struct{}{}
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
func (r *Request) Start() error {
	if ended, err := r.begin(); ended || err != nil {
		return err
	}
	return r.engine.submit(r)
}

// Renumber makes the next execution one of another collective, of the same plan
// on the same buffers. The last execution has ended.
func (r *Request) Renumber(instance uint32) error {
	if !r.engine.identities.swap(r.bind.identity(), identity{r.bind.Comm, instance}) {
		return r.bind.taken(instance)
	}
	r.bind.Instance, r.round = instance, 0
	return nil
}

// begin makes r active, and reports whether it has ended already.
func (r *Request) begin() (ended bool, err error) {
	if r.closed.Load() {
		return false, fmt.Errorf("nbc: %s is started after it was closed", r.bind.name())
	}
	if !r.active.CompareAndSwap(false, true) {
		return false, fmt.Errorf("nbc: %s is started while its last execution is under way: wait for it first", r.bind.name())
	}
	<-r.done
	r.err = nil
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
	ended, err := r.begin()
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
	select {
	case <-r.done:
		err := r.err
		r.done <- struct{}{}
		return true, err
	default:
		return false, nil
	}
}

// Wait waits until the execution has ended, and says how. It ends without
// that when ctx does; the execution then continues, within its deadline,
// and its buffers are still in use.
func (r *Request) Wait(ctx context.Context) error {
	if ended, err := r.Test(); ended {
		return err
	}
	select {
	case <-r.done:
		err := r.err
		r.done <- struct{}{}
		return err
	case <-ctx.Done():
		return fmt.Errorf("nbc: gave up waiting for %s: %w", r.bind.name(), context.Cause(ctx))
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
	r.engine.identities.give(r.bind.identity())
	if r.buffers[schedule.Scratch].Len() > 0 {
		if r.err == nil { // otherwise messages may still arrive
			r.engine.scratch.put(r.buffers[schedule.Scratch])
		}
		r.buffers[schedule.Scratch] = mem.Buffer{}
	}
}

// end finishes the execution.
func (r *Request) end(err error) {
	r.err = err
	r.active.Store(false)
	if r.closed.Load() {
		r.giveBack()
	}
	r.done <- struct{}{}
}

// reset prepares the op states for an execution.
func (r *Request) reset() {
	if r.state == nil {
		n := len(r.plan.schedule.Ops)
		r.state, r.queue = make([]int32, n), make([]int32, 0, n)
	}
	copy(r.state, r.plan.graph.Waits())
	r.queue, r.head = r.queue[:0], 0
	r.left = len(r.state)
	r.divided, r.enlisted = false, false
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
		if r.state[j]--; r.state[j] == 0 {
			r.queue = append(r.queue, j)
		}
	}
}

// bytes returns the memory that ref names.
func (r *Request) bytes(ref schedule.Ref) mem.Buffer {
	dt := r.bind.Datatype
	return r.buffers[ref.Buf].Slice(dt.Bytes(ref.Off), dt.Bytes(ref.Len))
}

func (r *Request) execution() Execution { return Execution{r.bind.Comm, r.bind.Instance, r.round} }

// opError says which op of which request an error came up in.
func (r *Request) opError(i int32, err error) error {
	if r.divided {
		return fmt.Errorf("%s: dividing the sum: %w", r.bind.name(), err)
	}
	return fmt.Errorf("%s, op %d (%s): %w", r.bind.name(), i, &r.plan.schedule.Ops[i], err)
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
		return []Edge{{Rank: me, Request: r.bind.name(), Op: "the MPI library's own collective", Peer: -1, Execution: r.execution()}}
	}
	for i, st := range r.state {
		op := &r.plan.schedule.Ops[i]
		k := key{op.Peer, op.Kind == schedule.Send}
		if st != opPosted || op.Local() || seen[k] {
			continue
		}
		seen[k] = true
		edges = append(edges, Edge{
			Rank: me, Request: r.bind.name(), Op: fmt.Sprintf("chunk %d", op.Msg),
			Peer: r.peer(op.Peer), Sending: k.sending, Execution: r.execution(),
		})
	}
	return edges
}
