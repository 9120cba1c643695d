package selection

import (
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/schedule"
)

// parted is the closed form of a collective of equal parts, or of an alltoall: the ops of every rank, or of the root where
// there is one, and copies or additions, and what every node's port carries. It tells specs from each other by the messages on
// the longest way, no more: their bytes are the same.
func (e *estimate) parted(v schedule.Collective, s spec.Spec) float64 {
	ranks, nodes, near := float64(e.l.Ranks), float64(e.l.Nodes), float64(e.l.PPN)
	busy := 1.0
	if e.m.Cores >= 1 {
		busy = max(1, near/e.m.Cores)
	}
	members := nodes
	if e.l.Nodes == 1 || v == schedule.Alltoall || v.Rooted() {
		members = ranks
	}
	last := s.Levels[len(s.Levels)-1]
	chunk := last.Chunk
	if chunk == 0 {
		chunk = spec.DefaultChunk
	}
	ops := members - 1 // messages of a member, and how many of them follow one another
	follow := ops
	switch last.Algorithm {
	case "doubling":
		ops = log2(members)
		follow = ops
	case "binomial":
		if follow = log2(members); v.Rooted() {
			ops = follow
		}
	case "linear", "direct":
		follow = 1
	}
	part := e.bytes / members
	chunks := max(1, part/float64(chunk))
	if e.gpu {
		e.device(place{members: members, near: near, nodes: nodes, groups: 1, chunk: min(part, float64(chunk)), chunks: chunks})
	}
	work := e.take(e.bytes)
	switch v {
	case schedule.Scatter: // every rank takes its own
		work = e.take(e.bytes / members)
	case schedule.ReduceScatter:
		work = e.combine(e.bytes, inPlacePasses, true)
	}
	thread := times(busy, work) + times(times(receiveSendOps*e.m.Op, ops), chunks)
	if e.l.Nodes == 1 {
		return times(follow, e.m.Intra.Latency) + thread
	}
	fill := times(follow, e.m.Inter.Latency)
	if v == schedule.Alltoall { // every rank of a node has bytes of its own for every other node
		return fill + max(thread, times(near, e.wire(times(e.bytes, (nodes-1)/nodes))))
	}
	if near > 1 {
		fill += 2*e.m.Intra.Latency + times(near, times(2, e.m.Op))
	}
	return fill + max(thread, e.wire(times(e.bytes, (nodes-1)/nodes)))
}
