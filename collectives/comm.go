package collectives

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
)

// Options of a communicator; the zero value is good.
type Options struct {
	// Spec, unless it has no levels, is how every collective is done that
	// does not say so itself.
	Spec spec.Spec
	// Table, unless empty, is the file of a tuning table, which decides where
	// Spec does not. Configure reads it.
	Table string
	// Buffers is the kind of the buffers of calls that do not say so
	// themselves.
	Buffers selection.BufferKind
	// Measure asks Configure to measure the network for the cost model where
	// no table says what it is like.
	Measure bool
	// Machine is what this machine is, to be compared with a table's.
	Machine selection.Machine
}

// Comm is a communicator: an ordered set of ranks that do collectives
// together. Every rank must create the same collectives in the same order
// (calling a verb creates one); requests may be started in any order, but for
// those of the MPI library's own (spec mpi), whose rule is one order on all
// ranks. Collectives that run once and persistent requests (Init) are counted
// apart. Any number of communicators and requests may be in use together.
type Comm struct {
	engine *nbc.Engine
	opts   Options
	id     uint64
	rank   int
	ranks  []int // ranks[i] is rank i's in the world
	nodes  []int // by rank

	layout spec.Layout
	plans  *plans

	mu       sync.Mutex
	selector *selection.Selector
	recent   recent
	choices  lru[selection.Query, *selection.Choice]
	counts   [2]uint32 // of the collectives that run once, and of persistent requests
	closed   bool
}

// World returns the communicator of all ranks of the engine's transport. There
// is one in the life of an engine; Dup makes others.
func World(e *nbc.Engine, opts Options) *Comm {
	ranks := make([]int, e.Size())
	for i := range ranks {
		ranks[i] = i
	}
	selector := selection.Default()
	if len(opts.Spec.Levels) > 0 {
		selector = selection.Always(opts.Spec)
	}
	return newComm(e, opts, selector, worldID, e.Rank(), ranks)
}

func newComm(e *nbc.Engine, opts Options, selector *selection.Selector, id uint64, rank int, ranks []int) *Comm {
	c := &Comm{
		engine: e, opts: opts, selector: selector, id: id, rank: rank, ranks: ranks,
		plans: newPlans(keptOps), choices: lru[selection.Query, *selection.Choice]{room: keptChoices},
	}
	nodes := e.Nodes()
	for _, r := range ranks {
		c.nodes = append(c.nodes, nodes[r])
	}
	c.layout = spec.LayoutOf(c.nodes)
	return c
}

// Engine returns the engine that executes c's collectives, for programs that
// look below them: benchmarks, diagnosis.
func (c *Comm) Engine() *nbc.Engine { return c.engine }

// Rank returns the caller's rank in [0, Size).
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks.
func (c *Comm) Size() int { return len(c.ranks) }

// Nodes returns for every rank the index of its node.
func (c *Comm) Nodes() []int { return c.nodes }

// Alloc returns n zeroed bytes that the communicator's transport reaches
// best, to be given back with the communicator's Free.
func (c *Comm) Alloc(n int) (mem.Buffer, error) {
	if n < 0 {
		return mem.Buffer{}, fmt.Errorf("collectives: allocation of %d bytes", n)
	}
	return c.engine.Alloc(n)
}

// Free gives back what Alloc returned.
func (c *Comm) Free(b mem.Buffer) { c.engine.Free(b) }

// Option says how one collective is to be done.
type Option func(*call)

// With asks for a spec.
func With(s spec.Spec) Option { return func(c *call) { c.spec = s } }

// Within bounds the collective's time.
func Within(d time.Duration) Option { return func(c *call) { c.deadline = d } }

// Buffers says which kind of memory the call's buffers are in, on all ranks.
func Buffers(kind selection.BufferKind) Option { return func(c *call) { c.buffers = kind } }

// Priority says how soon the collective's result is needed, 0 the soonest: where
// several share a link, its large messages go before those of higher numbers.
func Priority(n int) Option { return func(c *call) { c.priority = n } }

