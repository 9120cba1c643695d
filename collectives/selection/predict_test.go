package selection_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
)

// schedules returns those of all ranks.
func schedules(t testing.TB, v schedule.Collective, bytes int, s spec.Spec, nodes []int) []*schedule.Schedule {
	t.Helper()
	var all []*schedule.Schedule
	for r := range nodes {
		one, err := spec.Build(spec.Call{Collective: v, Rank: r, Size: len(nodes), Count: bytes / 4, ElemSize: 4, Nodes: nodes, Apart: selection.Apart(s)}, s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// models are clusters of a kind: shaped links as in a lab, ordinary ones on
// nodes with fewer cores than ranks, fast ones.
func models() map[string]sim.Model {
	lab, shared, fast := sim.Default(), sim.Default(), sim.Default()
	lab.Inter.Bandwidth, lab.Inter.Latency = 125e6, 60e-6
	shared.Cores = 2
	fast.Inter.Bandwidth, fast.Inter.Latency = 12.5e9, 2e-6
	return map[string]sim.Model{"lab": lab, "shared": shared, "fast": fast}
}

// The closed forms and the simulation of the schedules agree within a fifth on
// what the built-in rule chooses for large buffers (most within 5 %); within a third for small ones,
// and where ranks have to share cores, which they take in turns.
func TestPredictionsAreTheSimulation(t *testing.T) {
	for _, l := range [][2]int{{1, 2}, {1, 4}, {1, 8}, {2, 1}, {4, 1}, {7, 1}, {4, 2}, {5, 3}, {16, 1}} {
		nodes := spec.NodesOf(l[0], l[1])
		for name, m := range models() {
			sel := &selection.Selector{Model: m}
			for v := schedule.Reduce; v <= schedule.Allreduce; v++ {
				for _, bytes := range []int{1 << 10, 256 << 10, 16 << 20} {
					c := sel.Candidates(spec.LayoutOf(nodes), selection.Query{Collective: v, Bytes: bytes})[0]
					r, err := sim.Simulate(schedules(t, v, bytes, c.Spec, nodes), sim.Setup{Model: m, Nodes: nodes, ElemSize: 4})
					if err != nil {
						t.Fatal(err)
					}
					text := fmt.Sprintf("%d×%d %s: %v of %s by %v: simulated %.1f µs, predicted %.1f µs", l[0], l[1], name, v, units.FormatBytes(bytes), c.Spec, 1e6*r.Max, 1e6*c.Seconds)
					ratio, within := c.Seconds/r.Max, 1.2
					if bytes <= 256<<10 || m.Cores > 0 {
						within = 1.35
					}
					if ratio > within || ratio < 1/within {
						t.Error(text)
					}
				}
			}
		}
	}
}

// No prediction and no simulation beats the bytes over the bandwidth, and more
// bytes never take less time.
func TestLimitAndMonotony(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, ppn := rapid.IntRange(1, 6).Draw(t, "nodes"), rapid.IntRange(1, 4).Draw(t, "ppn")
		v := schedule.Collective(rapid.IntRange(0, 2).Draw(t, "collective"))
		bytes := 4 * rapid.IntRange(1, 1<<20).Draw(t, "elements")
		m := models()[rapid.SampledFrom([]string{"lab", "shared", "fast"}).Draw(t, "model")]
		nodes := spec.NodesOf(n, ppn)
		l := spec.LayoutOf(nodes)
		sel := &selection.Selector{Model: m}
		all := sel.Candidates(l, selection.Query{Collective: v, Bytes: bytes, Type: mem.Float32})
		c := rapid.SampledFrom(all).Draw(t, "candidate")
		setup := sim.Setup{Model: m, Nodes: nodes, ElemSize: 4}
		of := func(bytes int) float64 {
			var all []*schedule.Schedule
			for r := range nodes {
				one, err := spec.Build(spec.Call{Collective: v, Rank: r, Size: len(nodes), Count: bytes / 4, ElemSize: 4, Nodes: nodes, Apart: selection.Apart(c.Spec)}, c.Spec)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, one)
			}
			r, err := sim.Simulate(all, setup)
			if err != nil {
				t.Fatal(err)
			}
			return r.Max
		}
		wire := 0.0
		if n > 1 {
			wire = selection.Limit(v, bytes, spec.Layout{Ranks: n, Nodes: n, PPN: 1}, m)
		}
		once, more := of(bytes), of(2*bytes)
		if once < wire*0.999 {
			t.Fatalf("%v of %d bytes by %v on %v takes %g s in the simulation, less than %g s on the wire", v, bytes, c.Spec, l, once, wire)
		}
		// Ports that serve what is ready first may end a little later with less to do
		// (Graham's anomalies, 1969). Of 12,000 draws the worst was 0.93.
		if more < once*0.9 {
			t.Fatalf("%v by %v on %v: %d bytes take %g s, twice as many %g s", v, c.Spec, l, bytes, once, more)
		}
		if a, b := selection.Predict(v, bytes, c.Spec, l, m, selection.Registered), selection.Predict(v, 2*bytes, c.Spec, l, m, selection.Registered); b < 0.9*a { // the same anomalies, where few chunks are simulated for many
			t.Fatalf("%v by %v on %v: predicted %g s for %d bytes, %g s for twice as many", v, c.Spec, l, a, bytes, b)
		}
	})
}

