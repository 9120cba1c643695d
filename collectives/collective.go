package collectives

import (
	"context"
	"math"
	"time"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// Reduce combines every rank's send into root's recv, element by element. The
// lengths of send must be equal on all ranks; recv counts at root only, is as
// long, and may be the same buffer as send (in place), but not overlap it in part.
//
// The sums of integers wrap around, but for those of 8 and 16 bits that the spec mpi is asked for:
// Open MPI's own saturate on some processors. mem.Avg is for floating-point types; of f16 and
// bf16 it does not overflow where the average itself does not.
func (c *Comm) Reduce(ctx context.Context, send, recv mem.Buffer, dt mem.Datatype, op mem.Op, root int, opts ...Option) error {
	k := c.reduce(send, recv, dt, op, root)
	return c.run(ctx, &k, opts)
}

// Bcast copies root's buf to every other rank's buf. All are equally long.
func (c *Comm) Bcast(ctx context.Context, buf mem.Buffer, dt mem.Datatype, root int, opts ...Option) error {
	k := c.bcast(buf, dt, root)
	return c.run(ctx, &k, opts)
}

// Allreduce combines every rank's send into every rank's recv, element by element,
// with the same bits on all ranks. Buffers are as for Reduce.
func (c *Comm) Allreduce(ctx context.Context, send, recv mem.Buffer, dt mem.Datatype, op mem.Op, opts ...Option) error {
	k := c.allreduce(send, recv, dt, op)
	return c.run(ctx, &k, opts)
}

// Allgather copies every rank's send to every rank's recv, one part after the other in
// the order of ranks. counts[r] is how many elements rank r's part has, 0 included, alike
// on all ranks; nil: all parts are equally long. recv holds all parts, send this rank's:
// it may be that part of recv (in place), but not overlap recv otherwise.
func (c *Comm) Allgather(ctx context.Context, send, recv mem.Buffer, counts []int, dt mem.Datatype, opts ...Option) error {
	k := c.allgather(send, recv, counts, dt)
	return c.run(ctx, &k, opts)
}

// Gather copies every rank's send to root's recv, one part after the other in the order
// of ranks. Parts and buffers are as for Allgather; recv counts at root only.
func (c *Comm) Gather(ctx context.Context, send, recv mem.Buffer, counts []int, dt mem.Datatype, root int, opts ...Option) error {
	k := c.gather(send, recv, counts, dt, root)
	return c.run(ctx, &k, opts)
}

// Scatter copies each rank's part of root's send to that rank's recv: counts[r] elements for rank r, as those of
// Allgather. send counts at root only and holds all parts; root's recv may be its part of send (in place), but not
// overlap send otherwise.
func (c *Comm) Scatter(ctx context.Context, send, recv mem.Buffer, counts []int, dt mem.Datatype, root int, opts ...Option) error {
	k := c.scatter(send, recv, counts, dt, root)
	return c.run(ctx, &k, opts)
}

// ReduceScatter combines every rank's send, element by element, and leaves in each rank's
// recv its part of the result: counts[r] elements for rank r, 0 included, one part after
// the other in the order of ranks, alike on all ranks; nil: all parts are equally long.
// send holds all parts, recv this rank's: it may be that part of send (in place, where
// MPI_IN_PLACE puts the result at the front of the buffer), but not overlap send otherwise.
func (c *Comm) ReduceScatter(ctx context.Context, send, recv mem.Buffer, counts []int, dt mem.Datatype, op mem.Op, opts ...Option) error {
	k := c.reduceScatter(send, recv, counts, dt, op)
	return c.run(ctx, &k, opts)
}

// Alltoall copies block k of every rank's send to rank k's recv, one block after the other in the order
// of ranks. Both hold a block for every rank, all equally long, and do not overlap. It is MPI's personalized
// exchange, without its MPI_IN_PLACE.
func (c *Comm) Alltoall(ctx context.Context, send, recv mem.Buffer, dt mem.Datatype, opts ...Option) error {
	k := c.alltoall(send, recv, dt)
	return c.run(ctx, &k, opts)
}

// Do does a collective.
func (c *Comm) Do(ctx context.Context, k Call, opts ...Option) error {
	one := c.call(k)
	return c.run(ctx, &one, opts)
}

// Barrier returns when every rank has called it. It is an Allreduce of a
// byte: a spec for one serves the other.
func (c *Comm) Barrier(ctx context.Context, opts ...Option) error {
	return c.Allreduce(ctx, c.barrier, c.barrier, mem.Uint8, mem.Max, opts...)
}

// Ireduce starts a Reduce and returns at once. The buffers belong to the request
// until it has been waited for; then it must be closed.
func (c *Comm) Ireduce(send, recv mem.Buffer, dt mem.Datatype, op mem.Op, root int, opts ...Option) (*nbc.Request, error) {
	k := c.reduce(send, recv, dt, op, root)
	return c.start(&k, opts)
}

// Ibcast starts a Bcast, as Ireduce does a Reduce.
func (c *Comm) Ibcast(buf mem.Buffer, dt mem.Datatype, root int, opts ...Option) (*nbc.Request, error) {
	k := c.bcast(buf, dt, root)
	return c.start(&k, opts)
}

// Iallreduce starts an Allreduce, as Ireduce does a Reduce.
func (c *Comm) Iallreduce(send, recv mem.Buffer, dt mem.Datatype, op mem.Op, opts ...Option) (*nbc.Request, error) {
	k := c.allreduce(send, recv, dt, op)
	return c.start(&k, opts)
}

// Iallgather starts an Allgather, as Ireduce does a Reduce.
func (c *Comm) Iallgather(send, recv mem.Buffer, counts []int, dt mem.Datatype, opts ...Option) (*nbc.Request, error) {
	k := c.allgather(send, recv, counts, dt)
	return c.start(&k, opts)
}

// Igather starts a Gather, as Ireduce does a Reduce.
func (c *Comm) Igather(send, recv mem.Buffer, counts []int, dt mem.Datatype, root int, opts ...Option) (*nbc.Request, error) {
	k := c.gather(send, recv, counts, dt, root)
	return c.start(&k, opts)
}

// Iscatter starts a Scatter, as Ireduce does a Reduce.
func (c *Comm) Iscatter(send, recv mem.Buffer, counts []int, dt mem.Datatype, root int, opts ...Option) (*nbc.Request, error) {
	k := c.scatter(send, recv, counts, dt, root)
	return c.start(&k, opts)
}

// IreduceScatter starts a ReduceScatter, as Ireduce does a Reduce.
func (c *Comm) IreduceScatter(send, recv mem.Buffer, counts []int, dt mem.Datatype, op mem.Op, opts ...Option) (*nbc.Request, error) {
	k := c.reduceScatter(send, recv, counts, dt, op)
	return c.start(&k, opts)
}

// Ialltoall starts an Alltoall, as Ireduce does a Reduce.
func (c *Comm) Ialltoall(send, recv mem.Buffer, dt mem.Datatype, opts ...Option) (*nbc.Request, error) {
	k := c.alltoall(send, recv, dt)
	return c.start(&k, opts)
}

// Start starts a collective, as Ireduce does a Reduce.
func (c *Comm) Start(k Call, opts ...Option) (*nbc.Request, error) {
	one := c.call(k)
	return c.start(&one, opts)
}

// ReduceInit makes a persistent request for Reduce: to be started (Start) and waited
// for (Wait) any number of times, one execution at a time, and closed at the end.
// Preparing it once saves each execution the search for its plan.
func (c *Comm) ReduceInit(send, recv mem.Buffer, dt mem.Datatype, op mem.Op, root int, opts ...Option) (*nbc.Request, error) {
	return c.create(c.reduce(send, recv, dt, op, root).persist(), opts)
}

// BcastInit makes a persistent request for Bcast, as ReduceInit does for Reduce.
func (c *Comm) BcastInit(buf mem.Buffer, dt mem.Datatype, root int, opts ...Option) (*nbc.Request, error) {
	return c.create(c.bcast(buf, dt, root).persist(), opts)
}

// AllreduceInit makes a persistent request for Allreduce, as ReduceInit does for
// Reduce.
func (c *Comm) AllreduceInit(send, recv mem.Buffer, dt mem.Datatype, op mem.Op, opts ...Option) (*nbc.Request, error) {
	return c.create(c.allreduce(send, recv, dt, op).persist(), opts)
}

// AllgatherInit makes a persistent request for Allgather, as ReduceInit does for Reduce.
func (c *Comm) AllgatherInit(send, recv mem.Buffer, counts []int, dt mem.Datatype, opts ...Option) (*nbc.Request, error) {
	return c.create(c.allgather(send, recv, counts, dt).persist(), opts)
}

// GatherInit makes a persistent request for Gather, as ReduceInit does for Reduce.
func (c *Comm) GatherInit(send, recv mem.Buffer, counts []int, dt mem.Datatype, root int, opts ...Option) (*nbc.Request, error) {
	return c.create(c.gather(send, recv, counts, dt, root).persist(), opts)
}

// ScatterInit makes a persistent request for Scatter, as ReduceInit does for Reduce.
func (c *Comm) ScatterInit(send, recv mem.Buffer, counts []int, dt mem.Datatype, root int, opts ...Option) (*nbc.Request, error) {
	return c.create(c.scatter(send, recv, counts, dt, root).persist(), opts)
}

// ReduceScatterInit makes a persistent request for ReduceScatter, as ReduceInit does for Reduce.
func (c *Comm) ReduceScatterInit(send, recv mem.Buffer, counts []int, dt mem.Datatype, op mem.Op, opts ...Option) (*nbc.Request, error) {
	return c.create(c.reduceScatter(send, recv, counts, dt, op).persist(), opts)
}

// AlltoallInit makes a persistent request for Alltoall, as ReduceInit does for Reduce.
func (c *Comm) AlltoallInit(send, recv mem.Buffer, dt mem.Datatype, opts ...Option) (*nbc.Request, error) {
	return c.create(c.alltoall(send, recv, dt).persist(), opts)
}

// Init makes a persistent request for a collective, as ReduceInit does for Reduce.
func (c *Comm) Init(k Call, opts ...Option) (*nbc.Request, error) {
	return c.create(c.call(k).persist(), opts)
}

// Option says how one collective is to be done; the zero Option says nothing. All
// ranks give the same options, but for Within, Priority, Credit, About and Served.
type Option struct {
	set    setting
	spec   spec.Spec
	cuts   []int
	number int64
	about  *nbc.About
}

// setting is what an Option sets.
type setting uint8

const (
	setNothing setting = iota
	setSpec
	setDeadline
	setBuffers
	setPriority
	setCredit
	setParts
	setAbout
)

func (o *Option) apply(k *call) {
	switch o.set {
	case setSpec:
		k.spec = o.spec
	case setDeadline:
		k.deadline = time.Duration(o.number)
	case setBuffers:
		k.buffers = selection.BufferKind(o.number)
	case setPriority:
		k.priority = int(o.number)
	case setCredit:
		k.credit = int32(max(-1, min(o.number, math.MaxInt32)))
	case setParts:
		k.cuts = o.cuts
	case setAbout:
		k.about = o.about
	}
}

// With asks for a spec, whatever was tuned, configured or asked for elsewhere.
func With(s spec.Spec) Option { return Option{set: setSpec, spec: s} }

// Within bounds the time of one execution, in place of the engine's deadline
// (nbc.Options).
func Within(d time.Duration) Option { return Option{set: setDeadline, number: int64(d)} }

// Buffers says which kind of memory the call's buffers are in, on all ranks: of host memory. That they lie in a GPU's the
// call sees by itself.
func Buffers(kind selection.BufferKind) Option { return Option{set: setBuffers, number: int64(kind)} }

// Priority says how soon the collective's result is needed, 0 the soonest: where
// several share a link, its large messages go before those of higher numbers.
func Priority(n int) Option { return Option{set: setPriority, number: int64(n)} }

// About has errors of a persistent request say what it moves, such as "slice 17 of fc6", beside which message of which collective.
func About(what string) Option { return Option{set: setAbout, about: &nbc.About{What: what}} }

// Served is About, of what a rank of the communicator serves: that is said too, where it is waited for.
func Served(what string, server int) Option {
	return Option{set: setAbout, about: &nbc.About{What: what, Served: true, Server: server}}
}

// Credit has the order of Priority hold for all the other nodes together: of the collectives
// with a credit at most so many bytes of large messages, or one of more, are under way to them, and the most urgent is the next to
// leave. With 0 each link between two ranks has an order of its own, and two messages under way.
func Credit(bytes int) Option { return Option{set: setCredit, number: int64(bytes)} }
