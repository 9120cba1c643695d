package selection

import (
	"cmp"
	"math"
	"slices"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
)

// Candidate is a spec with the time that the model predicts.
type Candidate struct {
	Spec    spec.Spec
	Seconds float64
}

// What the model is good for: specs that it predicts to take less than modelTolerance
// times as long as the best may be the best. A closed form is worse than that; what it
// finds to take more than roughTolerance times as long as its best is not simulated.
const (
	modelTolerance = 1.1
	roughTolerance = 3
	maxSimulated   = 16
	maxCompared    = 5 // of those that may be the best

	// A simulation takes time with the ranks, and every rank makes the same one when a
	// size is first asked for. So with more ranks than this fewer specs are simulated,
	// and the first is taken of those that are predicted to take the same time.
	fewRanks      = 16
	sameTime      = 1.03
	manySimulated = 4
)

// Candidates returns the specs that are worth a thought for a call: first the
// one to choose, which is the fastest that the model knows or, of those that it
// cannot tell from that, the one that loses the least where the model is wrong; then the
// others, the fastest first. There is always one.
func (s *Selector) Candidates(l spec.Layout, q Query) []Candidate {
	b := s.Batch()
	all := b.candidates(l, q, math.Inf(1))
	first := b.preferred(q, l, all)
	rest := slices.Delete(slices.Clone(all), first, first+1)
	slices.SortStableFunc(rest, func(a, b Candidate) int { return cmp.Compare(a.Seconds, b.Seconds) })
	return slices.Insert(rest, 0, all[first])
}

// first is the first of Candidates. What cannot be it is not simulated to its end.
func (s *Batch) first(l spec.Layout, q Query) Candidate {
	all := s.candidates(l, q, modelTolerance)
	return all[s.preferred(q, l, all)]
}

// candidates returns the specs that make sense with the times that the model predicts, in the order of shapes. Those that
// take more than tolerance times as long as the best may have an infinite one.
func (s *Batch) candidates(l spec.Layout, q Query, tolerance float64) []Candidate {
	specs := slices.DeleteFunc(shapes(l, q.Collective), func(s spec.Spec) bool { return s.Levels[0].Algorithm == "scatter" && !relays(l, q) })
	var all []Candidate
	for _, shape := range specs {
		for _, sized := range chunked(shape, l, cutBytes(l, q), q.Blocking, chunksFor(s.Model, l, q)) {
			all = append(all, Candidate{sized, closed(q.Collective, q.Bytes, sized, l, s.Model, q.Buffers)})
		}
	}
	rough := make([]float64, len(all))
	for i, c := range all {
		rough[i] = c.Seconds
	}
	likely, slowest, best := likely(rough, l), 1.0, math.Inf(1)
	order := make([]int, len(all)) // what may well be the best first
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(rough[i], rough[j]) })
	for _, i := range order {
		if rough[i] <= likely {
			c := &all[i]
			c.Seconds = s.plans.prediction(q.Collective, q.Bytes, c.Spec, l, q.Buffers).within(s.Model, times(best, tolerance))
			slowest, best = max(slowest, c.Seconds/rough[i]), min(best, c.Seconds)
		} else { // no faster than any that was simulated
			all[i].Seconds = times(rough[i], slowest)
		}
	}
	if l.Nodes > 1 && q.libraryServes() && q.Bytes <= LibraryBytes {
		library := spec.Spec{Levels: []spec.Level{{Algorithm: spec.Library}}}
		all = append(all, Candidate{library, s.Predict(l, q, library)})
	}
	return all
}

// likely returns up to what a closed form has to say for a spec to be simulated.
func likely(rough []float64, l spec.Layout) float64 {
	most := maxSimulated
	if l.Ranks > fewRanks {
		most = manySimulated
	}
	times := slices.Sorted(slices.Values(rough))
	return min(times[min(len(times), most)-1], roughTolerance*times[0])
}

