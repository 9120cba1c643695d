package selection

import (
	"math"

	"github.com/scaffe/scaffe/binomial"
	"github.com/scaffe/scaffe/chain"
	"github.com/scaffe/scaffe/schedule/sim"
)

// What the closed forms below are made of, besides the model's parameters.
const (
	// How often a rank's thread has to do with a message, Model.Op each time.
	receiveOps     = 2                  // to post a receive and to finish it
	receiveSendOps = 3                  // and to post the send of what came of it
	slotOps        = 4                  // and to finish that: only then is its slot free
	bothHalvesOps  = 2 * receiveSendOps // of a reduction and the broadcast after it

	// Passes of a buffer through memory.
	copyPasses     = 2.0 // read and write
	firstPasses    = 3.0 // the message and the own contribution are read, the sum is written
	inPlacePasses  = 2.0 // likewise, where one of the three stays in cache
	cachedPasses   = 1.0 // the message is read; the sum stays in cache
	sumAgainPasses = 3.0 // a sum so far that is too large for the cache is read again

	// slotsInCache is how many chunks of partial sums a rank has at hand at a time.
	slotsInCache = 4
	// halvesOverlap is the part of the shorter of two things that is not hidden
	// behind the longer one where a ring of two ranks sends and receives at once.
	halvesOverlap = 4
	// gatherOverlap: while a root gathers the parts of others it sums, for half of
	// that time, nothing.
	gatherOverlap = 2
)

// cost is what one level costs: seconds until its first chunk has passed, and for how
// long its root, the ranks in between and those at the ends are busy with all.
type cost struct {
	fill              float64
	root, inner, leaf load
}

// shared sets what the ranks of a node have in common: their cores and memory.
func (a *cost) shared(cores, memory float64) {
	for _, l := range []*load{&a.root, &a.inner, &a.leaf} {
		l.cores, l.memory = cores, memory
	}
}

// reduction is what the reductions have in common.
type reduction struct {
	place
	first, rest float64 // passes of the first addition at the root, and of the others
}

// memory is the time of passes of the whole buffer through a node's memory.
func (e *estimate) memory(p place, passes float64) float64 {
	return times(times(passes, e.bytes), p.groups) / e.node
}

// reduce is the reduction of level i of a spec.
func (e *estimate) reduce(p place, i int) cost {
	r := reduction{p, firstPasses, inPlacePasses}
	if i > 0 { // the root adds to its sum so far; others' sums are too big for the cache
		r.first, r.rest = cachedPasses, sumAgainPasses
		if e.bytes+times(slotsInCache, p.chunk) <= e.m.Cache {
			r.rest = cachedPasses
		}
	}
	if e.gpu { // a kernel's operands are not in a cache
		r.rest = firstPasses
	}
	switch p.algorithm {
	case "chain":
		return e.reduceChain(r)
	case "binomial":
		return e.reduceBinomial(r)
	case "linear":
		return e.reduceLinear(p)
	}
	return e.reduceDirect(p)
}

func (e *estimate) reduceChain(p reduction) (a cost) {
	s, n, o, c := e.bytes, p.chunks, e.m.Op, p.chunk
	work := e.combine(c, p.rest, false)
	a.fill = e.steps(p.members-p.nodes, p.nodes-1, c, work, work) + e.combine(c, max(0, p.first-p.rest), false)
	a.leaf.thread = times(n, o)
	a.root.thread = times(n, receiveOps*o) + e.combine(s, p.first, false)
	a.inner.thread = times(n, receiveSendOps*o) + e.combine(s, p.rest, false)
	sum := a.leaf.thread + a.root.thread + times(p.near-2, a.inner.thread)
	if p.nodes > 1 {
		sum = times(p.near, a.inner.thread)
	}
	a.shared(e.nodeWork(p.place, max(sum, 0)), e.memory(p.place, p.first+times(p.rest, max(0, p.near-2))))
	a.inner.tx, a.inner.rx = e.ports(p.place, 1, 1)
	_, a.root.rx = e.ports(p.place, 0, 1)
	a.leaf.tx, _ = e.ports(p.place, 1, 0)
	a.inner.wait = times(n, e.slotTime(p.place, p.rest)) / chain.Slots
	return a
}

