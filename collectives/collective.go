package collectives

import (
	"context"
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
// The sums of integers wrap around. mem.Avg is for floating-point types; of f16 and
// bf16 it does not overflow where the average itself does not.
func (c *Comm) Reduce(ctx context.Context, send, recv mem.Buffer, dt mem.Datatype, op mem.Op, root int, opts ...Option) error {
	return c.run(ctx, c.reduce(send, recv, dt, op, root), opts)
}

// Bcast copies root's buf to every other rank's buf. All are equally long.
func (c *Comm) Bcast(ctx context.Context, buf mem.Buffer, dt mem.Datatype, root int, opts ...Option) error {
	return c.run(ctx, c.bcast(buf, dt, root), opts)
}

// Allreduce combines every rank's send into every rank's recv, element by element,
// with the same bits on all ranks. Buffers are as for Reduce.
func (c *Comm) Allreduce(ctx context.Context, send, recv mem.Buffer, dt mem.Datatype, op mem.Op, opts ...Option) error {
	return c.run(ctx, c.allreduce(send, recv, dt, op), opts)
}

// Barrier returns when every rank has called it.
func (c *Comm) Barrier(ctx context.Context) error {
	one := mem.Of(make([]uint8, 1))
	return c.Allreduce(ctx, one, one, mem.Uint8, mem.Max, control)
}

// Ireduce starts a Reduce and returns at once. The buffers belong to the request
// until it has been waited for; then it must be closed.
func (c *Comm) Ireduce(send, recv mem.Buffer, dt mem.Datatype, op mem.Op, root int, opts ...Option) (*nbc.Request, error) {
	return started(c.init(c.reduce(send, recv, dt, op, root), opts))
}

// Ibcast starts a Bcast, as Ireduce does a Reduce.
func (c *Comm) Ibcast(buf mem.Buffer, dt mem.Datatype, root int, opts ...Option) (*nbc.Request, error) {
	return started(c.init(c.bcast(buf, dt, root), opts))
}

// Iallreduce starts an Allreduce, as Ireduce does a Reduce.
func (c *Comm) Iallreduce(send, recv mem.Buffer, dt mem.Datatype, op mem.Op, opts ...Option) (*nbc.Request, error) {
	return started(c.init(c.allreduce(send, recv, dt, op), opts))
}

// ReduceInit makes a persistent request for Reduce: to be started (Start) and waited
// for (Wait) any number of times, one execution at a time, and closed at the end.
// Preparing it once saves each execution the search for its plan.
func (c *Comm) ReduceInit(send, recv mem.Buffer, dt mem.Datatype, op mem.Op, root int, opts ...Option) (*nbc.Request, error) {
	return c.init(c.reduce(send, recv, dt, op, root).persist(), opts)
}

// BcastInit makes a persistent request for Bcast, as ReduceInit does for Reduce.
func (c *Comm) BcastInit(buf mem.Buffer, dt mem.Datatype, root int, opts ...Option) (*nbc.Request, error) {
	return c.init(c.bcast(buf, dt, root).persist(), opts)
}

// AllreduceInit makes a persistent request for Allreduce, as ReduceInit does for
// Reduce.
func (c *Comm) AllreduceInit(send, recv mem.Buffer, dt mem.Datatype, op mem.Op, opts ...Option) (*nbc.Request, error) {
	return c.init(c.allreduce(send, recv, dt, op).persist(), opts)
}

// Option says how one collective is to be done. All ranks give the same options,
// but for Within and Priority.
type Option func(*call)

// With asks for a spec, whatever was tuned, configured or asked for elsewhere.
func With(s spec.Spec) Option { return func(c *call) { c.spec = s } }

// Within bounds the time of one execution, in place of the engine's deadline
// (nbc.Options).
func Within(d time.Duration) Option { return func(c *call) { c.deadline = d } }

// Buffers says which kind of memory the call's buffers are in, on all ranks.
func Buffers(kind selection.BufferKind) Option { return func(c *call) { c.buffers = kind } }

// Priority says how soon the collective's result is needed, 0 the soonest: where
// several share a link, its large messages go before those of higher numbers.
func Priority(n int) Option { return func(c *call) { c.priority = n } }