// preferred returns the index of the candidate to choose. Of those that are not slower
// than the fastest beyond modelTolerance it is the one that is never far from the
// best of them, whichever parameters of the model are twice as bad as they seem;
// of equals the first, on one node that of the largest chunks: what the model knows of a message is the least of it.
func (s *Batch) preferred(q Query, l spec.Layout, all []Candidate) int {
	fastest := make([]int, len(all))
	for i := range fastest {
		fastest[i] = i
	}
	slices.SortStableFunc(fastest, func(a, b int) int { return cmp.Compare(all[a].Seconds, all[b].Seconds) })
	best := all[fastest[0]].Seconds
	tolerance := modelTolerance
	if l.Ranks > fewRanks {
		tolerance = sameTime
	}
	close := slices.DeleteFunc(fastest[:min(len(all), maxCompared)], func(i int) bool { return all[i].Seconds > times(best, tolerance) })
	slices.Sort(close)
	if len(close) == 1 || l.Ranks > fewRanks {
		return close[0]
	}
	models := append(worse(s.Model, q.Buffers), s.Model)
	took := make([][]float64, len(models)) // by model, by candidate
	for _, at := range close {
		p := s.plans.prediction(q.Collective, q.Bytes, all[at].Spec, l, q.Buffers)
		for k, m := range models {
			took[k] = append(took[k], p.under(m))
		}
	}
	loss := make([]float64, len(close))
	for _, t := range took {
		best := slices.Min(t)
		for i := range t {
			loss[i] = max(loss[i], t[i]/best)
		}
	}
	chosen, least := 0, slices.Min(loss)
	for loss[chosen] > times(least, 1+sameLoss) {
		chosen++
	}
	for i := chosen + 1; i < len(close) && l.Nodes == 1; i++ {
		if loss[i] <= times(least, 1+sameLoss) && fewerChunks(all[close[i]].Spec, all[close[chosen]].Spec) {
			chosen = i
		}
	}
	return close[chosen]
}

// fewerChunks reports whether s, of one level, has larger chunks than o.
func fewerChunks(s, o spec.Spec) bool {
	chunk := func(s spec.Spec) int { return cmp.Or(s.Levels[0].Chunk, spec.DefaultChunk) }
	return len(s.Levels) == 1 && len(o.Levels) == 1 && chunk(s) > chunk(o)
}

// sameLoss is what makes no difference.
const sameLoss = 0.01

// worse returns m with one kind of parameters after the other twice as bad, of those that count for a kind of buffers.
func worse(m sim.Model, buffers BufferKind) []sim.Model {
	ops, caches, apart, memory, network := m, m, m, m, m
	ops.Op, ops.Intra.Latency, ops.Switch = 2*m.Op, 2*m.Intra.Latency, 2*m.Switch
	ops.Short.Op, ops.Short.Latency, ops.Short.Lent = 2*m.Short.Op, 2*m.Short.Latency, 2*m.Short.Lent
	ops.Library.Op = 2 * m.Library.Op
	caches.Fresh, caches.Core = m.Fresh/2, sim.Rates{Cached: m.Core.Cached / 2, Shared: m.Core.Shared / 2, Bandwidth: m.Core.Bandwidth / 2}
	apart.Fresh = m.Fresh / 4 // cores that share a cache now may not share one later, on a virtual machine: 17 and 70 ps a byte were seen on one
	memory.Memory.Cached, memory.Memory.Shared, memory.Memory.Bandwidth = m.Memory.Cached/2, m.Memory.Shared/2, m.Memory.Bandwidth/2
	network.Inter.Latency = 2 * m.Inter.Latency
	if m.Inter.Burst > 0 { // with which the library was measured, too
		network.Library.Short, network.Library.Bandwidth = 0, 0
	}
	if onGPU(m, buffers) {
		launches, copies := m, m
		launches.GPU.Launch, launches.GPU.Down.Latency, launches.GPU.Up.Latency = 2*m.GPU.Launch, 2*m.GPU.Down.Latency, 2*m.GPU.Up.Latency
		copies.GPU.Down.Bandwidth, copies.GPU.Up.Bandwidth = m.GPU.Down.Bandwidth/2, m.GPU.Up.Bandwidth/2
		memory.GPU.Memory /= 2
		return []sim.Model{ops, launches, copies, memory, network}
	}
	return []sim.Model{ops, caches, apart, memory, network}
}

// sameShape reports whether two specs differ in chunks alone.
func sameShape(a, b spec.Spec) bool {
	return slices.EqualFunc(a.Levels, b.Levels, func(x, y spec.Level) bool {
		return x.Algorithm == y.Algorithm && x.Size == y.Size
	})
}

// relays reports whether the ranks of a node that receive a part of a broadcast store it where all others want it: what scatter is for.
func relays(l spec.Layout, q Query) bool {
	return q.Buffers == Registered && l.Ranks > 2 && sim.Spreads(q.Bytes, l.Ranks-1)
}

