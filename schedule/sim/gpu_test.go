package sim_test

import (
	"math"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/chain"
	"github.com/scaffe/scaffe/linear"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
)

// onGPUs is a model in which only GPUs take time.
func onGPUs(lends float64) sim.Model {
	m := bare()
	m.Inter.Latency, m.Inter.Bandwidth, m.Intra.Latency, m.Switch = 0, math.Inf(1), 0, 0
	m.Staging = m.Core
	m.GPU = sim.GPU{Launch: 1, Memory: 1, Down: sim.Copies{Latency: 1, Bandwidth: 2}, Up: sim.Copies{Latency: 1, Bandwidth: 5}, Lends: lends}
	return m
}

// What is read where it lies costs a kernel, which goes over the bytes of a copy twice and of a sum three times. What is staged costs a
// copy each way, and a kernel where it is added; those of several chunks overlap.
func TestGPU(t *testing.T) {
	own, shared, turns := onGPUs(sim.LendsAll), onGPUs(sim.LendsAll), onGPUs(sim.LendsAll)
	shared.GPU.Devices, turns.GPU.Devices, turns.GPU.Turns = 1, 1, 1
	apart, together := onGPUs(sim.LendsOwn), onGPUs(sim.LendsOwn)
	apart.GPU.Devices, together.GPU.Devices = 2, 1
	late := onGPUs(sim.LendsAll) // news takes a while
	late.Intra.Latency = 100
	packets := onGPUs(sim.LendsNone)
	packets.Packet, packets.Carry = 1, 10
	for _, c := range []struct {
		what         string
		m            sim.Model
		ranks, chunk int
		build        func(*schedule.Builder, schedule.Params)
		nodes        bool // one for each rank
		want         float64
	}{
		{"a copy in place", own, 2, 10, chain.Bcast, false, 1 + 2*10},
		{"a sum in place", own, 2, 10, chain.Reduce, false, 1 + 3*10},
		{"two chunks in place, of which the second is launched meanwhile", own, 2, 5, chain.Bcast, false, 1 + 2*(2*5)},
		{"a copy in place, late", late, 2, 10, chain.Bcast, false, 100 + 1 + 2*10 + 100},
		{"staged", onGPUs(sim.LendsNone), 2, 10, chain.Bcast, false, (1 + 10./2) + (1 + 10./5)},
		{"a sum of what is staged", onGPUs(sim.LendsNone), 2, 10, chain.Reduce, false, (1 + 10./2) + (1 + 10./5) + (1 + 3*10)},
		{"five chunks staged", onGPUs(sim.LendsNone), 2, 2, chain.Bcast, false, (1 + 5*(2./2)) + (1 + 2./5)},
		{"four operands of five chunks at once", own, 4, 2, linear.Reduce, false, 1 + 5*5*2},
		{"between nodes", own, 2, 10, chain.Bcast, true, (1 + 10./2) + (1 + 10./5)},
		{"between nodes, by threads, which have to do with it once", packets, 2, 10, chain.Bcast, true, (1 + 10./2) + (1 + 10./10) + (1 + 10./10) + (1 + 10./5)},
		{"on two GPUs that do not reach each other", apart, 2, 10, chain.Bcast, false, (1 + 10./2) + (1 + 10./5)},
		{"on one GPU alone", together, 2, 10, chain.Bcast, false, 1 + 2*10},
		{"two kernels on two GPUs", own, 3, 10, linear.Bcast, false, 1 + 2*10},
		{"two kernels on one, which share its memory", shared, 3, 10, linear.Bcast, false, 1 + 2*10 + 2*10},
		{"four operands at once", own, 4, 10, linear.Reduce, false, 1 + 5*10},
		{"nine operands, eight at once", own, 9, 10, linear.Reduce, false, 2 + (8+1+3)*10},
		{"staged operands, one after the other", onGPUs(sim.LendsNone), 3, 10, linear.Reduce, false, (1 + 10./2) + (1 + 10./5) + (1 + 3*10) + (1 + 10./5) + (1 + 3*10)},
		{"two kernels in turns", turns, 3, 10, linear.Bcast, false, 2 * (1 + 2*10)},
	} {
		on := make([]int, c.ranks)
		if c.nodes {
			on = nodes(c.ranks)
		}
		r, err := sim.Simulate(all(c.ranks, 10, c.chunk, c.build), sim.Setup{Model: c.m, Nodes: on, ElemSize: 1, GPU: true})
		if err != nil || math.Abs(r.Max-c.want) > 1e-9 {
			t.Errorf("%s: %g, not %g (%v)", c.what, r.Max, c.want, err)
		}
	}
	_, err := sim.Simulate(all(2, 10, 10, chain.Bcast), sim.Setup{Model: bare(), ElemSize: 1, GPU: true})
	if err == nil || !strings.Contains(err.Error(), "no parameters") {
		t.Errorf("a model without GPUs: %v", err)
	}
}

// A message of a network that waits for its receive is copied down before it asks, and up when it has come.
func TestGPURendezvous(t *testing.T) {
	m := onGPUs(sim.LendsNone)
	m.Inter.Latency, m.Inter.Bandwidth, m.Eager = 100, 1, 0
	r, err := sim.Simulate(all(2, 10, 10, chain.Bcast), sim.Setup{Model: m, Nodes: nodes(2), ElemSize: 1, GPU: true})
	if want := (1 + 10./2) + 100 + 100 + (100 + 10) + (1 + 10./5); err != nil || math.Abs(r.Max-want) > 1e-9 {
		t.Errorf("%g, not %g (%v)", r.Max, want, err)
	}
}

// The text form has GPUs where the model does, and all of them then; and what a model has of them changes nothing for the host's memory.
func TestGPUText(t *testing.T) {
	if text := sim.Default().String(); strings.Contains(text, "gpu.") {
		t.Errorf("without GPUs: %s", text)
	}
	m := sim.Default()
	m.GPU = sim.GPU{Launch: 7e-6, Memory: 2e12, Turns: 1}
	if m.GPU.Known() {
		t.Error("known without its copies")
	}
	m.GPU.Down, m.GPU.Up = sim.Copies{Latency: 8e-6, Bandwidth: 5e10}, sim.Copies{Latency: 9e-6, Bandwidth: 4e10}
	again, err := sim.ParseModel(m.String())
	if err != nil || again != m || !m.GPU.Known() {
		t.Errorf("%v is read back as %v (%v)", m, again, err)
	}
	if _, err := sim.ParseModel("gpu.launch=-1"); err == nil {
		t.Error("a negative time is read")
	}
	schedules := all(4, 1<<20, 1<<16, chain.Reduce)
	one, err1 := sim.Simulate(schedules, sim.Setup{Model: sim.Default(), ElemSize: 4})
	two, err2 := sim.Simulate(schedules, sim.Setup{Model: m, ElemSize: 4})
	if err1 != nil || err2 != nil || one.Max != two.Max {
		t.Errorf("in host memory %g, and %g where GPUs are known (%v, %v)", one.Max, two.Max, err1, err2)
	}
}
