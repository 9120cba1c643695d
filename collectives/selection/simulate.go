package selection

import (
	"math"
	"slices"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
)

// How much is simulated to predict a time. A pipeline that is full takes as long for
// every further chunk as for the one before, so that few of them tell the time of all.
const (
	fewestChunks = 20    // of a collective that has more
	fewestParts  = 8     // likewise, chunks of a ring's segment
	usualOps     = 800   // of all ranks in a simulation, as long as those are enough
	maxOps       = 10000 // a layout that needs more is told from a smaller one
)

// Predict returns in seconds how long the model says that a collective takes: what
// package sim makes of its schedules. Of a collective of many chunks it simulates
// two of fewer, and adds for every other chunk what the longer of them takes more
// than the shorter; of one with many ranks it simulates a smaller layout, and
// scales by what the closed form says of the two.
//
// It is a function of its arguments alone, to the last bit, on all kinds of
// processors: every product is rounded before anything is added to it, so that
// no compiler fuses the two. Ranks that agree on the arguments agree on the
// result.
func Predict(v schedule.Collective, bytes int, s spec.Spec, l spec.Layout, m sim.Model, buffers BufferKind) float64 {
	return newPlans().prediction(v, bytes, s, l, buffers).under(m)
}

// plans are schedules that have been built to be simulated, nil of a spec that does not serve the call, and the seconds
// that simulations of them came to. Predictions that have them in common build and simulate each once: of pipelines that
// are full, those of all sizes simulate the same few chunks.
type plans struct {
	built map[plan]*sim.Plans
	took  map[run]float64
}

func newPlans() plans { return plans{map[plan]*sim.Plans{}, map[run]float64{}} }

// run is a simulation of a plan: all that its result depends on.
type run struct {
	plan
	model   sim.Model
	buffers BufferKind
	whole   int // bytes of the collective that it is a part of
}

// plan is what schedules are built of.
type plan struct {
	collective schedule.Collective
	bytes      int
	spec       string
	layout     spec.Layout
}

// prediction is that of a spec for a call, under any number of models.
type prediction struct {
	collective schedule.Collective
	bytes      int
	spec       spec.Spec
	layout     spec.Layout
	small      spec.Layout // that is simulated
	buffers    BufferKind
	text       string // of spec
	plans      plans
}

func (known plans) prediction(v schedule.Collective, bytes int, s spec.Spec, l spec.Layout, buffers BufferKind) *prediction {
	p := &prediction{collective: v, bytes: bytes, spec: s, layout: l, small: l, buffers: buffers, text: s.String(), plans: known}
	for !s.IsLibrary() && fewestChunks*opsPerChunk(v, s, p.small) > maxOps {
		smaller, ok := shrink(p.small)
		if !ok {
			break
		}
		p.small = smaller
	}
	return p
}

// under is Predict.
func (p *prediction) under(m sim.Model) float64 { return p.within(m, math.Inf(1)) }

// within is Predict of what takes at most so many seconds, and else may be infinite, which costs less to find out.
func (p *prediction) within(m sim.Model, limit float64) float64 {
	if p.layout.Ranks < 2 && onGPU(m, p.buffers) {
		return m.Op + m.GPU.Launch + times(copyPasses, float64(p.bytes))/m.GPU.Memory
	}
	if p.layout.Ranks < 2 || p.bytes == 0 {
		return m.Op + 2*float64(p.bytes)/m.Core.At(2*float64(p.bytes), m.Cache)
	}
	if p.spec.IsLibrary() {
		return library(p.collective, p.bytes, p.layout, m)
	}
	share := 1.0
	if p.small != p.layout {
		share = p.closed(p.layout, m) / p.closed(p.small, m)
	}
	return times(share, p.pipelined(m, limit/share))
}

func (p *prediction) closed(l spec.Layout, m sim.Model) float64 {
	return closed(p.collective, p.bytes, p.spec, l, m, p.buffers)
}

// pipelined is the time of a collective from simulations of few of its chunks.
func (p *prediction) pipelined(m sim.Model, limit float64) float64 {
	few, more := fewer(p.collective, p.spec, p.small)
	if p.bytes <= more {
		return p.simulated(p.bytes, m, limit)
	}
	longer := p.simulated(more, m, limit)
	if math.IsInf(longer, 1) {
		return longer
	}
	t := p.simulated(few, m, math.Inf(1))
	perByte := (longer - t) / float64(more-few)
	if most := longer / float64(more); perByte < most/2 && times(perByte, float64(p.bytes)) < p.least(m) {
		perByte = most // by chance, and not by a little: what was left of a turn on shared cores after the shorter one served the longer
	}
	return longer + times(perByte, float64(p.bytes-more))
}

