package collectives

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
)

// Call is any collective, as data, with the arguments of the method of its name: what
// programs make that are about collectives rather than about one of them.
type Call struct {
	Collective schedule.Collective
	Send, Recv mem.Buffer
	Counts     []int // of an Allgather, Gather, Scatter or ReduceScatter
	Datatype   mem.Datatype
	Op         mem.Op // of a reduction
	Root       int    // of a Reduce, Bcast, Gather or Scatter
}

// Given returns the buffer that a rank contributes; it is empty on ranks that only receive.
func (k Call) Given(rank int) mem.Buffer {
	switch k.Collective {
	case schedule.Bcast:
		if rank == k.Root {
			return k.Recv
		}
	case schedule.Scatter:
		if rank == k.Root {
			return k.Send
		}
	default:
		return k.Send
	}
	return mem.Buffer{}
}

// call is a collective as asked for.
type call struct {
	collective schedule.Collective
	root       int
	send       mem.Buffer
	recv       mem.Buffer
	counts     []int // nil: equal
	off        int   // where this rank's part begins in the buffer of all, in elements
	dt         mem.Datatype
	op         mem.Op
	credit     int32
	spec       spec.Spec
	cuts       []int // see Parts
	about      *nbc.About
	priority   int
	deadline   time.Duration
	buffers    selection.BufferKind
	needsSend  bool
	needsRecv  bool
	blocking   bool
	persistent bool
	library    bool // done by the blocking form of the library's own
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

func (c *Comm) allgather(send, recv mem.Buffer, counts []int, dt mem.Datatype) call {
	return call{collective: schedule.Allgather, send: send, recv: recv, counts: counts, dt: dt, needsSend: true, needsRecv: true}
}

func (c *Comm) gather(send, recv mem.Buffer, counts []int, dt mem.Datatype, root int) call {
	return call{collective: schedule.Gather, root: root, send: send, recv: recv, counts: counts, dt: dt, needsSend: true, needsRecv: c.rank == root}
}

func (c *Comm) scatter(send, recv mem.Buffer, counts []int, dt mem.Datatype, root int) call {
	return call{collective: schedule.Scatter, root: root, send: send, recv: recv, counts: counts, dt: dt, needsSend: c.rank == root, needsRecv: true}
}

func (c *Comm) reduceScatter(send, recv mem.Buffer, counts []int, dt mem.Datatype, op mem.Op) call {
	return call{collective: schedule.ReduceScatter, send: send, recv: recv, counts: counts, dt: dt, op: op, needsSend: true, needsRecv: true}
}

func (c *Comm) alltoall(send, recv mem.Buffer, dt mem.Datatype) call {
	return call{collective: schedule.Alltoall, send: send, recv: recv, dt: dt, needsSend: true, needsRecv: true}
}

// call returns k as its method makes it.
func (c *Comm) call(k Call) call {
	switch k.Collective {
	case schedule.Reduce:
		return c.reduce(k.Send, k.Recv, k.Datatype, k.Op, k.Root)
	case schedule.Bcast:
		return c.bcast(k.Recv, k.Datatype, k.Root)
	case schedule.Allgather:
		return c.allgather(k.Send, k.Recv, k.Counts, k.Datatype)
	case schedule.Gather:
		return c.gather(k.Send, k.Recv, k.Counts, k.Datatype, k.Root)
	case schedule.Scatter:
		return c.scatter(k.Send, k.Recv, k.Counts, k.Datatype, k.Root)
	case schedule.ReduceScatter:
		return c.reduceScatter(k.Send, k.Recv, k.Counts, k.Datatype, k.Op)
	case schedule.Alltoall:
		return c.alltoall(k.Send, k.Recv, k.Datatype)
	}
	one := c.allreduce(k.Send, k.Recv, k.Datatype, k.Op)
	one.collective = k.Collective
	return one
}

// control is how the package's own collectives are done, such as those of
// Agree: whatever was tuned or asked for, and within deadlines.
var control = With(spec.Spec{Levels: []spec.Level{{Algorithm: "binomial"}}})

// with applies the communicator's options and a call's own.
func (k *call) with(c *Comm, opts []Option) {
	k.buffers = c.opts.Buffers
	for i := range opts {
		opts[i].apply(k)
	}
	switch {
	case k.space() == mem.CUDA:
		k.buffers = selection.CUDA
	case k.buffers == selection.CUDA: // the option says so, and these do not lie there
		k.buffers = selection.Registered
	}
}

// space returns the memory that the call's buffers lie in on this rank: an empty one counts where it says that it lies in a GPU's.
func (k *call) space() mem.Space {
	if k.needsSend && (k.send.Len() > 0 || k.send.Space() != mem.Host) {
		return k.send.Space()
	}
	if k.needsRecv {
		return k.recv.Space()
	}
	return mem.Host
}

// create makes a persistent request.
func (c *Comm) create(k call, opts []Option) (*nbc.Request, error) {
	k.with(c, opts)
	return c.init(k)
}

// init checks a call, finds its plan and binds it. Every call takes an
// instance number, failed ones too, so that the ranks keep counting alike.
func (c *Comm) init(k call) (*nbc.Request, error) {
	instance, err := c.nextInstance(k.persistent)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", k.collective, err)
	}
	fail := func(err error) (*nbc.Request, error) {
		return nil, fmt.Errorf("%s: %w", nbc.RequestName(k.collective.String(), instance), err)
	}
	count, err := k.check(c)
	if err != nil {
		return fail(err)
	}
	plan, text, err := c.planned(&k, count)
	if err != nil {
		return fail(err)
	}
	bind := nbc.Binding{
		Name: k.collective.String(), Call: k.describe(count, text), In: k.send, Out: k.recv, Datatype: k.dt, Op: k.op,
		Comm: c.id, Instance: instance, Ranks: c.ranks, Deadline: k.deadline, Priority: k.priority, Credit: int(k.credit), About: k.about,
	}
	switch {
	case k.collective.Gathers():
		bind.InAt = k.off
	case k.collective.Parts():
		bind.OutAt = k.off
	}
	if k.op == mem.Avg {
		k.op, bind.Op = mem.Sum, mem.Sum
		scale, divide := averaging(k.dt, c.Size())
		bind.Scale = scale
		if k.needsRecv && k.recv.Len() > 0 && divide != 1 {
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
		k.library = err == nil && choice.Spec.LibraryBlocks()
		return nil, choice.Text, err
	}
	plan, err := c.plan(k.at(c, count), choice.Text, func(at spec.Call) (*schedule.Schedule, error) { return spec.Build(at, choice.Spec) })
	return plan, choice.Text, err
}

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
	return uint32(c.counts[kind])&^nbc.Persistent | bit
}

