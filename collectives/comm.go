package collectives

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// Options of a communicator; the zero value is good.
type Options struct {
	// Spec, unless it has no levels, is how every collective is done that
	// does not say so itself.
	Spec spec.Spec
	// Tuned has Configure pass over SCAFFE_ALGORITHM, which names a spec where Spec
	// does not: every call is selected for.
	Tuned bool
	// Table, unless empty, is the file of a tuning table, which decides where
	// Spec does not. Configure reads it.
	Table string
	// Buffers is the kind of the buffers of calls that do not say so
	// themselves.
	Buffers selection.BufferKind
	// Measure asks Configure to measure for the cost model what no table says: this
	// machine, unless that was done before, and the network.
	Measure bool
	// Node is what the measurements of this rank's machine are kept under; without
	// a host they are not kept.
	Node selection.Node
	// Machine is what this machine is, to be compared with a table's.
	Machine selection.Machine
}

// Comm is a communicator: an ordered set of ranks that do collectives
// together. Every rank must create the same collectives in the same order
// (Reduce, Ireduce and ReduceInit each create one); requests may be started in any order, but for
// those of the MPI library's own (spec mpi), whose rule is one order on all
// ranks. Collectives that run once and persistent requests (Init) are counted
// apart. Any number of communicators and requests may be in use together.
type Comm struct {
	engine *nbc.Engine
	opts   Options
	gpu    *GPU // of HasGPU
	id     uint64
	rank   int
	ranks  []int // ranks[i] is rank i's in the world
	nodes  []int // by rank

	layout  spec.Layout
	plans   *plans
	barrier mem.Buffer // what Barrier combines, by itself: C may not see the rest of a Comm

	mu       sync.Mutex
	selector *selection.Selector
	kept     [2]keptCalls // of calls that do not block, and of those that do
	choices  lru[selection.Query, *selection.Choice]
	counts   [2]uint64 // of the collectives that run once, and of persistent requests
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

// On returns the same ranks' communicator of another engine, which selects as this one does now: World without a Configure of its
// own. There is one in the life of an engine.
func (c *Comm) On(e *nbc.Engine) *Comm {
	return newComm(e, c.opts, c.Selector(), worldID, c.rank, c.ranks)
}

func newComm(e *nbc.Engine, opts Options, selector *selection.Selector, id uint64, rank int, ranks []int) *Comm {
	c := &Comm{
		engine: e, opts: opts, selector: selector, id: id, rank: rank, ranks: ranks, barrier: mem.Of(make([]uint8, 1)),
		plans: newPlans(keptOps), choices: lru[selection.Query, *selection.Choice]{room: keptChoices},
	}
	nodes := e.Nodes()
	for _, r := range ranks {
		c.nodes = append(c.nodes, nodes[r])
	}
	c.layout = spec.LayoutOf(c.nodes)
	c.plans.nodes = c.nodes
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

// AllocIn returns n bytes of a memory that the communicator's engine serves: of the host's as Alloc does, of a
// GPU's with undefined contents; an error where buffers of its collectives cannot lie there.
func (c *Comm) AllocIn(space mem.Space, n int) (mem.Buffer, error) {
	if n < 0 {
		return mem.Buffer{}, fmt.Errorf("collectives: allocation of %d bytes", n)
	}
	return c.engine.AllocIn(space, n)
}

// Copy makes dst hold what src does on this rank, whose memories may differ; see nbc.Engine.Copy.
func (c *Comm) Copy(ctx context.Context, dst, src mem.Buffer) error {
	return c.engine.Copy(ctx, dst, src)
}

// Free gives back what Alloc or AllocIn returned.
func (c *Comm) Free(b mem.Buffer) { c.engine.Free(b) }

// Payload returns what the messages of this rank's collectives held so far, of all
// communicators of its engine; see nbc.Engine.Payload.
func (c *Comm) Payload() nbc.Payload { return c.engine.Payload() }

// Order returns what became of the order of urgency on this rank, of all communicators of its engine;
// see nbc.Engine.Order.
func (c *Comm) Order() nbc.Order { return c.engine.Order() }

// TakeOrder is Order, and begins to count anew; see nbc.Engine.TakeOrder.
func (c *Comm) TakeOrder() nbc.Order { return c.engine.TakeOrder() }

// HandleDisorder has f called with each event that Order counts from now on, of all communicators of the engine; nil ends that.
// See nbc.Engine.HandleDisorder.
func (c *Comm) HandleDisorder(f func(nbc.Disorder)) { c.engine.HandleDisorder(f) }

// Select returns what serves a call, and why. asked is what the call itself
// asks for; it has no levels where it leaves the choice.
func (c *Comm) Select(q selection.Query, asked spec.Spec) (*selection.Choice, error) {
	selector := c.Selector()
	if len(asked.Levels) > 0 {
		choice, err := selector.Select(c.layout, q, asked)
		return &choice, err
	}
	q = selector.Class(q)
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