// The library's collectives are predicted to take the multiples of the yardstick's time that they took, and between two sizes what
// is between them; where the yardstick is as fast as the library, so is its prediction, whatever the network.
func TestLibraryIsMeasuredByAnother(t *testing.T) {
	yardstick := spec.Spec{Levels: []spec.Level{{Algorithm: "doubling"}}}
	library := spec.Spec{Levels: []spec.Level{{Algorithm: spec.Library}}}
	for name, m := range models() {
		for _, n := range []int{2, 3, 4, 8} {
			all := [][]float64{{1, 1, 1}, {1, 2, 2}}
			if name == "lab" { // where bytes, not hops, are what takes long
				all = append(all, []float64{2, 1, 0.63}, []float64{1, 1.25, 0.5})
			}
			for _, ratios := range all {
				l := spec.LayoutOf(spec.NodesOf(n, 1))
				with := selection.WithLibrary(m, l, schedule.Allreduce, yardstick, ratios)
				of := func(bytes int, s spec.Spec) float64 {
					return selection.Predict(schedule.Allreduce, bytes, s, l, with, selection.Registered)
				}
				for i, bytes := range selection.LibraryProbes {
					// What is measured is rounded, to a step of a fourth.
					if got, want := of(bytes, library)/of(bytes, yardstick), ratios[i]; got < want/1.15 || got > want*1.15 {
						t.Errorf("%s, %d nodes, ratios %v: %d bytes take the library %.2f times as long", name, n, ratios, bytes, got)
					}
				}
				if a, b, c := of(8, library), of(12<<10, library), of(48<<10, library); a > b || b > c || c > of(64<<10, library) {
					t.Errorf("%s, %d nodes, ratios %v: more bytes take the library less time", name, n, ratios)
				}
			}
		}
	}
}

// What the built-in rule comes to, for the layouts that people have.
func TestBuiltInChoices(t *testing.T) {
	of := func(n, ppn int, v schedule.Collective, bytes int, library bool) string {
		sel := &selection.Selector{Model: models()["lab"]}
		c, err := sel.Select(spec.LayoutOf(spec.NodesOf(n, ppn)), selection.Query{Collective: v, Bytes: bytes, Blocking: true, Library: library}, spec.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		return c.Spec.String()
	}
	for _, n := range []int{3, 4, 5, 7, 8} {
		for _, bytes := range []int{8 << 20, 64 << 20} {
			for _, v := range []schedule.Collective{schedule.Reduce, schedule.Bcast} {
				if got := of(n, 1, v, bytes, true); !strings.HasPrefix(got, "chain,") {
					t.Errorf("%v of %d bytes on %d nodes is done by %s", v, bytes, n, got)
				}
				if got := of(n, 2, v, bytes, true); !strings.Contains(got, "/chain,") {
					t.Errorf("%v of %d bytes on %d nodes of 2 is done by %s", v, bytes, n, got)
				}
			}
			if got := of(n, 1, schedule.Allreduce, bytes, true); !strings.HasPrefix(got, "ring,") {
				t.Errorf("allreduce of %d bytes on %d nodes is done by %s", bytes, n, got)
			}
			if got := of(n, 2, schedule.Allreduce, bytes, true); !strings.HasPrefix(got, "direct,") || !strings.Contains(got, "/ring,") {
				t.Errorf("allreduce of %d bytes on %d nodes of 2 is done by %s", bytes, n, got)
			}
			if got := of(1, n, schedule.Allreduce, bytes, true); !strings.HasPrefix(got, "direct,") {
				t.Errorf("allreduce of %d bytes on one node of %d is done by %s", bytes, n, got)
			}
		}
		for _, v := range schedule.Collectives {
			if got := of(1, n, v, 4, true); got == "mpi" {
				t.Errorf("%v of 4 bytes on one node of %d is done by %s", v, n, got)
			}
		}
		small := "mpi"
		if n > 3 { // one way over the network, where a tree has two or three
			small = "linear"
		}
		if got := of(n, 1, schedule.Reduce, 64, true); got != small {
			t.Errorf("a small blocking reduce on %d nodes is done by %s", n, got)
		}
		if got := of(n, 1, schedule.Reduce, 64, false); got != "linear" {
			t.Errorf("a small reduce on %d nodes is done by %s where there is no library", n, got)
		}
	}
}