// shapes returns the specs that make sense for a layout, without chunks. What
// comes first wins where the model sees no difference.
func shapes(l spec.Layout, v schedule.Collective) []spec.Spec {
	one := func(names ...string) spec.Spec {
		var s spec.Spec
		for i, n := range names {
			level := spec.Level{Algorithm: n}
			if i < len(names)-1 {
				level.Size = spec.Node
			}
			s.Levels = append(s.Levels, level)
		}
		return s
	}
	switch {
	case l.Ranks == 1:
		return []spec.Spec{one("linear")}
	case v.ByRank():
		return parted(l, v, one)
	case l.Nodes == 1 && l.Ranks == 2: // a tree of two ranks is one, whatever it is called, and a ring does what direct does
		all := []spec.Spec{one("direct"), one("linear")}
		if v == schedule.Allreduce {
			all = []spec.Spec{one("direct"), one("doubling"), one("linear")}
		}
		return all
	case l.Nodes == 1 && v == schedule.Allreduce:
		return []spec.Spec{one("direct"), one("linear"), one("doubling"), one("binomial"), one("chain"), one("ring")}
	case l.Nodes == 1:
		all := []spec.Spec{one("direct"), one("linear"), one("binomial"), one("chain")}
		if v == schedule.Bcast {
			all = append(all, one("scatter"))
		}
		return all
	}
	tops := []string{"chain"}
	if v == schedule.Allreduce {
		tops = []string{"ring", "chain", "doubling"}
		if l.Nodes > 2 { // of two it is a ring
			tops = append(tops, "halving")
		}
	}
	if l.Nodes <= fewSenders { // for few bytes: one way over the network, not one for each level of a tree
		tops = append(tops, "linear")
	}
	tops = append(tops, "binomial") // of three nodes it is linear with the sends in another order
	var all []spec.Spec
	for _, top := range tops {
		if l.PPN == 1 {
			all = append(all, one(top))
			continue
		}
		all = append(all, one("direct", top), one("binomial", top))
	}
	if l.Nodes > 8 { // chains of 8, their heads in a tree: S-Caffe's CB-8
		for _, top := range []string{"chain", "binomial"} {
			s := spec.Spec{Levels: []spec.Level{{Algorithm: "chain", Size: 8}, {Algorithm: top}}}
			if l.PPN > 1 {
				s.Levels = slices.Insert(s.Levels, 0, spec.Level{Algorithm: "direct", Size: spec.Node})
			}
			all = append(all, s)
		}
	}
	return all
}

// fewSenders is how many nodes may all send to one, or one to all, at a time: the model does not know
// what a network does with many.
const fewSenders = 8

// parted is shapes of collectives of parts, or of an alltoall. The leaders of nodes have unequal parts
// where the nodes have unequal numbers of ranks, which a ring takes as it takes others.
func parted(l spec.Layout, v schedule.Collective, one func(names ...string) spec.Spec) (all []spec.Spec) {
	if v == schedule.Alltoall {
		if l.Nodes == 1 {
			return []spec.Spec{one("direct"), one("linear")}
		}
		return []spec.Spec{one("linear")}
	}
	if v.Rooted() {
		if v == schedule.Gather && l.Nodes > fewSenders {
			return []spec.Spec{one("binomial")}
		}
		return []spec.Spec{one("linear"), one("binomial")}
	}
	few := "doubling" // for few bytes
	if v == schedule.ReduceScatter {
		few = "binomial"
	}
	if l.Nodes == 1 {
		if v == schedule.ReduceScatter { // whose direct has the fewest messages
			return []spec.Spec{one("direct"), one("ring")}
		}
		return []spec.Spec{one("direct"), one(few), one("ring")}
	}
	tops := []string{"ring", few}
	if l.Nodes <= fewSenders {
		tops = append(tops, "linear")
	}
	for _, top := range tops {
		if l.PPN == 1 {
			all = append(all, one(top))
		} else {
			all = append(all, one("direct", top))
		}
	}
	return all
}