// least is Limit on one node at the pace that the caches leave its memory, where every rank has a buffer in use; 0 elsewhere.
func (p *prediction) least(m sim.Model) float64 {
	if onGPU(m, p.buffers) || p.small.Nodes > 1 {
		return 0
	}
	set := float64(p.bytes)
	if m.Cores >= 1 {
		set *= max(1, float64(p.small.PPN)/m.Cores)
	}
	m.Memory.Bandwidth = m.Memory.At(set, m.Cache)
	return Limit(p.collective, p.bytes, p.small, m)
}

// elemSize is that of the elements that are simulated.
const elemSize = 4

// simulated returns what package sim makes of the collective of so many bytes, as a part of
// the whole; it may be infinite beyond limit.
func (p *prediction) simulated(bytes int, m sim.Model, limit float64) float64 {
	of := plan{p.collective, bytes, p.text, p.small}
	as := run{of, m, p.buffers, p.bytes}
	if t, known := p.plans.took[as]; known {
		return t
	}
	nodes := nodesOf(p.small)
	all, built := p.plans.built[of]
	if !built {
		all, _ = p.build(bytes, nodes)
		p.plans.built[of] = all
	}
	t := 0.0
	if all != nil {
		setup := sim.Setup{Model: m, Nodes: nodes, ElemSize: elemSize, Unregistered: p.buffers != Registered, GPU: onGPU(m, p.buffers), ByRank: p.collective.ByRank(), Part: float64(bytes) / float64(p.bytes)}
		if !math.IsInf(limit, 1) {
			setup.Until = limit
		}
		res, err := all.Simulate(setup)
		if err != nil {
			all = nil
		}
		if t = res.Max; math.IsInf(t, 1) {
			return t // nobody knows how long
		}
	}
	if all == nil { // a spec that does not serve the call
		t = p.closed(p.small, m)
	}
	p.plans.took[as] = t
	return t
}

// build makes the schedules of the collective of so many bytes.
func (p *prediction) build(bytes int, nodes []int) (*sim.Plans, error) {
	all := make([]*schedule.Schedule, len(nodes))
	count := (bytes + elemSize - 1) / elemSize
	if p.collective == schedule.Alltoall { // of whole blocks
		count = (count + len(nodes) - 1) / len(nodes) * len(nodes)
	}
	for r := range nodes {
		var err error
		all[r], err = spec.Build(spec.Call{
			Collective: p.collective, Rank: r, Size: len(nodes), Count: count, ElemSize: elemSize, Nodes: nodes,
			Apart: apart(p.spec),
		}, p.spec)
		if err != nil {
			return nil, err
		}
	}
	return sim.Prepare(all, schedule.Windows{})
}

// apart says whether a call by a spec is taken for one that is not in place. Whether it is, is each rank's own affair, and they
// choose alike: most are not. What doubling gains by that is less than the model has it.
func apart(s spec.Spec) bool { return s.Levels[len(s.Levels)-1].Algorithm != "doubling" }

// fewer returns of how many bytes the shorter and the longer simulation are.
func fewer(v schedule.Collective, s spec.Spec, l spec.Layout) (few, more int) {
	room := usualOps / max(1, opsPerChunk(v, s, l))
	for i, level := range s.Levels {
		chunk := level.Chunk
		if chunk == 0 {
			chunk = spec.DefaultChunk
		}
		n := max(room, fewestChunks)
		if inParts(level.Algorithm) || v.ByRank() { // a chunk of every part
			n = max(room, fewestParts)
			if chunk *= l.Ranks; i > 0 {
				chunk = chunk / l.Ranks * l.Nodes
			}
		}
		few, more = max(few, n*4/7*chunk), max(more, n*chunk)
	}
	return few, more
}

// inParts says whether an algorithm cuts the buffer into a part for every rank, and a part into chunks.
func inParts(algorithm string) bool { return algorithm == "ring" || algorithm == "halving" }

// divides says whether an algorithm cuts a chunk into a part for every rank.
func divides(algorithm string) bool { return algorithm == "direct" || algorithm == "scatter" }

// opsPerChunk is about how many ops all ranks have together for a chunk, or for one of
// every segment of a ring.
func opsPerChunk(v schedule.Collective, s spec.Spec, l spec.Layout) int {
	sum, members := 0, l.Ranks
	for i, level := range s.Levels {
		size := members
		if i < len(s.Levels)-1 {
			if size = level.Size; size == spec.Node {
				size = l.PPN
			}
			size = min(size, members)
		}
		each := 2 // a receive and a send
		switch {
		case v.ByRank() && v.Rooted(): // for every part
		case inParts(level.Algorithm), divides(level.Algorithm), v.ByRank():
			each = 2 * size
		case level.Algorithm == "doubling":
			each = 2 * int(log2(float64(size)))
		}
		sum += members * each
		members = (members + size - 1) / size
	}
	if v == schedule.Allreduce {
		sum *= 2
	}
	return sum
}

