package selection

import (
	"math/bits"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
)

// Predict returns in seconds how long the model says that a collective takes,
// in closed form: the way of the first chunk through all levels, and then the
// time that the busiest part (a port, a thread, a node's cores or memory) needs
// for all the rest.
//
// It is a function of its arguments alone, to the last bit, on all kinds of
// processors: every product is rounded before anything is added to it, so that
// no compiler fuses the two. Ranks that agree on the arguments agree on the
// result.
func Predict(v schedule.Collective, bytes int, s spec.Spec, l spec.Layout, m sim.Model, buffers BufferKind) float64 {
	e := estimate{m: m, l: l, bytes: float64(bytes), unregistered: buffers == Unregistered}
	if l.Ranks < 2 || bytes == 0 {
		return m.Op + 2*e.bytes/m.Core.Bandwidth
	}
	if s.IsLibrary() {
		return e.library(v)
	}
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

// times is a product that is rounded by itself.
func times(a float64, b float64) float64 { return float64(a * b) }

// estimate is a prediction under way.
type estimate struct {
	m            sim.Model
	l            spec.Layout
	bytes        float64
	unregistered bool

	fill   float64 // seconds until the first chunk has ended
	leader load    // of a leader in the levels so far
	worst  float64 // of whoever is not a leader, so far
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
		p.busy = max(1, active/e.m.Cores)
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
	var root, inner, leaf load
	add := func(fill float64, r, n, f load) {
		e.fill += fill
		root, inner, leaf = root.plus(r), inner.plus(n), leaf.plus(f)
	}
	switch {
	case p.algorithm == "ring":
		add(e.ring(p))
	case p.algorithm == "direct" && v == schedule.Allreduce && last:
		add(e.directAll(p))
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
	e.worst = max(e.worst, e.leader.plus(leaf.scale(rest)).max())
	if p.members > 2 {
		e.worst = max(e.worst, e.leader.plus(inner.scale(rest)).max())
	}
	e.leader = e.leader.plus(root.scale(rest))
	if last {
		e.worst = max(e.worst, e.leader.max())
	}
}

// wire is the time of b bytes on a port.
func (e *estimate) wire(b float64) float64 { return b / e.m.Inter.Bandwidth }

// combine is what a thread needs for receiving b bytes within the node and
// adding them, where passes of them go through memory; take for receiving
// alone; far says that the network has brought them.
func (e *estimate) combine(b, passes float64, user bool) float64 {
	t := times(passes, b) / e.m.Core.Bandwidth
	if e.unregistered && user {
		t += b / e.m.Staging.Bandwidth
	}
	return t
}

func (e *estimate) take(b float64) float64 {
	if e.unregistered {
		return b / e.m.Staging.Bandwidth
	}
	return 2 * b / e.m.Core.Bandwidth
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
	return times(sum, p.groups) / e.m.Cores
}

// ports returns what a group that spans nodes sends and receives.
func (e *estimate) ports(p place, tx, rx float64) (float64, float64) {
	if p.nodes < 2 {
		return 0, 0
	}
	return times(tx, e.wire(e.bytes)), times(rx, e.wire(e.bytes))
}

func (e *estimate) reduce(p place, i int) (fill float64, root, inner, leaf load) {
	s, n, o, c := e.bytes, p.chunks, e.m.Op, p.chunk
	first, mid := 3.0, 2.0
	if i > 0 { // the root adds to its sum so far; others' sums are too big for the cache
		first, mid = 1, 3
		if s+times(4, c) <= e.m.Cache {
			mid = 1
		}
	}
	memory := func(passes float64) float64 { return times(times(passes, s), p.groups) / e.m.Memory.Bandwidth }
	leaf.thread = times(n, o)
	switch p.algorithm {
	case "chain":
		fill = e.steps(p.members-p.nodes, p.nodes-1, c, e.combine(c, mid, false), e.combine(c, mid, false)) + e.combine(c, max(0, first-mid), false)
		root.thread = times(n, 2*o) + e.combine(s, first, false)
		inner.thread = times(n, 3*o) + e.combine(s, mid, false)
		sum := leaf.thread + root.thread + times(p.near-2, inner.thread)
		cores, mem := e.nodeWork(p, max(sum, 0)), memory(first+times(mid, max(0, p.near-2)))
		root.cores, inner.cores, leaf.cores = cores, cores, cores
		root.memory, inner.memory, leaf.memory = mem, mem, mem
		inner.tx, inner.rx = e.ports(p, 1, 1)
		_, root.rx = e.ports(p, 0, 1)
		leaf.tx, _ = e.ports(p, 1, 0)
		inner.wait = times(n, e.cycle(p, mid)) / 4
	case "binomial":
		rounds, far := log2(p.members), log2(p.nodes)
		work := e.combine(c, mid, true)
		fill = e.tree(p, work, e.combine(c, mid, false)) + e.combine(c, max(0, first-mid), false)
		root.thread = times(n, 2*times(o, rounds)) + times(rounds-1, e.combine(s, 1, true)) + e.combine(s, first, true)
		inner.thread = times(n, 2*times(o, rounds)) + times(rounds-2, e.combine(s, 1, true)) + e.combine(s, mid, true)
		sum := times(p.near, times(n, 3*o)+e.combine(s, mid, true))
		cores, mem := e.nodeWork(p, sum), memory(times(mid, p.near))
		root.cores, inner.cores, leaf.cores = cores, cores, cores
		root.memory, inner.memory, leaf.memory = mem, mem, mem
		_, root.rx = e.ports(p, 0, far)
		inner.tx, inner.rx = e.ports(p, 1, far-1)
		leaf.tx, _ = e.ports(p, 1, 0)
		inner.wait = times(n, e.cycle(p, mid)) / 4
	case "linear":
		far := p.members - p.near
		passes := p.members + 1 // the sum so far is in cache
		if c > e.m.Cache {
			passes += times(2, p.members-2)
		}
		root.thread = times(p.members-1, times(n, 2*o)+e.staged(s)) + e.combine(s, passes, false)
		root.cores, root.memory = e.nodeWork(p, root.thread+times(p.near, leaf.thread)), memory(passes)
		_, root.rx = e.ports(p, 0, far)
		leaf.tx, _ = e.ports(p, p.near, 0)
		fill = e.linearFill(p, root.thread/n)
	case "direct":
		fill, root, leaf = e.direct(p, memory)
		inner = leaf
	}
	return fill, root, inner, leaf
}

// cycle is how long a slot for a partial sum is taken: from the posted receive
// until its contents have left.
func (e *estimate) cycle(p place, passes float64) float64 {
	work := 4*e.m.Op + e.combine(p.chunk, passes, false)
	if p.nodes > 1 {
		return e.m.Inter.Latency + 2*e.wire(p.chunk) + work
	}
	return times(p.busy, 3*e.m.Intra.Latency+work+e.combine(p.chunk, passes, false))
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

// direct is the segmented reduction: the first of a part's P-1 additions makes
// two or three passes over it, the others one each where the sum stays in cache.
func (e *estimate) direct(p place, memory func(float64) float64) (fill float64, root, leaf load) {
	s, n, o, c := e.bytes, p.chunks, e.m.Op, p.chunk
	others := p.members - 1
	passes := e.directPasses(p)
	each := func(b, k float64) float64 { // a thread's time for its parts of b bytes in k chunks
		return times(k, times(others, 3*o)) + e.combine(b/p.members, passes, false) + e.staged(times(b, others)/p.members)
	}
	gather := times(n, times(others, 2*o)) + times(times(2, s), others)/p.members/e.m.Core.Bandwidth
	leaf.thread = each(s, n) + times(n, o)
	root.thread = each(s, n) + e.combine(s/p.members, 1, false) + gather // its sums go to Out
	cores := e.nodeWork(p, times(p.near, each(s, n))+gather)
	mem := memory(passes + 2)
	root.cores, leaf.cores, root.memory, leaf.memory = cores, cores, mem, mem
	root.wait = max(cores, mem) + gather/2 // while the root gathers it does not sum
	fill = max(cores, mem) / n
	fill = max(fill, each(c, 1)+gather/n) + 2*e.m.Intra.Latency
	if p.nodes > 1 { // over a network: every part to everyone
		far := times(p.near, p.members-p.near) / p.members
		leaf.tx, leaf.rx = e.ports(p, far+p.near/p.members, far)
		root.tx, root.rx = e.ports(p, far, far+(p.members-p.near)/p.members)
		fill += 2*e.m.Inter.Latency + times(2, e.wire(c))
	}
	return fill, root, leaf
}

// directPasses is how often a part goes through memory until it is summed.
func (e *estimate) directPasses(p place) float64 {
	passes := p.members
	if p.chunk/p.members > e.m.Cache {
		passes += times(2, p.members-2)
	}
	return passes
}

func (e *estimate) staged(b float64) float64 {
	if !e.unregistered {
		return 0
	}
	return b / e.m.Staging.Bandwidth
}

// directAll is its allreduce: every rank reads the sums where they lie.
func (e *estimate) directAll(p place) (fill float64, root, inner, leaf load) {
	s, n, o, c := e.bytes, p.chunks, e.m.Op, p.chunk
	others := p.members - 1
	passes := e.directPasses(p) + 1
	each := func(b, k float64) float64 {
		part := times(b, others) / p.members
		return times(k, times(others, 6*o)) + e.combine(b/p.members, passes, false) + e.staged(part) + e.take(part)
	}
	root.thread = each(s, n)
	root.cores = e.nodeWork(p, times(p.near, each(s, n)))
	root.memory = times(times(passes+times(2, others), s), p.groups) / e.m.Memory.Bandwidth
	fill = max(each(c, 1), root.cores/n, root.memory/n) + 2*e.m.Intra.Latency
	if p.nodes > 1 {
		far := times(2, times(p.near, p.members-p.near)/p.members)
		root.tx, root.rx = e.ports(p, far, far)
		fill += 2*e.m.Inter.Latency + times(2, e.wire(c))
	}
	return fill, root, root, root
}

func (e *estimate) bcast(p place) (fill float64, root, inner, leaf load) {
	s, n, o, c := e.bytes, p.chunks, e.m.Op, p.chunk
	memory := times(times(times(2, s), max(1, p.near-1)), p.groups) / e.m.Memory.Bandwidth
	taken := 0.0 // what a rank's own taking costs: nothing where the network brings it all
	if p.near > 1 {
		taken = e.take(s)
	} else {
		memory = 0
	}
	leaf.thread = times(n, 2*o) + taken
	cores := e.nodeWork(p, times(p.near-1, times(n, 3*o)+taken)+times(n, o))
	switch p.algorithm {
	case "chain":
		fill = e.steps(p.members-p.nodes, p.nodes-1, c, e.take(c), 0)
		root.thread = times(n, o)
		inner.thread = leaf.thread + root.thread
		inner.tx, inner.rx = e.ports(p, 1, 1)
		root.tx, _ = e.ports(p, 1, 0)
		_, leaf.rx = e.ports(p, 0, 1)
	case "binomial":
		rounds, far := log2(p.members), log2(p.nodes)
		fill = e.tree(p, e.take(c), 0)
		root.thread = times(n, times(o, rounds))
		inner.thread = leaf.thread + root.thread - times(n, o)
		root.tx, _ = e.ports(p, far, 0)
		inner.tx, inner.rx = e.ports(p, far-1, 1)
		_, leaf.rx = e.ports(p, 0, 1)
	default: // linear and direct
		root.thread = times(n, times(o, p.members-1))
		root.tx, _ = e.ports(p, p.members-p.near, 0)
		_, leaf.rx = e.ports(p, 0, p.near)
		work := leaf.thread/n + times(o, p.members-2)
		fill = e.linearFill(p, max(work, cores/n, memory/n))
	}
	root.cores, inner.cores, leaf.cores = cores, cores, cores
	root.memory, inner.memory, leaf.memory = memory, memory, memory
	return fill, root, inner, leaf
}

// ring is 2(P-1) steps, each of a P-th of the buffer in chunks; a step takes as
// long as its bytes, or as one chunk's way to the next rank, which it waits for.
func (e *estimate) ring(p place) (fill float64, root, inner, leaf load) {
	part := max(1, (int(e.bytes)+int(p.members)-1)/int(p.members))
	chunk := min(int(p.chunk), part)
	per := float64((part + chunk - 1) / chunk) // chunks a segment
	segment, c := float64(part), float64(chunk)
	steps := times(2, p.members-1)
	hop, rate := 0.0, 0.0 // of both halves together
	for _, work := range []float64{e.combine(c, 3, false), e.gathered(p, c)} {
		near := e.m.Intra.Latency + 2*e.m.Op + work
		thread := times(p.busy, 3*e.m.Op+work)
		switch {
		case p.nodes > 1 && p.members == 2: // the halves overlap, for the most part
			wire := 2 * e.wire(c)
			rate = max(rate, max(wire, thread)+min(wire, thread)/4)
		case p.nodes > 1:
			rate += max(thread, e.wire(c))
		default:
			rate += thread
		}
		if p.nodes > 1 {
			far := e.m.Inter.Latency + 2*e.m.Op + work + e.wire(c)
			hop += (times(far, p.nodes) + times(near, p.members-p.nodes)) / p.members
		} else {
			hop += near
		}
	}
	hop, rate = hop/2, rate/2
	root.wait = max(times(times(steps, per)-1, rate), times(steps-1, hop))
	moved := times(steps, segment)
	root.tx, root.rx = e.ports(p, moved/e.bytes, moved/e.bytes)
	root.thread = times(times(steps, per), 3*e.m.Op) + e.combine(moved/2, 3, false) + e.gathered(p, moved/2)
	root.cores = e.nodeWork(p, times(p.near, root.thread))
	if p.near > 1 {
		root.memory = times(times(moved/2, 5), p.near) / e.m.Memory.Bandwidth
	}
	return hop, root, root, root
}

// gathered is what taking b bytes costs a ring's rank: nothing where the network
// brings them.
func (e *estimate) gathered(p place, b float64) float64 {
	if p.near > 1 {
		return e.take(b)
	}
	return 0
}

// library is the MPI library's collective of few bytes: a tree, or for
// allreduce recursive doubling, of whole messages.
func (e *estimate) library(schedule.Collective) float64 {
	far := depth(float64(e.l.Nodes))
	near := depth(float64(e.l.Ranks)) - far
	copies := 2 * e.bytes / e.m.Core.Bandwidth
	return times(near, e.m.Intra.Latency+2*e.m.Library.Op+2*copies) +
		times(far, e.m.Inter.Latency+2*e.m.Library.Op+copies+e.wire(e.bytes))
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
	passes := map[schedule.Collective]float64{schedule.Reduce: ranks + 1, schedule.Bcast: ranks, schedule.Allreduce: 2 * ranks}[v]
	limit := 0.0
	if l.PPN > 1 {
		limit = times(b, passes) / m.Memory.Bandwidth
	}
	if l.Nodes > 1 {
		wire := b / m.Inter.Bandwidth
		if v == schedule.Allreduce {
			wire = times(2*wire, (nodes-1)/nodes)
		}
		limit = max(limit, wire)
	}
	return limit
}