// Chunks that are tried, the usual one first: below 64K a message costs more
// than its bytes, but between nodes a short one needs no rendezvous (sim.Model.Eager);
// above 1M the pipeline takes too long to fill, but for memory that is read in place. A GPU takes longer for the launch of a kernel than for 256K, and its copies
// reach their speed with larger ones: how large, a model knows that has parameters of them, and of others it is a rule.
var (
	netChunks      = []int{128 << 10, 64 << 10, 256 << 10, 512 << 10, 1 << 20}
	nodeChunks     = []int{1 << 20, 512 << 10, 2 << 20, 256 << 10, 4 << 20, 64 << 10}
	heapChunks     = []int{1 << 20, 4 << 20, 512 << 10, 2 << 20, 256 << 10, 128 << 10, 64 << 10}
	exchangeChunks = []int{4 << 20}
	cudaChunks     = []int{4 << 20, 1 << 20, 2 << 20, 8 << 20, 16 << 20, 512 << 10}
	gpuChunks      = []int{4 << 20, 2 << 20, 8 << 20, 1 << 20, 16 << 20, 512 << 10, 256 << 10, 128 << 10}
)

// chunksFor returns the chunks of a kind of buffers; nil: those of the host's. Memory that is not registered is copied
// by the kernel; where every rank has a core, both of a message's do that unless it is added, a part of it with each call, and with larger chunks
// there are fewer calls. Where two ranks exchange what they only move, each copies what it gets, and chunks cost without a gain.
func chunksFor(m sim.Model, l spec.Layout, q Query) []int {
	v := q.Collective
	switch {
	case onGPU(m, q.Buffers):
		return gpuChunks
	case q.Buffers == CUDA:
		return cudaChunks
	case l.Nodes == 1 && l.Ranks == 2 && v.ByRank() && !v.Reduces() && !v.Rooted():
		return exchangeChunks
	case q.Buffers == Unregistered && l.Nodes == 1 && (m.Cores < 1 || float64(l.PPN) <= m.Cores):
		return heapChunks
	}
	return nil
}

// eagerChunk is one that is tried between nodes, too, of blocking calls, of which each has mostEager at most: where many calls are
// under way at once a rendezvous is hidden. (One of 32K is up to 15 % faster over
// Open MPI's TCP, and half as fast over that of MPICH's UCX.)
const (
	eagerChunk = 16 << 10
	mostEager  = 64
)

// minChunk is the smallest of the others, maxPart the largest part of a chunk that
// one rank sums: it is to stay in a core's cache.
const (
	minChunk = 64 << 10
	maxPart  = 512 << 10
)

// belowRing is the chunk of the levels below a ring: short, since the ring waits for the
// first one; but no shorter, since every op of a node's ranks costs time.
const belowRing = 256 << 10

// cutBytes is how many bytes at the last level are cut into chunks: those of the parts,
// where there are parts.
func cutBytes(l spec.Layout, q Query) int {
	switch {
	case !q.Collective.ByRank():
		return q.Bytes
	case l.Nodes > 1 && q.Collective != schedule.Alltoall && !q.Collective.Rooted():
		return q.Bytes / l.Nodes
	}
	return q.Bytes / l.Ranks
}

// chunked returns a spec with its last level's chunk in all sizes that differ
// for the given bytes: those given or, of nil, the usual ones. The levels below have the same, so that a chunk climbs
// as one, but below a ring.
func chunked(s spec.Spec, l spec.Layout, bytes int, blocking bool, chunks []int) []spec.Spec {
	least := minChunk
	switch {
	case chunks != nil:
	case len(s.Levels) == 1 && divides(s.Levels[0].Algorithm):
		chunks = slices.DeleteFunc(slices.Clone(nodeChunks), func(c int) bool { return c > maxPart*l.Ranks })
	case l.Nodes == 1 || !blocking:
		chunks = netChunks
	default:
		if chunks, least = netChunks, eagerChunk; bytes <= mostEager*eagerChunk {
			chunks = append(slices.Clone(chunks), eagerChunk)
		}
	}
	if bytes <= least {
		return []spec.Spec{s}
	}
	var all []spec.Spec
	whole := false // there is one with a single chunk
	for _, c := range chunks {
		if c >= bytes {
			if whole {
				continue
			}
			if whole = true; bytes <= minChunk {
				all = append(all, s)
				continue
			}
		}
		sized := spec.Spec{Levels: slices.Clone(s.Levels)}
		top := len(sized.Levels) - 1
		for k := range sized.Levels {
			sized.Levels[k].Chunk = c
			if k < top && sized.Levels[top].Algorithm == "ring" {
				sized.Levels[k].Chunk = max(c, min(belowRing, bytes/8))
			}
		}
		all = append(all, sized)
	}
	return all
}
