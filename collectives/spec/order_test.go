package spec_test

import (
	"testing"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
)

// Below a ring, the ranks of a node go in the ring's order. Each node's leader begins
// with another segment, and would wait for it if its node added up the buffer from
// front to back; and the results come to it in another order. So the time is that of
// the wire, though memory is not much faster than the network.
func TestLevelsBelowARingGoInItsOrder(t *testing.T) {
	const count = 16 << 20
	m := sim.Default()
	m.Inter.Bandwidth, m.Core.Bandwidth, m.Memory.Bandwidth, m.Staging.Bandwidth = 1e9, 8e9, 16e9, 8e9
	m.Packet, m.Carry, m.Eager = 0, 0, 1<<20 // neither the processors nor questions are the limit
	for name, nodes := range map[string][]int{
		"4 × 2":            spec.NodesOf(4, 2),
		"3, 1, 2, 1, 1, 2": {0, 0, 0, 1, 2, 2, 3, 4, 5, 5},
	} {
		s, err := spec.Parse("direct,chunk=256K/ring,chunk=128K")
		if err != nil {
			t.Fatal(err)
		}
		r, err := sim.Simulate(planOn(t, schedule.Allreduce, s, len(nodes), 0, count, nodes), sim.Setup{Model: m, Nodes: nodes, ElemSize: 1})
		if err != nil {
			t.Fatal(err)
		}
		n := float64(spec.LayoutOf(nodes).Nodes)
		wire := 2 * (n - 1) / n * count / m.Inter.Bandwidth
		t.Logf("%s: %.3f of the wire's time", name, r.Max/wire)
		if r.Max > 1.05*wire {
			t.Errorf("%s: %.2f times what the wire takes", name, r.Max/wire)
		}
	}
}
