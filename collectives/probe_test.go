package collectives

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/schedule/sim"
)

// labStarts is what twelve starts in the lab measured in their turns, µs: four nodes of a rank
// each on two cores of an AMD EPYC (Zen 4), Open MPI 4.1.4.
var labStarts = [][2][]float64{ // the hop, and the packet
	{{22.5, 45.4, 38.2, 50.3, 42.9}, {12.2, 11.9, 10.2, 14.8, 11.3}},
	{{65.6, 46.6, 25.6, 50.3, 28}, {15.1, 8.09, 14.4, 13.3, 12.6}},
	{{23.1, 23.1, 44.8, 42.5, 47.3}, {7.79, 7.5, 10.7, 9.62, 7.22}},
	{{17.9, 19.3, 19.7, 69.2, 67.4}, {8.61, 7.43, 12.6, 17.5, 21.6}},
	{{46.1, 47.2, 44.8, 25.2, 21.1}, {7.51, 8.5, 7.81, 6.9, 7.27}},
	{{27.1, 56.7, 25.1, 46.8, 30.5}, {11.5, 15.7, 10.1, 13.5, 12.2}},
	{{58.6, 42.4, 38.3, 38.5, 26.9}, {16.3, 7.89, 11.9, 9.29, 7.71}},
	{{24.6, 24, 40.6, 41, 24.8}, {8.02, 7.33, 7.48, 9.37, 8.07}},
	{{34.7, 41.5, 101, 61.8, 42.9}, {11.1, 8.12, 6.51, 14.7, 10.3}},
	{{41.3, 27.8, 34.5, 37.2, 53.4}, {9.08, 10.7, 9.48, 10.6, 11.4}},
	{{33.9, 32.9, 32.5, 31.7, 36.5}, {8.3, 13.4, 7.83, 7.92, 11.8}},
	{{34.7, 36.3, 80.2, 37.6, 35}, {10.4, 10.8, 10.7, 12, 12.5}},
}

func labStart(start int) *network {
	micro := func(values []float64) (all []float64) {
		for _, v := range values {
			all = append(all, v*1e-6)
		}
		return all
	}
	return &network{
		hop: micro(labStarts[start][0]), packet: micro(labStarts[start][1]),
		burst: micro([]float64{115, 131, 342, 108, 124}), probe: []float64{35.3e-3, 38.8e-3}, carry: []carrying{{1.7e-9, 8.6e-9, 0.05}, {1.5e-9, 8.6e-9, 0.06}, {1.6e-9, 8.7e-9, 0.07}},
		library: [][]float64{{1.25, 1.1, 0.52}, {1.05, 1.2, 0.47}, {0.85, 0.9, 1.27}, {0.97, 1.16, 0.54}, {1.12, 1.18, 0.52}},
	}
}

// Starts of the same network come to nearly the same model, of which the bandwidth is the wire's;
// and what disturbs two turns of five is no part of it.
func TestNetworkIsTheSameAtEveryStart(t *testing.T) {
	base, l := sim.Default(), spec.LayoutOf([]int{0, 1, 2, 3})
	models := map[string]int{}
	var latencies []float64
	for start := range labStarts {
		quiet := labStart(start).on(base, l)
		models[quiet.String()]++
		latencies = append(latencies, quiet.Inter.Latency)
		if quiet.Inter.Bandwidth != 125e6 {
			t.Errorf("start %d: %g bytes a second over the wire's 120 million", start, quiet.Inter.Bandwidth)
		}
		if way := quiet.Inter.Latency + 2*(quiet.Op+quiet.Packet); way < 15.9e-6 || way > 42e-6 {
			t.Errorf("start %d: a message's way takes %g s, its latency and both ends together", start, way)
		}
	}
	if least, most := slices.Min(latencies), slices.Max(latencies); most > 2.51*least {
		t.Errorf("latencies from %g to %g s", least, most)
	}
	if usual := slices.Max(slices.Collect(maps.Values(models))); 2*usual < len(labStarts) {
		t.Errorf("of %d starts no more than %d come to the same model: %v", len(labStarts), usual, models)
	}
	disturbed := labStart(11)
	for _, turns := range [][]float64{disturbed.hop, disturbed.packet} {
		slices.Sort(turns)
		turns[3], turns[4] = 100*turns[3], 50*turns[4]
	}
	for i := range disturbed.library[0] {
		slices.SortFunc(disturbed.library, func(a, b []float64) int { return cmp.Compare(a[i], b[i]) })
		disturbed.library[3][i], disturbed.library[4][i] = 100, 50
	}
	disturbed.probe[1], disturbed.carry[0] = 1, carrying{1e-6, 1e-6, 0.5}
	if quiet, got := labStart(11).on(base, l), disturbed.on(base, l); got.String() != quiet.String() {
		t.Errorf("with two turns disturbed: %v; without: %v", got.String(), quiet.String())
	}
}

