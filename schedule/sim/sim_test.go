package sim_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/binomial"
	"github.com/scaffe/scaffe/chain"
	"github.com/scaffe/scaffe/direct"
	"github.com/scaffe/scaffe/linear"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
)

func all(size, count, chunk int, build func(*schedule.Builder, schedule.Params)) []*schedule.Schedule {
	var ss []*schedule.Schedule
	for r := range size {
		b := schedule.NewBuilder(r, size, count)
		build(b, schedule.Params{Rank: r, Size: size, Count: count, Chunk: chunk})
		ss = append(ss, b.Schedule())
	}
	return ss
}

// bare is a model in which only the network takes time.
func bare() sim.Model {
	m := sim.Default()
	m.Op, m.Packet, m.Inter.Latency, m.Inter.Bandwidth, m.Eager = 0, 0, 1, 1, math.Inf(1)
	m.Core = sim.Rates{Cached: math.Inf(1), Shared: math.Inf(1), Bandwidth: math.Inf(1)}
	m.Memory = m.Core
	return m
}

func nodes(n int) []int {
	ns := make([]int, n)
	for i := range ns {
		ns[i] = i
	}
	return ns
}

// A broadcast down a chain of P nodes in n chunks of b bytes takes
// (n+P-2)·b/β + (P-1)·α: S-Caffe section 5, equation 2.
func TestSCaffe_ChainTakesNPlusPMinus2Steps(t *testing.T) {
	for _, p := range []int{2, 3, 8} {
		for _, n := range []int{4, 20} {
			r, err := sim.Simulate(all(p, 10*n, 10, chain.Bcast), sim.Setup{Model: bare(), Nodes: nodes(p), ElemSize: 1})
			if err != nil {
				t.Fatal(err)
			}
			if want := float64(10*(n+p-2) + p - 1); r.Max != want {
				t.Errorf("%d ranks, %d chunks: %g, not %g", p, n, r.Max, want)
			}
		}
	}
}

