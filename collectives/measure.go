package collectives

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/host"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
)

// How much is measured of a machine: in all a fraction of a second.
const (
	repetitions = 81                   // of what takes some microseconds,
	longer      = 5                    // of what takes a millisecond or so,
	longest     = 3                    // and of what takes several
	streamed    = 64                   // messages whose rate tells what a short op costs
	shortChunk  = 16                   // bytes of each of them where the caller executes the ops alone
	opChunk     = 8 << 10              // the least that the engine executes,
	streamChunk = 16 << 10             // and of the messages whose rate tells what one of its ops costs
	loneCopy    = sim.HalvedFrom / 2   // a message that one rank copies
	leastStaged = 128 << 10            // the least that the kernel copies out of memory that is not registered where ranks share cores,
	attempts    = 3                    // at messages between two cores
	nap         = 2 * time.Millisecond // of a rank on another's core,
	naps        = 50                   // at most
	mostAtOnce  = 512 << 20            // bytes that all ranks of a node use together
)

// rule asks for the spec of a measurement.
func rule(algorithm string, chunk int) Option {
	return With(spec.Spec{Levels: []spec.Level{{Algorithm: algorithm, Chunk: chunk}}})
}

// parameters is a collective of the ranks of a node that measures what the cost
// model needs to know of it. cores is the number of the node's cores, cache the size
// in bytes of each one's own cache. The result counts on rank 0.
func (c *Comm) parameters(ctx context.Context, cores int, cache float64) (selection.Costs, error) {
	if c.Size() < 2 {
		return aloneCosts(cache), nil
	}
	color := -1
	if c.rank < 2 {
		color = 0
	}
	pair, err := c.Split(ctx, color, 0)
	if err != nil {
		return selection.Costs{}, err
	}
	m := &measurement{ctx: ctx, cache: cache, crowded: cores < c.Size()}
	if pair != nil {
		defer pair.Close()
		m.comm = pair
		m.messages()
		m.copies()
	}
	if err := c.Agree(ctx, m.err); err != nil {
		return m.costs, err
	}
	m.comm = c
	m.model = m.costs.On(selection.Default().Model.On(cores))
	m.model.Cache = cache
	if m.crowded {
		m.switches()
	}
	m.all(min(cores, c.Size()))
	return m.costs, m.err
}

// measurement is one under way: as soon as something has failed, nothing more is done.
type measurement struct {
	ctx   context.Context
	comm  *Comm
	cache float64
	costs selection.Costs
	model sim.Model // what the costs of messages and of copies come to
	// crowded says that the node has more ranks than cores, so that one rank alone
	// copies a message.
	crowded bool
	// before, where it is not nil, is done before each call, and is not part of its time.
	before func()
	err    error
}

// time returns the shortest of n times of do, in seconds, as the slowest rank sees it.
func (m *measurement) time(n int, do func() error) float64 { return m.times(n, do)[0] }

// times returns all of them, the shortest first.
func (m *measurement) times(n int, do func() error) []float64 {
	took := make([]float64, n)
	for i := range took {
		if m.before != nil {
			m.before()
		}
		if m.err == nil {
			m.err = m.comm.Barrier(m.ctx)
		}
		from := time.Now()
		if m.err == nil {
			m.err = do()
		}
		took[i] = time.Since(from).Seconds()
	}
	if m.err == nil {
		m.err = m.comm.Allreduce(m.ctx, mem.Of(took), mem.Of(took), mem.Float64, mem.Max, control)
	}
	slices.Sort(took)
	return took
}

// bcast returns what broadcasts b in chunks from rank 0 and waits until the last
// rank has it.
func (m *measurement) bcast(b mem.Buffer, algorithm string, chunk int) func() error {
	answer := mem.Of(make([]byte, 1))
	how := rule(algorithm, chunk)
	last := m.comm.Size() - 1
	return func() error {
		if err := m.comm.Bcast(m.ctx, b, mem.Uint8, 0, how); err != nil {
			return err
		}
		return m.comm.Bcast(m.ctx, answer, mem.Uint8, last, control)
	}
}

// hop returns the time of n bytes one way, to and fro: what arrives goes back.
func (m *measurement) hop(b mem.Buffer, n int) float64 {
	how := rule("chain", b.Len())
	return m.time(n, func() error {
		for range 2 {
			for root := range 2 {
				if err := m.comm.Bcast(m.ctx, b, mem.Uint8, root, how); err != nil {
					return err
				}
			}
		}
		return nil
	}) / 4
}

// separate waits, for a tenth of a second at most, until each rank has a core to itself, where there are as many: the kernel
// may have started two on one, and leaves them there while they do nothing but wait for each other.
func (m *measurement) separate() {
	for range naps {
		apart, first := m.apart()
		if apart {
			return
		}
		if !first {
			time.Sleep(nap)
		}
	}
}