// A byte costs the CPU the same however slow the network is: what a rank takes that waits is none of it.
// These were measured in the lab, eight nodes on two cores of an AMD EPYC (Zen 4), three turns at each rate.
func TestCarryingIsWithoutWaiting(t *testing.T) {
	var cost []float64
	for _, rate := range []struct {
		mbit  int
		turns []carrying
	}{
		{1000, []carrying{{1.594e-9, 8.59e-9, 0.071}, {2.437e-9, 9.37e-9, 0.074}, {1.472e-9, 8.94e-9, 0.040}}},
		{500, []carrying{{1.990e-9, 17.6e-9, 0.041}, {1.236e-9, 17.1e-9, 0.032}, {2.443e-9, 17.6e-9, 0.080}}},
		{250, []carrying{{3.509e-9, 33.8e-9, 0.052}, {3.006e-9, 32.6e-9, 0.062}, {3.633e-9, 32.7e-9, 0.046}}},
		{125, []carrying{{6.214e-9, 66.3e-9, 0.054}, {6.475e-9, 65.2e-9, 0.069}, {5.011e-9, 65.5e-9, 0.050}}},
	} {
		got := worked(rate.turns)
		cost = append(cost, got)
		t.Logf("%d Mbit/s: %.2f ns a byte", rate.mbit, got*1e9)
	}
	if least, most := slices.Min(cost), slices.Max(cost); most > 2.5*least || least < 0.5e-9 {
		t.Errorf("from %g to %g s a byte at rates from 125 to 1000 Mbit/s", least, most)
	}
}

// A port has a burst where 32 KiB come in less than half of the time that its rate has for them, and a hop is no large part of that.
func TestBurstOfANetwork(t *testing.T) {
	l := spec.LayoutOf([]int{0, 1})
	for _, c := range []struct{ hop, took, probe, want float64 }{
		{20e-6, 120e-6, 35e-3, 32 << 10},  // 1 Gbit/s, 262 µs
		{20e-6, 310e-6, 35e-3, 0},         // which are not passed at once
		{200e-6, 450e-6, 35e-3, 0},        // too far away to tell
		{20e-6, 50e-6, 3.5e-3, 0},         // 10 Gbit/s, 26 µs
		{50e-6, 300e-6, 350e-3, 32 << 10}, // 100 Mbit/s, 2.6 ms
		{50e-6, 2650e-6, 350e-3, 0},
	} {
		five := func(v float64) []float64 { return []float64{v, v, v, v, v} }
		n := &network{hop: five(c.hop), packet: five(c.hop / 4), burst: five(c.took), probe: five(c.probe)}
		if got := n.on(sim.Default(), l).Inter.Burst; got != c.want {
			t.Errorf("hop of %g s, 32 KiB in %g s, 4 MiB in %g s: a burst of %g bytes", c.hop, c.took, c.probe, got)
		}
	}
}

// Whatever the turns measured, the model is one that can be read back.
func TestNetworkOfOddTurns(t *testing.T) {
	l := spec.LayoutOf([]int{0, 1})
	for _, v := range []float64{0, 1e-12, 1e-6, 10} {
		all := []float64{v, v, v, v, v}
		n := &network{hop: all, packet: all, burst: all, probe: all, carry: []carrying{{v, v, v}}, library: [][]float64{all[:3], all[:3]}}
		m := n.on(sim.Default(), l)
		if _, err := sim.ParseModel(m.String()); err != nil {
			t.Errorf("turns of %g s: %v", v, err)
		}
	}
	if m := (&network{}).on(sim.Default(), l); m.String() != sim.Default().String() {
		t.Errorf("a rank that measured nothing has %s", m.String())
	}
}