// library prepares a call of the MPI library's own collective.
func (c *Comm) library(b nbc.Binding, k call, count int) (*nbc.Request, error) {
	return c.engine.PrepareLibrary(nbc.LibraryCall{
		Collective: k.collective,
		Send:       k.send, Recv: k.recv, Count: count, Counts: slices.Clone(k.counts), Datatype: k.dt, Op: k.op, Root: k.root, Blocking: k.library,
	}, b)
}

// describe returns the call in words, equal on all ranks that call alike.
func (k *call) describe(count int, spec string) string {
	name := k.collective.String()
	if k.op == mem.Avg {
		name = "averaging " + name // its op is Sum to the engine
	}
	memory := ""
	if k.buffers == selection.CUDA {
		memory = " in " + mem.CUDA.String() + " memory"
	}
	return name + " of " + strconv.Itoa(count) + " elements" + memory + k.describeParts() + ", root " + strconv.Itoa(k.root) + ", spec " + spec
}

// bytes returns how many the call moves.
func (k *call) bytes() int { return max(k.send.Len(), k.recv.Len()) }

// check reports what is wrong with a call's arguments on this rank, or returns the
// number of elements.
func (k *call) check(c *Comm) (count int, err error) {
	size := c.Size()
	switch {
	case !k.collective.Valid():
		return 0, fmt.Errorf("unknown %v: use one of %v", k.collective, schedule.Collectives)
	case !k.dt.Valid():
		return 0, fmt.Errorf("unknown datatype %v: use one of %v", k.dt, mem.Datatypes)
	case !k.op.Valid() && k.op != mem.Avg:
		return 0, fmt.Errorf("unknown op %v: use one of %v or %v", k.op, mem.Ops, mem.Avg)
	case k.op != mem.Avg && !k.op.Combines(k.dt):
		return 0, fmt.Errorf("op %v combines integers (got %v): use one of %v or %v", k.op, k.dt, mem.OpsOf(k.dt), mem.Avg)
	case k.op == mem.Avg && !k.dt.Float():
		return 0, fmt.Errorf("op %v needs a floating-point type (got %v, whose sum may not fit): use %v and divide", k.op, k.dt, mem.Sum)
	case k.root < 0 || k.root >= size:
		return 0, fmt.Errorf("root must be a rank of the communicator, in [0,%d) (got %d)", size, k.root)
	case k.credit < 0:
		return 0, fmt.Errorf("option Credit must not be negative (got %d): 0 binds each link by itself", k.credit)
	case k.deadline < 0:
		return 0, fmt.Errorf("option Within must not be negative (got %v)", k.deadline)
	case !k.buffers.Valid():
		return 0, fmt.Errorf("option Buffers: unknown %v: use %v or %v", k.buffers, selection.Registered, selection.Unregistered)
	}
	if k.collective.Parts() {
		return k.checkParts(c)
	}
	bytes := k.send.Len()
	if !k.needsSend {
		bytes = k.recv.Len()
	}
	for _, b := range []struct {
		name   string
		needed bool
		buffer mem.Buffer
	}{{"send", k.needsSend, k.send}, {"receive", k.needsRecv, k.recv}} {
		if !b.needed {
			continue
		}
		if err := k.checkBuffer(c, b.name, b.buffer); err != nil {
			return 0, err
		}
		if b.buffer.Len() != bytes {
			return 0, fmt.Errorf("the buffers must be equally long: send has %d bytes, receive has %d", bytes, b.buffer.Len())
		}
	}
	if k.collective == schedule.Alltoall {
		return k.checkBlocks(size, bytes/k.dt.Size())
	}
	if k.needsSend && k.needsRecv && k.send.Overlaps(k.recv) && !k.send.Same(k.recv) {
		return 0, errors.New("the send and receive buffers overlap in part: use one buffer for both, or two that lie apart")
	}
	return bytes / k.dt.Size(), nil
}