// apart reports whether each rank is on a core of its own, as far as that can be and is known, and whether this one is the
// first of those on its core.
func (m *measurement) apart() (apart, first bool) {
	cores := make([]int32, m.comm.Size())
	cores[m.comm.rank] = int32(host.Core())
	if m.err == nil {
		m.err = m.comm.Allreduce(m.ctx, mem.Of(cores), mem.Of(cores), mem.Int32, mem.Sum, control)
	}
	first = slices.Index(cores, cores[m.comm.rank]) == m.comm.rank
	apart = len(slices.Compact(slices.Sorted(slices.Values(cores)))) == len(cores)
	return apart || m.crowded || m.err != nil || cores[0] < 0, first
}

// messages measures what messages cost, of two ranks.
func (m *measurement) messages() {
	least := math.Inf(1)
	for range attempts {
		m.separate()
		if short := m.hop(mem.Of(make([]byte, 8)), repetitions); short < least {
			least = short
			m.costs.ShortOp = m.stream(repetitions) / 2
		}
	}
	m.costs.ShortLatency = max(0, least-2*m.costs.ShortOp)
}

// stream returns the time from one to the next of many short messages one way.
func (m *measurement) stream(n int) float64 {
	all := mem.Of(make([]byte, streamed*shortChunk))
	one := m.time(n, m.bcast(all.Slice(0, shortChunk), "chain", shortChunk))
	return max(0, m.time(n, m.bcast(all, "chain", shortChunk))-one) / (streamed - 1)
}

// copies measures how fast one rank takes what another has, and what the engine's ops
// cost.
func (m *measurement) copies() {
	cores := 2 // that hold what two ranks touch: both buffers
	if m.crowded {
		cores = 1
	}
	size := func(set int) int { return set * cores / 2 }
	cached, shared, all := size(int(m.cache/sim.CachedPart)), size(sim.SharedSet), size(sim.MemorySet)
	registered := m.alloc(all)
	if m.err != nil {
		return
	}
	defer m.comm.Free(registered)
	time := func(b mem.Buffer, n, size int) float64 {
		return m.time(n, m.bcast(b.Slice(0, size), "chain", 1<<20))
	}
	whole := time(registered, repetitions, cached)
	m.costs.Op = m.ops(registered.Slice(0, shared))
	engine := m.hop(registered.Slice(0, opChunk), repetitions)
	each := max(0, m.hop(registered.Slice(0, loneCopy), repetitions)-engine) / float64(loneCopy-opChunk) // of its bytes, which the other core has written
	word := engine - opChunk*each                                                                        // of such a message without its bytes, of which callers execute one alone
	m.costs.ShortLent = max(m.costs.ShortOp, min(m.costs.Op, (word-m.costs.ShortLatency)/2))
	// The engine's small message has cheaper ops than those; it is no faster than a caller's.
	m.costs.Latency = max(m.costs.ShortLatency, word-2*m.costs.Op)

	// The rates with which the simulation takes as long, were the node's memory no limit.
	m.model = m.costs.On(selection.Default().Model.On(cores))
	m.model.Cache, m.model.Switch = m.cache, 0
	m.model.Memory = sim.Rates{Cached: unlimited, Shared: unlimited, Bandwidth: unlimited}
	m.model.Fresh = unlimited // no faster than Core in any case, which includes what of it these copies have
	answer := m.costs.ShortLatency + 2*m.costs.ShortOp
	rate := func(took float64, size int, at *float64) float64 {
		return 1 / m.fit(took-answer, "chain", schedule.Bcast, size, at, 1e8, 1e12)
	}
	// Where latency hides the bytes, they cost at least what a thread's own do.
	m.costs.Core.Cached = max(rate(whole, cached, &m.model.Core.Cached), copyCost(int(m.cache/sim.CachedPart)))
	m.model.Core.Cached = 1 / m.costs.Core.Cached
	m.costs.Core.Shared = rate(time(registered, longer, shared), shared, &m.model.Core.Shared)
	m.costs.Core.Bandwidth = rate(time(registered, longest, all), all, &m.model.Core.Bandwidth)
	m.costs.Fresh = max(m.costs.Core.Cached, each-m.costs.Core.Cached)

	private := mem.Of(make([]byte, all))
	clear(mem.Bytes(private))                       // so that it has pages, rather than all of them the system's page of zeros
	both := 2.0                                     // ranks copy; the cost is that of one
	small, large := loneCopy/2, loneCopy+loneCopy/2 // of which the receiver reads all
	if m.crowded {
		both, small, large = 1, leastStaged, 2*leastStaged
	}
	m.costs.Staging.Cached = max(0, time(private, repetitions, large)-time(private, repetitions, small)) / float64(large-small)
	m.costs.Staging.Shared = both * time(private, longer, shared) / float64(shared)
	m.costs.Staging.Bandwidth = both * time(private, longest, all) / float64(all)
}