func (e *estimate) reduceBinomial(p reduction) (a cost) {
	s, n, o, c := e.bytes, p.chunks, e.m.Op, p.chunk
	rounds, far := log2(p.members), log2(p.nodes)
	a.fill = e.tree(p.place, e.combine(c, p.rest, true), e.combine(c, p.rest, false)) + e.combine(c, max(0, p.first-p.rest), false)
	a.leaf.thread = times(n, o)
	posts := times(n, receiveOps*times(o, rounds))
	a.root.thread = posts + times(rounds-1, e.combine(s, cachedPasses, true)) + e.combine(s, p.first, true)
	a.inner.thread = posts + times(rounds-2, e.combine(s, cachedPasses, true)) + e.combine(s, p.rest, true)
	sum := times(p.near, times(n, receiveSendOps*o)+e.combine(s, p.rest, true))
	a.shared(e.nodeWork(p.place, sum), e.memory(p.place, times(p.rest, p.near)))
	_, a.root.rx = e.ports(p.place, 0, far)
	a.inner.tx, a.inner.rx = e.ports(p.place, 1, far-1)
	a.leaf.tx, _ = e.ports(p.place, 1, 0)
	a.inner.wait = times(n, e.slotTime(p.place, p.rest)) / binomial.Slots
	return a
}

func (e *estimate) reduceLinear(p place) (a cost) {
	s, n, o := e.bytes, p.chunks, e.m.Op
	far := p.members - p.near
	passes := p.members + 1 + e.again(p, p.chunk)
	a.leaf.thread = times(n, o)
	a.root.thread = times(p.members-1, times(n, receiveOps*o)+e.staged(s)) + e.combine(s, passes, false)
	a.root.cores, a.root.memory = e.nodeWork(p, a.root.thread+times(p.near, a.leaf.thread)), e.memory(p, passes)
	_, a.root.rx = e.ports(p, 0, far)
	a.leaf.tx, _ = e.ports(p, p.near, 0)
	a.fill = e.linearFill(p, a.root.thread/n)
	return a
}

// reduceDirect is the segmented reduction: the first of a part's P-1 additions makes
// two or three passes over it, the others one each where the sum stays in cache.
func (e *estimate) reduceDirect(p place) (a cost) {
	s, n, o, c := e.bytes, p.chunks, e.m.Op, p.chunk
	others := p.members - 1
	passes := e.directPasses(p)
	each := func(b, k float64) float64 { // a thread's time for its parts of b bytes in k chunks
		return times(k, times(others, receiveSendOps*o)) + e.combine(b/p.members, passes, false) + e.staged(times(b, others)/p.members)
	}
	gather := times(n, times(others, receiveOps*o)) + times(times(copyPasses, s), others)/p.members/e.core
	a.leaf.thread = each(s, n) + times(n, o)
	a.root.thread = each(s, n) + e.combine(s/p.members, 1, false) + gather // its sums go to Out
	cores, memory := e.nodeWork(p, times(p.near, each(s, n))+gather), e.memory(p, passes+2)
	a.shared(cores, memory)
	a.root.wait = max(cores, memory) + gather/gatherOverlap
	a.fill = max(cores, memory) / n
	a.fill = max(a.fill, each(c, 1)+gather/n) + 2*e.m.Intra.Latency
	if p.nodes > 1 { // over a network: every part to everyone
		far := times(p.near, p.members-p.near) / p.members
		a.leaf.tx, a.leaf.rx = e.ports(p, far+p.near/p.members, far)
		a.root.tx, a.root.rx = e.ports(p, far, far+(p.members-p.near)/p.members)
		a.fill += 2*e.m.Inter.Latency + times(2, e.wire(c))
	}
	a.inner = a.leaf
	return a
}

// bcast is the broadcast of a level.
func (e *estimate) bcast(p place) (a cost) {
	s, n, o := e.bytes, p.chunks, e.m.Op
	memory := times(times(times(copyPasses, s), max(1, p.near-1)), p.groups) / e.node
	taken := e.gathered(p, s)
	if p.near <= 1 {
		memory = 0 // the network brings it all
	}
	a.leaf.thread = times(n, receiveOps*o) + taken
	cores := e.nodeWork(p, times(p.near-1, times(n, receiveSendOps*o)+taken)+times(n, o))
	switch p.algorithm {
	case "chain":
		e.bcastChain(p, &a)
	case "binomial":
		e.bcastBinomial(p, &a)
	case "scatter":
		return e.bcastScatter(p)
	default:
		e.bcastLinear(p, &a, max(cores, memory))
	}
	a.shared(cores, memory)
	return a
}