// checkBlocks is check of an alltoall of count elements, with buffers that are right by themselves.
func (k *call) checkBlocks(size, count int) (int, error) {
	switch {
	case count%size != 0:
		return 0, fmt.Errorf("the buffers have %d elements, which are not equal blocks for %d ranks", count, size)
	case len(k.cuts) > 0:
		return 0, errors.New("option Parts does not go with an alltoall, whose buffers are made of the ranks' blocks")
	case k.send.Overlaps(k.recv):
		return 0, errors.New("the send buffer overlaps the receive buffer: an alltoall needs two that lie apart")
	}
	return count, nil
}

// checkBuffer reports what is wrong with a buffer that the call needs.
func (k *call) checkBuffer(c *Comm, name string, b mem.Buffer) error {
	switch served := c.engine.Serves(b.Space()); {
	case b.Len()%k.dt.Size() != 0:
		return fmt.Errorf("the %s buffer has %d bytes, which are not whole elements of %v (%d bytes each)", name, b.Len(), k.dt, k.dt.Size())
	case !served:
		return fmt.Errorf("the %s buffer lies in %v memory: this rank's engine serves %v memory only", name, b.Space(), mem.Host)
	case b.Len() > 0 && b.Space() != k.space():
		return fmt.Errorf("the %s buffer lies in %v memory, and the other one in %v memory: want both in one", name, b.Space(), k.space())
	}
	return nil
}

// plan returns the compiled schedule of a call, built at its first use. text
// stands for all that build depends on besides the call.
func (c *Comm) plan(k spec.Call, text string, build func(spec.Call) (*schedule.Schedule, error)) (*nbc.Plan, error) {
	return c.plans.get(planKey{k.Collective, k.Root, k.Count, k.ElemSize, k.Scaled, k.Apart, countsKey(k.Counts), text}, func() (*schedule.Schedule, error) { return build(k) })
}