// shrink returns a layout of half as many ranks, as long as there are enough to
// tell how an algorithm grows.
func shrink(l spec.Layout) (spec.Layout, bool) {
	const fewest = 4
	nodes, ppn := l.Nodes, l.PPN
	switch {
	case nodes >= 2*fewest && nodes >= ppn:
		nodes /= 2
	case ppn >= 2*fewest:
		ppn /= 2
	case nodes >= 2*fewest:
		nodes /= 2
	default:
		return l, false
	}
	return spec.Layout{Ranks: nodes * ppn, Nodes: nodes, PPN: ppn}, true
}

// nodesOf returns nodes of ranks that have the given layout, the first ones full.
func nodesOf(l spec.Layout) []int {
	var nodes []int
	for node := range l.Nodes {
		left := l.Ranks - len(nodes) - (l.Nodes - node - 1) // for this one, were the others to have one each
		nodes = append(nodes, slices.Repeat([]int{node}, max(1, min(l.PPN, left)))...)
	}
	return nodes
}

// library is the MPI library's collective of few bytes: a tree, or for
// allreduce recursive doubling, of whole messages; for collectives of parts, of these.
func library(v schedule.Collective, bytes int, l spec.Layout, m sim.Model) float64 {
	near, far := libraryHops(l)
	b := float64(bytes)
	copies := 2 * b / m.Core.Cached
	if v == schedule.Alltoall { // a message for every rank
		near, far = float64(l.PPN-1), float64(l.Ranks-l.PPN)
		wire := 0.0
		if far > 0 {
			wire = libraryWire(times(float64(l.PPN), b)*(far/float64(l.Ranks)), m)
		}
		return times(near, m.Intra.Latency+2*m.Library.Op) + m.Inter.Latency + times(far, 2*m.Library.Op) + 2*copies + wire
	}
	if v.ByRank() { // the messages of all rounds together are the buffer
		wire := 0.0
		if far > 0 {
			wire = libraryWire(b, m)
		}
		return times(near, m.Intra.Latency+2*m.Library.Op) + times(far, m.Inter.Latency+2*m.Library.Op) + 2*copies + wire
	}
	return times(near, m.Intra.Latency+2*m.Library.Op+2*copies) +
		times(far, m.Inter.Latency+2*m.Library.Op+copies+libraryWire(b, m))
}

// libraryHops is how many messages one after another a tree has, within nodes and
// between them.
func libraryHops(l spec.Layout) (near, far float64) {
	far = depth(float64(l.Nodes))
	return depth(float64(l.Ranks)) - far, far
}

// libraryWire is for how long bytes of the library's collectives are on their way between nodes.
func libraryWire(bytes float64, m sim.Model) float64 {
	rest := m.Library.Bandwidth
	if rest == 0 {
		rest = m.Inter.Bandwidth
	}
	short := m.Library.Short
	if short == 0 {
		short = rest
	}
	return min(bytes, sim.LibraryShort)/short + max(0, bytes-sim.LibraryShort)/rest
}

// LibraryProbes are the sizes in bytes of the collectives that WithLibrary wants.
var LibraryProbes = []int{8, sim.LibraryShort, LibraryBytes}

// WithLibrary returns m with what the MPI library costs, of a collective that took it
// the given multiples of its time by another spec, for LibraryProbes.
func WithLibrary(m sim.Model, l spec.Layout, v schedule.Collective, yardstick spec.Spec, ratios []float64) sim.Model {
	const least, fastest = 0.05e-6, 10 // an op, and how often the network's rate the library's may seem
	m.Library.Op, m.Library.Short, m.Library.Bandwidth = 0, 0, 0
	took := make([]float64, len(LibraryProbes))
	for i, n := range LibraryProbes {
		took[i] = times(ratios[i], newPlans().prediction(v, n, yardstick, l, Registered).under(m))
	}
	near, far := libraryHops(l)
	rest := took[0] - library(v, LibraryProbes[0], l, m)
	m.Library.Op = Rounded(max(least, rest/(2*(near+far))), steps...)
	if far == 0 {
		return m
	}
	way := func(i int) float64 { // of all bytes, in each of the hops
		n := LibraryProbes[i]
		return (took[i]-library(v, n, l, m))/far + libraryWire(float64(n), m)
	}
	rate := func(bytes int, took float64) float64 {
		return Rounded(float64(bytes)/max(took, float64(bytes)/(fastest*m.Inter.Bandwidth)), steps...)
	}
	first, all := way(1), way(2)
	m.Library.Short = rate(sim.LibraryShort, first)
	m.Library.Bandwidth = rate(LibraryBytes-sim.LibraryShort, all-first)
	return m
}