// call is a collective as asked for.
type call struct {
	collective schedule.Collective
	root       int
	send       mem.Buffer
	recv       mem.Buffer
	dt         mem.Datatype
	op         mem.Op
	spec       spec.Spec
	cuts       []int // see Parts
	priority   int
	deadline   time.Duration
	buffers    selection.BufferKind
	needsSend  bool
	needsRecv  bool
	blocking   bool
	persistent bool
}

// persist marks the call of a request to be started many times.
func (k call) persist() call {
	k.persistent = true
	return k
}

func (c *Comm) reduce(send, recv mem.Buffer, dt mem.Datatype, op mem.Op, root int) call {
	return call{collective: schedule.Reduce, root: root, send: send, recv: recv, dt: dt, op: op, needsSend: true, needsRecv: c.rank == root}
}

func (c *Comm) bcast(buf mem.Buffer, dt mem.Datatype, root int) call {
	return call{collective: schedule.Bcast, root: root, recv: buf, dt: dt, needsRecv: true}
}

func (c *Comm) allreduce(send, recv mem.Buffer, dt mem.Datatype, op mem.Op) call {
	return call{collective: schedule.Allreduce, send: send, recv: recv, dt: dt, op: op, needsSend: true, needsRecv: true}
}

// ReduceInit makes a persistent request for Reduce, to be started any number
// of times and closed at the end.
func (c *Comm) ReduceInit(send, recv mem.Buffer, dt mem.Datatype, op mem.Op, root int, opts ...Option) (*nbc.Request, error) {
	return c.init(c.reduce(send, recv, dt, op, root).persist(), opts)
}

// BcastInit makes a persistent request for Bcast.
func (c *Comm) BcastInit(buf mem.Buffer, dt mem.Datatype, root int, opts ...Option) (*nbc.Request, error) {
	return c.init(c.bcast(buf, dt, root).persist(), opts)
}

// AllreduceInit makes a persistent request for Allreduce.
func (c *Comm) AllreduceInit(send, recv mem.Buffer, dt mem.Datatype, op mem.Op, opts ...Option) (*nbc.Request, error) {
	return c.init(c.allreduce(send, recv, dt, op).persist(), opts)
}

// Ireduce starts a Reduce. The request must be waited for, then closed.
func (c *Comm) Ireduce(send, recv mem.Buffer, dt mem.Datatype, op mem.Op, root int, opts ...Option) (*nbc.Request, error) {
	return started(c.init(c.reduce(send, recv, dt, op, root), opts))
}

// Ibcast starts a Bcast. The request must be waited for, then closed.
func (c *Comm) Ibcast(buf mem.Buffer, dt mem.Datatype, root int, opts ...Option) (*nbc.Request, error) {
	return started(c.init(c.bcast(buf, dt, root), opts))
}

// Iallreduce starts an Allreduce. The request must be waited for, then closed.
func (c *Comm) Iallreduce(send, recv mem.Buffer, dt mem.Datatype, op mem.Op, opts ...Option) (*nbc.Request, error) {
	return started(c.init(c.allreduce(send, recv, dt, op), opts))
}

// Reduce combines every rank's send into root's recv, element by element. The
// lengths of send must be equal on all ranks; recv counts at root only, is as
// long, and may be the same buffer as send (in place).
//
// The sums of integers wrap around. mem.Avg is for floating-point types; of f16 and
// bf16 it does not overflow where the average itself does not.
func (c *Comm) Reduce(ctx context.Context, send, recv mem.Buffer, dt mem.Datatype, op mem.Op, root int, opts ...Option) error {
	return c.run(ctx, c.reduce(send, recv, dt, op, root), opts)
}

// Bcast copies root's buf to every other rank's buf, all equally long.
func (c *Comm) Bcast(ctx context.Context, buf mem.Buffer, dt mem.Datatype, root int, opts ...Option) error {
	return c.run(ctx, c.bcast(buf, dt, root), opts)
}