// bcastScatter: every other rank reads its part in the root's memory and stores it at all that want it, or they read it in its own.
func (e *estimate) bcastScatter(p place) (a cost) {
	s, n, o := e.bytes, p.chunks, e.m.Op
	others := p.members - 1
	part, ops := s/others, times(2, others-1)
	work, passes := e.gathered(p, s), times(copyPasses, p.near-1)
	if sim.Spreads(int(s), int(others)) && p.chunk/others > sim.RelayLeast && !e.unregistered && !e.gpu && p.near == p.members {
		work, passes = times(p.members, part)/e.core, p.members
	}
	memory := times(times(passes, s), p.groups) / e.node
	if p.near <= 1 {
		memory = 0
	}
	a.leaf.thread = times(n, times(o, receiveOps+ops)) + work
	a.inner = a.leaf
	a.root.thread = times(n, times(o, others))
	a.shared(e.nodeWork(p, times(p.near-1, a.leaf.thread)+times(n, o)), memory)
	a.fill = times(2, e.m.Intra.Latency+o) + max(a.leaf.thread, a.leaf.cores, a.leaf.memory)/n
	if p.nodes > 1 {
		far := (p.members - p.near) / others // of what goes to the others
		a.root.tx, _ = e.ports(p, far, 0)
		a.leaf.tx, a.leaf.rx = e.ports(p, times(p.near, far), times(p.near, 1))
		a.inner = a.leaf
		a.fill += 2*e.m.Inter.Latency + times(2, e.wire(p.chunk))
	}
	return a
}

func (e *estimate) bcastChain(p place, a *cost) {
	a.fill = e.steps(p.members-p.nodes, p.nodes-1, p.chunk, e.take(p.chunk), 0)
	a.root.thread = times(p.chunks, e.m.Op)
	a.inner.thread = a.leaf.thread + a.root.thread
	a.inner.tx, a.inner.rx = e.ports(p, 1, 1)
	a.root.tx, _ = e.ports(p, 1, 0)
	_, a.leaf.rx = e.ports(p, 0, 1)
}

func (e *estimate) bcastBinomial(p place, a *cost) {
	n, o := p.chunks, e.m.Op
	rounds, far := log2(p.members), log2(p.nodes)
	a.fill = e.tree(p, e.take(p.chunk), 0)
	a.root.thread = times(n, times(o, rounds))
	a.inner.thread = a.leaf.thread + a.root.thread - times(n, o)
	a.root.tx, _ = e.ports(p, far, 0)
	a.inner.tx, a.inner.rx = e.ports(p, far-1, 1)
	_, a.leaf.rx = e.ports(p, 0, 1)
}

// bcastLinear is that of linear and of direct: every rank takes the root's buffer.
// shared is for how long the cores or the memory of a node are busy.
func (e *estimate) bcastLinear(p place, a *cost, shared float64) {
	n, o := p.chunks, e.m.Op
	a.root.thread = times(n, times(o, p.members-1))
	a.root.tx, _ = e.ports(p, p.members-p.near, 0)
	_, a.leaf.rx = e.ports(p, 0, p.near)
	work := a.leaf.thread/n + times(o, p.members-2)
	a.fill = e.linearFill(p, max(work, shared/n))
}

// allreduceDirect is direct's own allreduce: every rank reads the sums where they lie.
func (e *estimate) allreduceDirect(p place) (a cost) {
	s, n, o, c := e.bytes, p.chunks, e.m.Op, p.chunk
	others := p.members - 1
	passes := e.directPasses(p) + 1
	each := func(b, k float64) float64 {
		part := times(b, others) / p.members
		return times(k, times(others, bothHalvesOps*o)) + e.combine(b/p.members, passes, false) + e.staged(part) + e.take(part)
	}
	a.root.thread = each(s, n)
	a.root.cores = e.nodeWork(p, times(p.near, each(s, n)))
	a.root.memory = times(times(passes+times(2, others), s), p.groups) / e.node
	a.fill = max(each(c, 1), a.root.cores/n, a.root.memory/n) + 2*e.m.Intra.Latency
	if p.nodes > 1 {
		far := times(2, times(p.near, p.members-p.near)/p.members)
		a.root.tx, a.root.rx = e.ports(p, far, far)
		a.fill += 2*e.m.Inter.Latency + times(2, e.wire(c))
	}
	a.inner, a.leaf = a.root, a.root
	return a
}

// allreduceDoubling is log2 P exchanges of the whole buffer, in which all ranks are
// busy at once, and where P is no power of two two messages more of some of them.
func (e *estimate) allreduceDoubling(p place) (a cost) {
	s, n, o := e.bytes, p.chunks, e.m.Op
	all, far := depth(p.members), depth(p.nodes)
	near := all - far
	more, moreFar := log2(p.members)-all, log2(p.nodes)-far // whether P is no power of two
	// What a round takes for b bytes in k chunks: at a rank of a node, and over the network.
	round := func(b, k float64) float64 {
		work := times(p.busy, times(k, receiveSendOps*o)+e.combine(b, firstPasses, true))
		if p.near < 2 {
			return work
		}
		return max(work, e.memory(p, times(copyPasses, p.near))*b/s)
	}
	hop := func(b float64) float64 {
		return e.m.Inter.Latency + receiveSendOps*o + e.wire(b) + e.combine(b, firstPasses, false)
	}
	a.fill = times(near, e.m.Intra.Latency+round(p.chunk, 1)) + times(far, hop(p.chunk))
	if more > 0 && moreFar == 0 {
		a.fill += times(2, e.m.Intra.Latency+round(p.chunk, 1)/p.near)
	}
	if moreFar > 0 {
		a.fill += times(2, hop(p.chunk))
	}
	a.root.thread = times(all+2*more, round(s, n))
	tx := times(far+2*moreFar, p.near)
	a.root.tx, a.root.rx = e.ports(p, tx, tx)
	a.inner, a.leaf = a.root, a.root
	return a
}

