package selection

import (
	"math"
	"math/bits"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
)

// closed returns in closed form about how long a collective takes: the way of the
// first chunk through all levels, and then the time that the busiest part (a port, a
// thread, a node's cores or memory) needs for all the rest. It says which specs are
// worth a simulation, and how the time of one grows with a layout that is too large
// for it.
func closed(v schedule.Collective, bytes int, s spec.Spec, l spec.Layout, m sim.Model, buffers BufferKind) float64 {
	if l.Ranks < 2 || bytes == 0 {
		return m.Op
	}
	e := estimate{m: m, l: l, bytes: float64(bytes), unregistered: buffers != Registered, hosted: min(max(1, m.Hosted), float64(l.Nodes))}
	e.setRates()
	if e.gpu = onGPU(m, buffers); e.gpu {
		e.setGPUs()
	}
	if v.ByRank() {
		return e.parted(v, s)
	}
	if l.Nodes == 1 && bytes <= sim.ShortBytes && !e.gpu {
		e.m.Intra.Latency, e.m.Op = m.Short.Latency, m.Short.Op
	}
	if m.Cores >= 1 && times(float64(l.PPN), e.hosted) > m.Cores && !e.gpu {
		e.m.Intra.Latency += m.Switch
		e.m.Inter.Latency += m.Switch
	}
	e.op, e.latency, e.near = e.m.Op, e.m.Inter.Latency, e.m.Intra.Latency
	members, stride := l.Ranks, 1
	for i, level := range s.Levels {
		size, last := level.Size, i == len(s.Levels)-1
		switch {
		case last:
			size = members
		case size == spec.Node:
			size = max(1, l.PPN/stride)
		}
		size = min(size, members)
		e.level(v, e.place(level, size, stride), i, last)
		members, stride = (members+size-1)/size, stride*size
	}
	return e.fill + e.worst
}

// setRates finds the rates of memory for what a node's ranks use in all.
func (e *estimate) setRates() {
	set := times(firstPasses, e.bytes)
	if cores := times(float64(e.l.PPN), e.hosted); e.m.Cores >= 1 && e.m.Cores < cores {
		set = times(set, cores) / e.m.Cores
	}
	at := func(r sim.Rates) float64 { return r.At(set, e.m.Cache) }
	e.core, e.node, e.staging = at(e.m.Core), at(e.m.Memory)/e.hosted, at(e.m.Staging)
}

// times is a product that is rounded by itself.
func times(a float64, b float64) float64 { return float64(a * b) }

// estimate is a prediction under way.
type estimate struct {
	m            sim.Model
	l            spec.Layout
	bytes        float64
	unregistered bool
	hosted       float64 // nodes that share a machine
	// The rates of a thread, of a node's part of its machine's memory, and of copies through the kernel.
	core, node, staging float64

	op, latency, near float64 // of an op, and between nodes and within one, without what packets or copies cost
	gpu               bool    // buffers lie in GPUs' memory, of which the model knows

	fill   float64 // seconds until the first chunk has ended
	leader load    // of a leader in the levels so far
	worst  float64 // of ranks that are no leaders, so far
}

// load is for how many seconds something is busy with all chunks but one.
type load struct{ tx, rx, thread, cores, memory, wait float64 }

func (a load) plus(b load) load {
	return load{a.tx + b.tx, a.rx + b.rx, a.thread + b.thread, a.cores + b.cores, a.memory + b.memory, a.wait + b.wait}
}

func (a load) max() float64 { return max(a.tx, a.rx, a.thread, a.cores, a.memory, a.wait) }

func (a load) scale(f float64) load {
	return load{times(a.tx, f), times(a.rx, f), times(a.thread, f), times(a.cores, f), times(a.memory, f), times(a.wait, f)}
}

// place is where the groups of one level lie.
type place struct {
	algorithm string
	members   float64 // of a group
	near      float64 // of them on one node
	nodes     float64 // that a group spans
	groups    float64 // per node
	chunk     float64 // bytes
	chunks    float64
	busy      float64 // threads that share a core
}

