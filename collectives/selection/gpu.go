package selection

import (
	"math"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/schedule/sim"
)

// onGPU reports whether predictions for a kind of buffers are those of GPUs' memory: where a model does not know what that costs,
// it takes them for unregistered ones of the host.
func onGPU(m sim.Model, buffers BufferKind) bool { return buffers == CUDA && m.GPU.Known() }

// Where returns m with the memory of a node in which a kind of buffers lies, for Limit: that of its GPUs, without a limit where nothing is known of
// them.
func Where(m sim.Model, l spec.Layout, buffers BufferKind) sim.Model {
	switch {
	case onGPU(m, buffers):
		m.Memory.Bandwidth = times(m.GPU.Memory, devices(m.GPU, l))
	case buffers == CUDA:
		m.Memory.Bandwidth = math.Inf(1)
	}
	return m
}

// devices is how many GPUs the ranks of a node have.
func devices(g sim.GPU, l spec.Layout) float64 {
	if g.Devices >= 1 {
		return min(g.Devices, float64(l.PPN))
	}
	return float64(l.PPN)
}

// setGPUs has the closed forms take kernels for threads, and the memory of a node's GPUs for that of the node. Threads then share cores
// where kernels take turns.
func (e *estimate) setGPUs() {
	e.unregistered, e.hosted = false, 1
	e.core, e.node = e.m.GPU.Memory, times(e.m.GPU.Memory, devices(e.m.GPU, e.l))
	e.m.Cache, e.m.Cores = 0, 0
	if e.m.GPU.Turns > 0 {
		e.m.Cores = devices(e.m.GPU, e.l)
	}
}

// lent reports whether messages within a node are read where they lie.
func (e *estimate) lent() bool {
	g := e.m.GPU
	return g.Lends >= sim.LendsAll || g.Lends >= sim.LendsOwn && devices(g, e.l) == 1
}

// device sets what an op and the way of a message cost in the groups of a level, whose additions, or copies, are kernels. Where
// messages are staged, the longest of their copies and of what else is done to them sets the pace.
func (e *estimate) device(p place) {
	g := &e.m.GPU
	bytes := p.chunk
	switch p.algorithm {
	case "direct", "scatter":
		bytes /= p.members
	case "ring":
		bytes = min(bytes, max(1, e.bytes/p.members))
	}
	e.m.Intra.Latency = e.near
	e.m.Op += g.Launch / receiveSendOps
	gpus, lent := devices(*g, e.l), e.lent()
	if p.nodes < 2 && lent {
		return
	}
	share := max(1, times(p.near, p.groups)/gpus) // ranks of a GPU
	down := g.Down.Latency + times(share, bytes)/g.Down.Bandwidth
	up := g.Up.Latency + times(share, bytes)/g.Up.Bandwidth
	between := 0.0
	if p.near > 1 && !lent {
		between = bytes / e.staging
		e.m.Intra.Latency += down + between + up
	}
	e.m.Inter.Latency += down + up
	kernel := g.Launch + times(firstPasses, bytes)/e.core
	e.m.Op += max(0, max(down, up, between)-kernel) / receiveSendOps
}