// allreduceHalving is log2 P exchanges of a half, a quarter and so on of the buffer, and the same back, each of
// which waits for the one before: all of it is the way of a first chunk.
func (e *estimate) allreduceHalving(p place) (a cost) {
	s, all, far := e.bytes, depth(p.members), depth(p.nodes)
	round := func(b float64, far bool, work float64) float64 {
		chunks := math.Ceil(b / p.chunk)
		work += times(chunks, receiveSendOps*e.m.Op)
		if !far {
			return e.m.Intra.Latency + times(p.busy, work)
		}
		wire := e.wire(b)
		return e.m.Inter.Latency + max(wire, work) + min(wire, work)/chunks
	}
	for k := 0.0; k < all; k++ {
		s /= 2
		a.fill += round(s, k < far, e.combine(s, firstPasses, false)) + round(s, k < far, e.gathered(p, s))
	}
	if log2(p.members) > all { // P is no power of two
		beyond := log2(p.nodes) > far
		a.fill += round(e.bytes, beyond, e.combine(e.bytes, firstPasses, false)) + round(e.bytes, beyond, e.gathered(p, e.bytes))
	}
	return a
}

// allreduceRing is 2(P-1) steps, each of a P-th of the buffer in chunks; a step takes
// as long as its bytes, or as one chunk's way to the next rank, which it waits for.
func (e *estimate) allreduceRing(p place) (a cost) {
	part := max(1, (int(e.bytes)+int(p.members)-1)/int(p.members))
	chunk := min(int(p.chunk), part)
	per := float64((part + chunk - 1) / chunk) // chunks a segment
	segment, c := float64(part), float64(chunk)
	steps := times(2, p.members-1)
	hop, rate := 0.0, 0.0 // of both halves together
	for _, work := range []float64{e.combine(c, firstPasses, false), e.gathered(p, c)} {
		h, r := e.ringHalf(p, c, work)
		hop += h
		if p.nodes > 1 && p.members == 2 {
			rate = max(rate, r) // the halves overlap
		} else {
			rate += r
		}
	}
	hop, rate = hop/2, rate/2
	a.root.wait = max(times(times(steps, per)-1, rate), times(steps-1, hop))
	moved := times(steps, segment)
	a.root.tx, a.root.rx = e.ports(p, moved/e.bytes, moved/e.bytes)
	a.root.thread = times(times(steps, per), receiveSendOps*e.m.Op) + e.combine(moved/2, firstPasses, false) + e.gathered(p, moved/2)
	a.root.cores = e.nodeWork(p, times(p.near, a.root.thread))
	if p.near > 1 {
		a.root.memory = times(times(moved/2, firstPasses+copyPasses), p.near) / e.node
	}
	a.fill, a.inner, a.leaf = hop, a.root, a.root
	return a
}

// ringHalf returns what a chunk of c bytes takes to the next rank of a ring, where it
// costs the given work, and the time from one chunk to the next.
func (e *estimate) ringHalf(p place, c, work float64) (hop, rate float64) {
	near := e.m.Intra.Latency + receiveOps*e.m.Op + work
	thread := times(p.busy, receiveSendOps*e.m.Op+work)
	if p.nodes < 2 {
		return near, thread
	}
	far := e.m.Inter.Latency + receiveOps*e.m.Op + work + e.wire(c)
	hop = (times(far, p.nodes) + times(near, p.members-p.nodes)) / p.members
	if p.members == 2 {
		wire := 2 * e.wire(c)
		return hop, max(wire, thread) + min(wire, thread)/halvesOverlap
	}
	return hop, max(thread, e.wire(c))
}

// slotTime is how long a slot for a partial sum is taken: from the posted receive
// until its contents have left.
func (e *estimate) slotTime(p place, passes float64) float64 {
	work := slotOps*e.m.Op + e.combine(p.chunk, passes, false)
	if p.nodes > 1 {
		return e.m.Inter.Latency + 2*e.wire(p.chunk) + work
	}
	return times(p.busy, 3*e.m.Intra.Latency+work+e.combine(p.chunk, passes, false))
}