func (e *estimate) place(level spec.Level, size, stride int) place {
	onNode := max(1, e.l.PPN/stride)
	if e.l.Nodes == 1 {
		onNode = max(onNode, size)
	}
	p := place{algorithm: level.Algorithm, members: float64(size), near: float64(min(size, onNode)), groups: 1}
	p.nodes = float64((size + onNode - 1) / onNode)
	if p.nodes == 1 {
		p.groups = float64(max(1, onNode/size))
	}
	chunk := level.Chunk
	if chunk == 0 {
		chunk = spec.DefaultChunk
	}
	n := (int(e.bytes) + chunk - 1) / chunk
	p.chunk, p.chunks = min(float64(chunk), e.bytes), float64(n)
	p.busy = 1
	if active := times(p.near, p.groups); e.m.Cores > 0 {
		p.busy = max(1, times(active, e.hosted)/e.m.Cores)
	}
	return p
}

// level adds one level: its reduction, its broadcast, or both.
func (e *estimate) level(v schedule.Collective, p place, i int, last bool) {
	if p.members < 2 {
		if last {
			e.worst = max(e.worst, e.leader.max())
		}
		return
	}
	e.network(p)
	a := cost{}
	add := func(part cost) {
		e.fill += part.fill
		a.root, a.inner, a.leaf = a.root.plus(part.root), a.inner.plus(part.inner), a.leaf.plus(part.leaf)
	}
	switch {
	case p.algorithm == "ring":
		add(e.allreduceRing(p))
	case p.algorithm == "doubling":
		add(e.allreduceDoubling(p))
	case p.algorithm == "halving":
		add(e.allreduceHalving(p))
	case p.algorithm == "direct" && v == schedule.Allreduce && last:
		add(e.allreduceDirect(p))
	default:
		if v != schedule.Bcast {
			add(e.reduce(p, i))
		}
		if v != schedule.Reduce {
			add(e.bcast(p))
		}
	}
	rest := 1 - 1/p.chunks
	if p.algorithm == "ring" {
		rest = 1 // it counts its own
	}
	if p.near > 1 {
		e.fill += e.m.Intra.Latency // the last sender learns that it was read
	}
	e.worst = max(e.worst, e.leader.plus(a.leaf.scale(rest)).max())
	if p.members > 2 {
		e.worst = max(e.worst, e.leader.plus(a.inner.scale(rest)).max())
	}
	e.leader = e.leader.plus(a.root.scale(rest))
	if last {
		e.worst = max(e.worst, e.leader.max())
	}
}

// network sets what an op and the way of a message cost in the groups of a level: those
// between nodes consist of packets.
func (e *estimate) network(p place) {
	e.m.Op, e.m.Inter.Latency = e.op, e.latency
	if e.gpu {
		defer e.device(p)
	}
	if p.nodes < 2 {
		return
	}
	packets := sim.Packets(p.chunk, e.m)
	cpu := times(packets, e.m.Packet) // at either end of a message
	if e.m.Carry > 0 {
		cpu += p.chunk / e.m.Carry
	}
	e.m.Op += times(2, cpu) / receiveSendOps
	if p.chunk > e.m.Eager {
		e.m.Inter.Latency = times(3, e.latency)
	}
}

// wire is the time of b bytes on a port.
func (e *estimate) wire(b float64) float64 { return b / e.m.Inter.Bandwidth }

// combine is what a thread needs for receiving b bytes within the node and
// adding them, where passes of them go through memory; take for receiving
// alone; far says that the network has brought them.
func (e *estimate) combine(b, passes float64, user bool) float64 {
	t := times(passes, b) / e.core
	if e.unregistered && user {
		t += b / e.staging
	}
	return t
}

func (e *estimate) take(b float64) float64 {
	if e.unregistered {
		return b / e.staging
	}
	return 2 * b / e.core
}

// steps is a way of some hops, within nodes and between them, of b bytes, where
// the work at the end of a hop is given.
func (e *estimate) steps(near, far, b, workNear, workFar float64) float64 {
	o := 2 * e.m.Op
	return times(near, e.m.Intra.Latency+o+workNear) + times(far, e.m.Inter.Latency+o+e.wire(b)+workFar)
}

// nodeWork turns the sum of a group's threads' times on a node into that of the
// node's cores.
func (e *estimate) nodeWork(p place, sum float64) float64 {
	if e.m.Cores == 0 {
		return 0
	}
	return times(times(sum, p.groups), e.hosted) / e.m.Cores
}