// ops returns what one of the engine's ops costs, by a sum of b's halves that rank 0 makes of many
// messages and of few. Caches hold neither b nor then what the engine knows of its ops, which
// take longer for it than in small calls; but only in large ones are ops many.
func (m *measurement) ops(b mem.Buffer) float64 {
	half := b.Len() / 2
	in, out := b.Slice(0, half), b.Slice(half, half)
	sum := func(chunk int) float64 {
		how := rule("chain", chunk)
		return m.time(longer, func() error {
			return m.comm.Reduce(m.ctx, in, out, mem.Float32, mem.Sum, 0, how)
		})
	}
	few := 1 << 20
	took := sum(streamChunk) - sum(few)
	return max(0, took) / float64(half/streamChunk-half/few) / receiverOps
}

// receiverOps is how many ops a message costs its receiver: to post it and to finish it.
const receiverOps = 2

// alloc returns n bytes of registered memory, which have been touched.
func (m *measurement) alloc(n int) mem.Buffer {
	if m.err != nil {
		return mem.Buffer{}
	}
	b, err := m.comm.Alloc(n)
	if m.err = m.comm.Agree(m.ctx, err); m.err != nil {
		if err == nil {
			m.comm.Free(b)
		}
		return mem.Buffer{}
	}
	bytes := mem.Bytes(b)
	for i := range bytes {
		bytes[i] = 1 // of which no float is subnormal, also where a bit changes (mem.Rewrite): sums of such may take longer
	}
	return b
}

// all measures what the memory of a node does when all ranks work, in an allreduce in
// which each sums a part of the buffer and takes the others' (package direct).
func (m *measurement) all(cores int) {
	n := float64(m.comm.Size())
	passes := 3 * n // over the buffer, of all ranks together
	bytes := func(set float64) int {
		b := min(set*float64(cores)/passes, mostAtOnce/(2*n))
		return max(int(b)&^63, 4*opChunk)
	}
	largest := bytes(sim.MemorySet)
	both := m.alloc(2 * largest)
	if m.err != nil {
		return
	}
	defer m.comm.Free(both)
	// The rate with which the simulation takes as long as the measured allreduce did.
	sum := rule("direct", 1<<20)
	cost := func(times int, set float64, rate *float64) float64 {
		b := bytes(set)
		in, out := both.Slice(0, b), both.Slice(largest, b)
		m.before = func() { mem.Rewrite(in) } // which the model takes for what a rank has just computed
		took := m.time(times, func() error {
			return m.comm.Allreduce(m.ctx, in, out, mem.Float32, mem.Sum, sum)
		})
		core := m.model.Core.At(set, m.cache)
		return 1 / m.fit(took, "direct", schedule.Allreduce, b, rate, core/4, 2*core*float64(cores))
	}
	m.costs.Memory.Cached = cost(repetitions, m.cache/sim.CachedPart, &m.model.Memory.Cached)
	m.costs.Memory.Shared = cost(longer, sim.SharedSet, &m.model.Memory.Shared)
	m.costs.Memory.Bandwidth = cost(longest, sim.MemorySet, &m.model.Memory.Bandwidth)
}

// switches measures what it takes a core to turn to another rank, be it waiting or asleep, by a
// short message's way through all ranks: nearly all of that is turns, and one is the same for
// whatever message. The median counts, for a rank that happens to run needs no turn.
func (m *measurement) switches() {
	b := mem.Of(make([]byte, 8))
	took := m.times(repetitions, m.bcast(b, "chain", b.Len()))[repetitions/2]
	m.costs.Switch = m.fit(took, "chain", schedule.Bcast, b.Len(), &m.model.Switch, 50e-6, 1e-7)
}

// fit returns the value of a parameter of the model, between the one with which a
// collective takes the longest and the one with which it takes the shortest, with
// which it takes as long as was measured.
func (m *measurement) fit(took float64, algorithm string, v schedule.Collective, bytes int, at *float64, longest, shortest float64) float64 {
	how := spec.Spec{Levels: []spec.Level{{Algorithm: algorithm, Chunk: 1 << 20}}}
	for range fitSteps {
		*at = math.Sqrt(longest * shortest)
		if selection.Predict(v, bytes, how, m.comm.layout, m.model, selection.Registered) > took {
			longest = *at
		} else {
			shortest = *at
		}
	}
	return *at
}

// fitSteps halve the distance of two logarithms to less than the rounding of costs.
const fitSteps = 12

// unlimited is a rate that nothing reaches.
const unlimited = 1e15

// aloneCosts measures the memory of a node that has one rank.
func aloneCosts(cache float64) (costs selection.Costs) {
	costs.Core = selection.RateCosts{Cached: copyCost(int(cache / sim.CachedPart)), Shared: copyCost(sim.SharedSet), Bandwidth: copyCost(sim.MemorySet)}
	costs.Memory, costs.Staging = costs.Core, costs.Core
	return costs
}

// copyCost returns the seconds a byte that one thread takes to read and write set
// bytes of its own.
func copyCost(set int) float64 {
	memory := make([]byte, set)
	clear(memory)
	half, best := set/2, math.Inf(1)
	for range longest {
		from := time.Now()
		copy(memory[:half], memory[half:set])
		best = min(best, time.Since(from).Seconds())
	}
	return best / float64(2*half)
}