// A root that receives from all others takes as long as its port does.
func TestPortOfARoot(t *testing.T) {
	r, err := sim.Simulate(all(5, 1600, 100, linear.Reduce), sim.Setup{Model: bare(), Nodes: nodes(5), ElemSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	if r.Max < 6400 || r.Max > 6410 {
		t.Errorf("%g, not the time of 6400 bytes and a latency or a few", r.Max)
	}
}

// What a port lets pass at once is passed once, in each direction, and is missing afterwards: in a loop a call takes what
// the port does, unless that has caught up when the ranks have met, after three rounds of a latency.
func TestBurstOfAPort(t *testing.T) {
	m := bare()
	for _, c := range []struct{ latency, burst, port float64 }{
		{1, 0, 6400}, {1, 100, 6310}, {1, 1600, 4960}, {1, 3200, 3520}, {1, 6400, 640}, {2000, 6400, 640}, {1400, 6400, 640}, {1500, 6400, 640},
	} {
		m.Inter.Latency, m.Inter.Burst = c.latency, c.burst
		r, err := sim.Simulate(all(5, 1600, 1600, linear.Bcast), sim.Setup{Model: m, Nodes: nodes(5), ElemSize: 1})
		if err != nil {
			t.Fatal(err)
		}
		want := c.port + c.latency
		if got := slices.Max(r.Times); math.Abs(got-want) > 1e-9*want {
			t.Errorf("latency %g, burst of %g bytes: %g, not %g", c.latency, c.burst, got, want)
		}
		if want+3*c.latency < 6400 {
			want = 6400
		}
		if math.Abs(r.Max-want) > 1e-9*want {
			t.Errorf("latency %g, burst of %g bytes: a call takes %g, not %g", c.latency, c.burst, r.Max, want)
		}
	}
}

// Fewer cores than threads: what takes one thread's time takes longer.
func TestCoresAreShared(t *testing.T) {
	m := sim.Default()
	m.Memory = sim.Rates{Cached: 1e15, Shared: 1e15, Bandwidth: 1e15}
	var before float64
	for _, cores := range []float64{0, 8, 4, 2, 1} {
		m.Cores = cores
		r, err := sim.Simulate(all(9, 1<<22, 1<<12, chain.Reduce), sim.Setup{Model: m, ElemSize: 4})
		if err != nil {
			t.Fatal(err)
		}
		if cores < 8 && cores > 0 && r.Max < 1.7*before {
			t.Errorf("on %g cores it takes %g s, on twice as many %g s", cores, r.Max, before)
		}
		before = r.Max
	}
}

// What carrying messages costs the threads does not show where each has a core that has
// nothing else to do, and does where nodes share one machine's cores.
func TestCarrying(t *testing.T) {
	m := sim.Default()
	m.Inter.Bandwidth, m.Carry = 125e6, 1e9
	times := map[float64]float64{}
	for _, hosted := range []float64{1, 6} {
		m.Cores, m.Hosted = 1, hosted
		r, err := sim.Simulate(all(6, 1<<22, 1<<15, chain.Bcast), sim.Setup{Model: m, Nodes: nodes(6), ElemSize: 4})
		if err != nil {
			t.Fatal(err)
		}
		times[hosted] = r.Max
	}
	wire, cpu := float64(4<<22)/125e6, 10*float64(4<<22)/1e9 // of 5 messages' two ends
	if times[1] < wire || times[1] > 1.1*wire {
		t.Errorf("with a core each it takes %g s, %g on the wire", times[1], wire)
	}
	if times[6] < cpu || times[6] > 1.2*cpu {
		t.Errorf("with one core for all it takes %g s, %g of them the core's", times[6], cpu)
	}
	m.Cores, m.Hosted = 2, 6
	if got, want := m.Carrying(1e8), 6*1e8/2e9; got != want {
		t.Errorf("two cores carry what six nodes send and receive in %g s, want %g", got, want)
	}
	m.Hosted = 0 // a machine is a node
	if got, want := m.Carrying(1e8), 1e8/2e9; got != want {
		t.Errorf("two cores carry what a node sends and receives in %g s, want %g", got, want)
	}
	if m.Carry = 0; m.Carrying(1e8) != 0 {
		t.Error("a network that carries by itself keeps cores busy")
	}
}

// A message that waits for its receive takes a question, an answer and packets more.
func TestRendezvous(t *testing.T) {
	m := bare()
	m.Packet, m.Inter.Bandwidth = 0.25, 4e4
	took := func(eager float64) float64 {
		m.Eager = eager
		r, err := sim.Simulate(all(2, 40000, 40000, chain.Bcast), sim.Setup{Model: m, Nodes: nodes(2), ElemSize: 1})
		if err != nil {
			t.Fatal(err)
		}
		return r.Max
	}
	// A latency and a second on the wire; and packets: two at either end, or two, three, two and one.
	if got := took(40000); got != 2+4*0.25 {
		t.Errorf("sent at once it takes %g s", got)
	}
	if got := took(39999); got != 4+8*0.25 {
		t.Errorf("with a rendezvous it takes %g s", got)
	}
}

// Unregistered buffers take longer than registered ones on a node, as long between
// nodes.
func TestUnregistered(t *testing.T) {
	for _, ns := range [][]int{{0, 0}, {0, 1}} {
		var times []float64
		for _, unregistered := range []bool{false, true} {
			r, err := sim.Simulate(all(2, 1<<20, 1<<16, chain.Reduce), sim.Setup{Model: sim.Default(), Nodes: ns, ElemSize: 4, Unregistered: unregistered})
			if err != nil {
				t.Fatal(err)
			}
			times = append(times, r.Max)
		}
		if near := ns[1] == 0; near != (times[1] > times[0]) {
			t.Errorf("nodes %v: registered %g s, unregistered %g s", ns, times[0], times[1])
		}
	}
}

// A large broadcast out of unregistered memory, by ranks that share cores, is copied once by
// the root for all of them; a smaller one, or one of ranks with a core each, once by each.
func TestOneCopyForAll(t *testing.T) {
	slow := func(count int, cores float64) float64 { // where the kernel copies slowly, over where it does not
		var times [2]float64
		for i, rate := range []float64{1e8, 1e10} {
			m := sim.Default()
			m.Cores, m.Staging = cores, sim.Rates{Cached: rate, Shared: rate, Bandwidth: rate}
			r, err := sim.Simulate(all(4, count, 1<<18, linear.Bcast), sim.Setup{Model: m, ElemSize: 4, Unregistered: true})
			if err != nil {
				t.Fatal(err)
			}
			times[i] = r.Max
		}
		return times[0] / times[1]
	}
	if r := slow(sim.StreamFrom/4, 2); r != 1 {
		t.Errorf("copied once for all, it takes %g times as long where the kernel copies slowly", r)
	}
	if r := slow(sim.StreamFrom/8, 2); r < 2 {
		t.Errorf("copied for each, it takes only %g times as long where the kernel copies slowly", r)
	}
	if r := slow(sim.StreamFrom/4, 4); r < 2 {
		t.Errorf("with a core each, it takes only %g times as long where the kernel copies slowly", r)
	}
}

// What is added out of unregistered memory its receiver reads through the kernel, to where the sum goes, so that of what is added
// only its own contribution comes from memory; of a large collective the sender copies it, without the kernel.
func TestWhoCopiesWhatIsAdded(t *testing.T) {
	took := func(bytes int, cores, kernel, core float64) float64 {
		m := sim.Default()
		m.Cores, m.Staging = cores, sim.Rates{Cached: kernel, Shared: kernel, Bandwidth: kernel}
		m.Core = sim.Rates{Cached: 1e15, Shared: core, Bandwidth: core}
		m.Memory, m.Cache = sim.Rates{Cached: 1e15, Shared: 1e15, Bandwidth: 1e15}, 256<<10
		r, err := sim.Simulate(all(2, bytes/4, 1<<16, linear.Reduce), sim.Setup{Model: m, ElemSize: 4, Unregistered: true})
		if err != nil {
			t.Fatal(err)
		}
		return r.Max
	}
	const slow, quick = 1e8, 1e15
	for _, c := range []struct {
		bytes        int
		cores, reads float64 // the part that the receiver reads
	}{{sim.StreamFrom / 2, 2, 1}, {sim.StreamFrom, 1, 0}, {sim.StreamFrom, 2, 0}} {
		got := (took(c.bytes, c.cores, slow, quick) - took(c.bytes, c.cores, quick, quick)) * slow / float64(c.bytes)
		if math.Abs(got-c.reads) > 0.05 {
			t.Errorf("%d bytes, %g cores: %.3f of them are read through the kernel, not %g", c.bytes, c.cores, got, c.reads)
		}
	}
	const bytes = sim.StreamFrom / 2
	if passes := (took(bytes, 2, quick, slow) - took(bytes, 2, quick, quick)) * slow / bytes; math.Abs(passes-1) > 0.25 {
		t.Errorf("%.2f times the bytes come from memory, not once", passes)
	}
}

// What its sender copies is added after that, so in chunks the one core copies while the other adds.
func TestWhatIsCopiedForTheReceiverIsAddedAfterwards(t *testing.T) {
	took := func(chunk int) float64 {
		r, err := sim.Simulate(all(2, sim.StreamFrom/4, chunk/4, linear.Reduce), sim.Setup{Model: sim.Default(), ElemSize: 4, Unregistered: true})
		if err != nil {
			t.Fatal(err)
		}
		return r.Max
	}
	if whole, chunks := took(sim.StreamFrom), took(sim.StreamFrom/16); whole < 1.3*chunks {
		t.Errorf("%g s at once, %g in chunks", whole, chunks)
	}
}

// A receive into scratch memory, which is registered, tells its sender where, also where ranks share cores; what is written there
// nobody asks for.
func TestWhatIsWrittenToScratchIsNotAskedFor(t *testing.T) {
	m := sim.Default()
	m.Cores = 2
	for name, build := range map[string]func(*schedule.Builder, schedule.Params){"gather": binomial.Gather, "scatter": binomial.Scatter} {
		if _, err := sim.Simulate(all(4, sim.StreamFrom/4, 1<<16, build), sim.Setup{Model: m, ElemSize: 4, Unregistered: true}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A small message of a pipeline out of unregistered memory is copied by its sender before anybody asks, once for
// all who receive it, and not by the kernel: about as fast as by that, since it is stored where the receiver's core has what
// was there before. One that callers hand over by themselves is read by who receives it, as a large one is.
func TestSmallUnregisteredMessagesAreCopiedByTheirSender(t *testing.T) {
	const slow, quick, chunks = 1e8, 1e10, sim.AloneLent + 1
	for _, c := range []struct {
		collective string
		build      func(*schedule.Builder, schedule.Params)
		cores      float64
		bytes      int
		copies     float64 // at the rate of staging, one after another; of a chunk each
	}{
		{"bcast", linear.Bcast, 2, sim.EagerCopy, 0},
		{"reduce", linear.Reduce, 2, sim.EagerCopy, 0},
		{"bcast", linear.Bcast, 4, sim.EagerCopy, 1},
		{"reduce", linear.Reduce, 4, sim.EagerCopy, 3},
		{"bcast", linear.Bcast, 4, chunks * sim.EagerCopy, chunks},
		{"reduce", linear.Reduce, 4, chunks * sim.EagerCopy, chunks},
	} {
		took := func(bytes, chunk int, rate float64) float64 {
			m := sim.Default()
			m.Cores, m.Staging = c.cores, sim.Rates{Cached: rate, Shared: rate, Bandwidth: rate}
			r, err := sim.Simulate(all(4, bytes/4, chunk/4, c.build), sim.Setup{Model: m, ElemSize: 4, Unregistered: true})
			if err != nil {
				t.Fatal(err)
			}
			return r.Max
		}
		longer, one := took(c.bytes, sim.EagerCopy, slow)-took(c.bytes, sim.EagerCopy, quick), sim.EagerCopy*(1/slow-1/quick)
		if math.Abs(longer-c.copies*one) > one/10 {
			t.Errorf("%s, %g cores, %d bytes: %g s longer where the kernel copies slowly, not %g copies of %g", c.collective, c.cores, c.bytes, longer, c.copies, one)
		}
		const large = 2 * sim.EagerCopy
		if slow, quick := took(large, large, slow), took(large, large, quick); slow < 2*quick {
			t.Errorf("%s, %g cores, %d bytes: only %g s where the kernel copies slowly, %g where it does not", c.collective, c.cores, large, slow, quick)
		}
	}
}

// Ranks that share cores do not tell a sender where they want a message in unregistered memory, so
// that nobody writes it there, through the other core's cache; nor does who writes around the caches.
func TestNobodyWritesToUnregisteredMemoryOfACrowdedNode(t *testing.T) {
	took := func(fresh float64, bytes int, unregistered bool) float64 {
		m := sim.Default()
		m.Cores, m.Fresh, m.Cache = 2, fresh, 1 // a cache that holds nothing of what the root gives
		r, err := sim.Simulate(all(4, bytes/4, 1<<18, linear.Bcast), sim.Setup{Model: m, ElemSize: 4, Unregistered: unregistered})
		if err != nil {
			t.Fatal(err)
		}
		return r.Max
	}
	for _, c := range []struct {
		bytes                int
		unregistered, slower bool
	}{{sim.StreamFrom / 2, true, false}, {sim.StreamFrom, true, false}, {sim.StreamFrom / 2, false, true}, {sim.StreamFrom, false, false}} {
		slow, quick := took(1e8, c.bytes, c.unregistered), took(1e10, c.bytes, c.unregistered)
		if slow > 1.01*quick != c.slower || slow < quick {
			t.Errorf("%d bytes, unregistered: %v: %g s where another core's cache is slow, %g where it is not", c.bytes, c.unregistered, slow, quick)
		}
	}
}

// TestWhatRanksGiveIsFresh: what a rank gives it has computed before, so others read it through its core's cache, as much of it as
// that holds.
func TestWhatRanksGiveIsFresh(t *testing.T) {
	const slow, quick, cache = 1e9, 1e10, 1 << 20
	took := func(fresh float64, bytes int, build func(*schedule.Builder, schedule.Params)) float64 {
		m := sim.Default()
		m.Fresh, m.Cache = fresh, cache
		r, err := sim.Simulate(all(2, bytes/4, 1<<20, build), sim.Setup{Model: m, ElemSize: 4})
		if err != nil {
			t.Fatal(err)
		}
		return r.Max
	}
	for _, bytes := range []int{64 << 10, cache / sim.CachedPart, 4 << 20} {
		fresh := float64(min(bytes, cache/sim.CachedPart)) * (1/slow - 1/quick)
		if longer := took(slow, bytes, linear.Reduce) - took(quick, bytes, linear.Reduce); math.Abs(longer-fresh) > fresh/20 {
			t.Errorf("reduce of %d bytes: %g s longer where another core's cache is slow, want %g", bytes, longer, fresh)
		}
	}
}

// TestTradedSumsAreStoredAtBoth: two ranks that sum for each other store large sums at both, in one pass; small ones are
// exchanged by their callers alone, who read them out of the other core's cache.
func TestTradedSumsAreStoredAtBoth(t *testing.T) {
	const slow, quick = 1e9, 1e10
	read := func(part int) float64 { // how many bytes a rank reads out of the other core's cache
		took := func(fresh float64) float64 {
			m := sim.Default()
			m.Fresh, m.Cache = fresh, 8<<20
			apart := func(b *schedule.Builder, p schedule.Params) {
				b.Apart()
				direct.Allreduce(b, p)
			}
			r, err := sim.Simulate(all(2, part/2, 1<<20, apart), sim.Setup{Model: m, ElemSize: 4})
			if err != nil {
				t.Fatal(err)
			}
			return r.Max
		}
		return (took(slow) - took(quick)) / (1/slow - 1/quick)
	}
	for part, times := range map[int]float64{sim.AloneTrade: 2, 2 * sim.AloneTrade: 1, 8 * sim.AloneTrade: 1} {
		if got, want := read(part), times*float64(part); math.Abs(got-want) > want/20 {
			t.Errorf("parts of %d bytes: a rank reads %.0f bytes out of the other core's cache, want %.0f", part, got, want)
		}
	}
}

func TestBadSchedules(t *testing.T) {
	two := all(2, 10, 5, chain.Bcast)
	stuck := all(2, 10, 5, chain.Bcast)
	stuck[1].Ops[0].Deps = nil
	stuck[0].Ops = stuck[0].Ops[:1]
	for want, f := range map[string]func() (sim.Result, error){
		"elements of 0 bytes":      func() (sim.Result, error) { return sim.Simulate(two, sim.Setup{Model: bare()}) },
		"nodes of 3 ranks":         func() (sim.Result, error) { return sim.Simulate(two, sim.Setup{ElemSize: 1, Nodes: nodes(3)}) },
		"does not send message #1": func() (sim.Result, error) { return sim.Simulate(stuck, sim.Setup{Model: bare(), ElemSize: 1}) },
	} {
		if _, err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it ends with %v, without %q", err, want)
		}
	}
}

// A window of one message makes a pipeline wait for each message's way.
func TestWindows(t *testing.T) {
	schedules := all(3, 1<<20, 1<<14, chain.Bcast)
	times := map[schedule.Windows]float64{}
	for _, w := range []schedule.Windows{{}, schedule.DefaultWindows, {Send: 1, Recv: 1}} {
		plans, err := sim.Prepare(schedules, w)
		if err != nil {
			t.Fatal(err)
		}
		r, err := plans.Simulate(sim.Setup{Model: sim.Default(), Nodes: nodes(3), ElemSize: 4})
		if err != nil {
			t.Fatal(err)
		}
		times[w] = r.Max
	}
	if times[schedule.Windows{}] != times[schedule.DefaultWindows] {
		t.Errorf("%g s without windows given, %g s with the engine's", times[schedule.Windows{}], times[schedule.DefaultWindows])
	}
	if one, more := times[schedule.Windows{Send: 1, Recv: 1}], times[schedule.DefaultWindows]; one <= more {
		t.Errorf("%g s with one message in flight, %g s with more", one, more)
	}
}

// Thousands of ranks are no trouble.
func TestManyRanks(t *testing.T) {
	const n = 2000
	r, err := sim.Simulate(all(n, 1<<20, 1<<14, chain.Reduce), sim.Setup{Model: sim.Default(), Nodes: nodes(n), ElemSize: 4})
	if err != nil || len(r.Times) != n || r.Times[0] != r.Max {
		t.Errorf("%d times, the root's %g, the last %g, %v", len(r.Times), r.Times[0], r.Max, err)
	}
}

// A model is read back to the bit.
func TestModelText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := sim.Default()
		m.Inter.Latency = rapid.Float64Range(1e-9, 1).Draw(t, "latency")
		m.Memory.Bandwidth = rapid.Float64Range(1, 1e15).Draw(t, "bandwidth")
		again, err := sim.ParseModel(m.String())
		if err != nil || again != m {
			t.Fatalf("%v is read back as %v (%v)", m, again, err)
		}
	})
	for text, want := range map[string]string{
		"inter.latency=x":      "inter.latency",
		"inter.bandwidth=0":    "inter.bandwidth",
		"op=-1":                "op=",
		"cores=NaN":            "cores",
		"inter.speed=1":        "unknown model parameter",
		"memory.bandwidth=Inf": "memory.bandwidth",
	} {
		if _, err := sim.ParseModel(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q ends with %v, without %q", text, err, want)
		}
	}
}

// How long would a chain of 3 nodes at 1 Gbit/s take for 64 MiB?
func ExampleSimulate() {
	m := sim.Default()
	m.Inter.Bandwidth = 125e6
	const count = 16 << 20
	var schedules []*schedule.Schedule
	for r := range 3 {
		b := schedule.NewBuilder(r, 3, count)
		chain.Reduce(b, schedule.Params{Rank: r, Size: 3, Count: count, Chunk: 64 << 10})
		schedules = append(schedules, b.Schedule())
	}
	r, err := sim.Simulate(schedules, sim.Setup{Model: m, Nodes: []int{0, 1, 2}, ElemSize: 4})
	fmt.Printf("%.0f ms %v\n", 1e3*r.Max, err)
	// Output: 539 ms <nil>
}