// ports returns what a group that spans nodes sends and receives.
func (e *estimate) ports(p place, tx, rx float64) (float64, float64) {
	if p.nodes < 2 {
		return 0, 0
	}
	return times(tx, e.wire(e.bytes)), times(rx, e.wire(e.bytes))
}

// tree is the way of a first chunk through a binomial tree: its depth in hops,
// and at the root the children beyond.
func (e *estimate) tree(p place, workNear, workFar float64) float64 {
	depth, far := depth(p.members), depth(p.nodes)
	more, moreFar := log2(p.members)-depth, log2(p.nodes)-far
	fill := e.steps(depth-far, far, p.chunk, workNear, workFar)
	if moreFar > 0 {
		return fill + e.wire(p.chunk) + workFar
	}
	return fill + times(more, workNear)
}

func (e *estimate) linearFill(p place, work float64) float64 {
	if p.nodes < 2 {
		return e.m.Intra.Latency + e.m.Op + work
	}
	far := p.members - p.near
	if p.chunk > e.m.Eager && p.chunks == 1 { // each waits for the one before
		return work + times(far, e.m.Inter.Latency+e.wire(p.chunk))
	}
	return e.m.Inter.Latency + 2*e.m.Op + e.wire(p.chunk) + max(work, times(far-1, e.wire(p.chunk)))
}

// directPasses is how often a part goes through memory until it is summed.
func (e *estimate) directPasses(p place) float64 {
	return p.members + e.again(p, p.chunk/p.members)
}

// again is how many passes more than one for each member's contribution, and for the result, the additions of a group come to, of b bytes each: where a sum so far is
// not in the cache any more, or is that of a GPU's kernel before.
func (e *estimate) again(p place, b float64) float64 {
	operands := p.members
	switch {
	case e.gpu && e.lent() && p.nodes < 2:
		return 2 * (math.Ceil((operands-1)/(sim.GPUOperands-1)) - 1)
	case b > e.m.Cache:
		return times(2, operands-2)
	}
	return 0
}

// staged is what it takes to copy b bytes that are to be added out of memory that is not registered: through the kernel or, around the caches, by
// their sender.
func (e *estimate) staged(b float64) float64 {
	switch {
	case !e.unregistered:
		return 0
	case e.bytes >= sim.StreamFrom:
		return times(copyPasses, b) / e.core
	}
	return b / e.staging
}

// gathered is what taking b bytes costs a ring's rank: nothing where the network
// brings them.
func (e *estimate) gathered(p place, b float64) float64 {
	if p.near > 1 {
		return e.take(b)
	}
	return 0
}

// depth returns the most hops on the way from the root of a tree of n.
func depth(n float64) float64 { return float64(bits.Len(uint(n)) - 1) }

// log2 returns the number of rounds of a tree of n.
func log2(n float64) float64 { return float64(bits.Len(uint(n) - 1)) }

// Limit returns in seconds what no algorithm can beat under the model: the
// bytes that must pass a node's port, or memory, over their bandwidth.
func Limit(v schedule.Collective, bytes int, l spec.Layout, m sim.Model) float64 {
	b, ranks, nodes := float64(bytes), float64(l.PPN), float64(l.Nodes)
	// Passes through a node's memory: every contribution is read, every result
	// written; a broadcast's is read once.
	passes := map[schedule.Collective]float64{
		schedule.Reduce: ranks + 1, schedule.Bcast: ranks, schedule.Allreduce: 2 * ranks, schedule.Allgather: ranks + 1, schedule.ReduceScatter: ranks + 1,
		schedule.Alltoall: 2 * ranks, schedule.Gather: 2, schedule.Scatter: 2,
	}[v]
	limit := 0.0
	if l.PPN > 1 {
		limit = times(b, passes) / m.Memory.Bandwidth
	}
	if l.Nodes > 1 {
		wire := b / m.Inter.Bandwidth
		switch v {
		case schedule.Allreduce:
			wire = times(2*wire, (nodes-1)/nodes)
		case schedule.Allgather, schedule.ReduceScatter, schedule.Gather, schedule.Scatter:
			wire = times(wire, (nodes-1)/nodes)
		case schedule.Alltoall:
			wire = times(times(wire, ranks), (nodes-1)/nodes)
		}
		limit = max(limit, wire)
	}
	return limit
}