// Allreduce combines every rank's send into every rank's recv, which may be
// the same buffer (in place).
func (c *Comm) Allreduce(ctx context.Context, send, recv mem.Buffer, dt mem.Datatype, op mem.Op, opts ...Option) error {
	return c.run(ctx, c.allreduce(send, recv, dt, op), opts)
}

// Barrier returns when every rank has called it.
func (c *Comm) Barrier(ctx context.Context) error {
	one := mem.Of(make([]uint8, 1))
	return c.Allreduce(ctx, one, one, mem.Uint8, mem.Max, control)
}

// control is how the package's own collectives are done, such as those of
// Agree: whatever was tuned or asked for, and within deadlines.
func control(k *call) { k.spec = spec.Spec{Levels: []spec.Level{{Algorithm: "binomial"}}} }

func started(r *nbc.Request, err error) (*nbc.Request, error) {
	if err != nil {
		return nil, err
	}
	if err := r.Start(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// init checks a call, finds its plan and binds it. Every call takes an
// instance number, failed ones too, so that the ranks keep counting alike.
func (c *Comm) init(k call, opts []Option) (*nbc.Request, error) {
	k.buffers = c.opts.Buffers
	for _, o := range opts {
		o(&k)
	}
	instance, err := c.nextInstance(k.persistent)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", k.collective, err)
	}
	fail := func(err error) (*nbc.Request, error) {
		return nil, fmt.Errorf("%s: %w", nbc.RequestName(k.collective.String(), instance), err)
	}
	count, err := k.count(c.Size())
	if err != nil {
		return fail(err)
	}
	plan, text, err := c.planned(&k, count)
	if err != nil {
		return fail(err)
	}
	bind := nbc.Binding{
		Name: k.collective.String(), Call: k.describe(count, text), In: k.send, Out: k.recv, Datatype: k.dt, Op: k.op,
		Comm: c.id, Instance: instance, Ranks: c.ranks, Deadline: k.deadline, Priority: k.priority,
	}
	if k.op == mem.Avg {
		k.op, bind.Op = mem.Sum, mem.Sum
		scale, divide := averaging(k.dt, c.Size())
		bind.Scale = scale
		if k.needsRecv && count > 0 && divide != 1 {
			bind.Divide = divide
		}
	}
	if plan == nil {
		return c.library(bind, k, count)
	}
	return c.engine.Prepare(plan, bind)
}

// averaging returns what an average over size ranks divides every contribution
// by, and what the sum. Types of 16 bits have little room above their values, so
// the sum could overflow where the average does not. There each contribution is
// divided first, by the power of two that is not less than size: that is exact but
// for the smallest numbers of f16 (below size times 2^-14), which are rounded to a
// multiple of 2^-24. Wider types are divided at the end alone, and so need no pass
// over the contributions.
func averaging(dt mem.Datatype, size int) (contribution, sum float64) {
	if !scales(dt) {
		return 1, float64(size)
	}
	power := float64(uint64(1) << bits.Len(uint(size-1)))
	return power, float64(size) / power
}

// scales reports whether averages of a type scale the contributions.
func scales(dt mem.Datatype) bool { return dt == mem.Float16 || dt == mem.BFloat16 }

// planned finds how a call is done and says it in words. The plan is nil where
// the MPI library does it.
func (c *Comm) planned(k *call, count int) (*nbc.Plan, string, error) {
	if len(k.cuts) > 0 {
		return c.packed(k, count)
	}
	choice, err := c.Select(k.query(c, count), k.spec)
	if err != nil || choice.Spec.IsLibrary() {
		return nil, choice.Text, err
	}
	plan, err := c.plan(k.at(c, count), choice.Text, func(at spec.Call) (*schedule.Schedule, error) { return spec.Build(at, choice.Spec) })
	return plan, choice.Text, err
}

// Select returns what serves a call, and why. asked is what the call itself
// asks for; it has no levels where it leaves the choice.
func (c *Comm) Select(q selection.Query, asked spec.Spec) (*selection.Choice, error) {
	selector := c.Selector()
	if len(asked.Levels) > 0 {
		choice, err := selector.Select(c.layout, q, asked)
		return &choice, err
	}
	c.mu.Lock()
	kept, found := c.choices.get(q)
	c.mu.Unlock()
	if found {
		return kept, nil
	}
	choice, err := selector.Select(c.layout, q, asked)
	if err != nil {
		return &choice, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, found := c.choices.get(q); !found && c.selector == selector {
		c.choices.put(q, &choice, 1)
	}
	return &choice, nil
}

// Selector returns what selects for this communicator.
func (c *Comm) Selector() *selection.Selector {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.selector
}

// Layout returns how many ranks the communicator has on how many nodes.
func (c *Comm) Layout() spec.Layout { return c.layout }

// HasLibrary reports whether the MPI library's own collectives (spec mpi) may
// serve this communicator: that of the world, under mpirun.
func (c *Comm) HasLibrary() bool { return c.id == worldID && c.engine.HasLibrary() }

// ErrClosed is what collectives on a closed communicator return.
var ErrClosed = errors.New("collectives: the communicator is closed")

// nextInstance numbers a collective.
func (c *Comm) nextInstance(persistent bool) (uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, ErrClosed
	}
	return c.countLocked(persistent), nil
}

func (c *Comm) countLocked(persistent bool) uint32 {
	kind, bit := 0, uint32(0)
	if persistent {
		kind, bit = 1, nbc.Persistent
	}
	c.counts[kind]++
	return c.counts[kind]&^nbc.Persistent | bit
}

// library prepares a call of the MPI library's own collective.
func (c *Comm) library(b nbc.Binding, k call, count int) (*nbc.Request, error) {
	return c.engine.PrepareLibrary(nbc.LibraryCall{
		Collective: k.collective,
		Send:       k.send, Recv: k.recv, Count: count, Datatype: k.dt, Op: k.op, Root: k.root,
	}, b)
}

// describe returns the call in words, equal on all ranks that call alike.
func (k *call) describe(count int, spec string) string {
	name := k.collective.String()
	if k.op == mem.Avg {
		name = "averaging " + name // its op is Sum to the engine
	}
	return fmt.Sprintf("%s of %d elements, root %d, spec %v", name, count, k.root, spec)
}

// count returns the number of elements of a call whose buffers fit it.
func (k *call) count(size int) (int, error) {
	switch {
	case !k.dt.Valid():
		return 0, fmt.Errorf("unknown datatype %v", k.dt)
	case !k.op.Valid() && k.op != mem.Avg:
		return 0, fmt.Errorf("unknown op %v", k.op)
	case k.op == mem.Avg && !k.dt.Float():
		return 0, fmt.Errorf("op %v needs a floating-point type (got %v, whose sum may not fit): use %v and divide", k.op, k.dt, mem.Sum)
	case k.root < 0 || k.root >= size:
		return 0, fmt.Errorf("root %d is not a rank of a communicator of %d", k.root, size)
	}
	bytes := k.send.Len()
	if !k.needsSend {
		bytes = k.recv.Len()
	}
	switch {
	case bytes%k.dt.Size() != 0:
		return 0, fmt.Errorf("a buffer of %d bytes does not hold whole elements of %s", bytes, k.dt)
	case k.needsRecv && k.recv.Len() != bytes:
		return 0, fmt.Errorf("the send buffer has %d bytes, the receive buffer %d", bytes, k.recv.Len())
	case k.needsSend && k.needsRecv && k.send.Overlaps(k.recv) && !k.send.Same(k.recv):
		return 0, fmt.Errorf("the send and receive buffers overlap in part: give the same buffer twice, or two apart")
	}
	return bytes / k.dt.Size(), nil
}

// plan returns the compiled schedule of a call, built at its first use. text
// stands for all that build depends on besides the call.
func (c *Comm) plan(k spec.Call, text string, build func(spec.Call) (*schedule.Schedule, error)) (*nbc.Plan, error) {
	return c.plans.get(planKey{k.Collective, k.Root, k.Count, k.ElemSize, k.Scaled, text}, func() (*schedule.Schedule, error) { return build(k) })
}
