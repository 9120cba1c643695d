package collectives

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
)

// How much measureNetwork does, and of how many bytes what is long: enough that a token
// bucket's burst (a shaped link lets a megabyte or so through at once) does not pass for
// the link's rate.
const (
	turns      = 5 // in each of which
	pings      = 3 // times is done what takes some dozens of microseconds
	probeBytes = 4 << 20
	burstBytes = 32 << 10 // a part of what such a bucket holds, which other messages may have emptied
)

// probed and carried say in which turns that is done which takes some dozens of milliseconds.
func probed(turn int) bool  { return turn%2 == 1 }
func carried(turn int) bool { return turn%2 == 0 }

// What is measured is rounded to preferred numbers (ISO 3), R5 where one start may measure
// twice what another does, and R10.
var (
	fiveSteps = []float64{1, 1.6, 2.5, 4, 6.3}
	tenSteps  = []float64{1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8}
)

// network is what was measured of a network, in seconds, once in each turn.
type network struct {
	hop, packet  []float64   // a short message's way, and the time from one to the next of many
	burst, probe []float64   // burstBytes and probeBytes one way and an answer
	carry        []carrying  // what a byte costs the CPU at an end
	library      [][]float64 // the MPI library's allreduce of selection.LibraryProbes, each over that by yardstick
}

// yardstick is the spec by which the library's allreduce is measured.
var yardstick = spec.Spec{Levels: []spec.Level{{Algorithm: "doubling"}}}

// measureNetwork is a collective that measures the network between the first ranks of two
// nodes, and what the MPI library takes there, for some dozens to some hundreds of
// milliseconds (two seconds where the network is slow and ranks share cores), and returns m with what it found. Everything is measured in turns, and of the
// turns the median counts, so that what disturbs the ranks for some milliseconds is no part of a result.
// Results are rounded, so that run after run comes to the same choices.
func (c *Comm) measureNetwork(ctx context.Context, m sim.Model) (sim.Model, error) {
	other := slices.IndexFunc(c.nodes, func(n int) bool { return n != c.nodes[0] })
	color := -1
	if c.rank == 0 || c.rank == other {
		color = 0
	}
	pair, err := c.Split(ctx, color, 0)
	if err != nil {
		return m, err
	}
	var b mem.Buffer
	if pair != nil {
		defer pair.Close()
		n := measurement{ctx: ctx, comm: pair}
		if b = n.alloc(probeBytes); n.err != nil {
			return m, n.err
		}
		defer pair.Free(b)
	}
	var n network
	carries := m.Cores >= 1 && float64(c.layout.PPN)*m.Hosted > m.Cores
	for turn := range turns {
		if pair != nil {
			if err := n.turn(ctx, pair, b, turn, carries); err != nil {
				return m, err
			}
		}
		if c.HasLibrary() {
			if err := n.byLibrary(ctx, c); err != nil {
				return m, err
			}
		}
	}
	return n.on(m, c.layout), nil
}

// turn is one turn of two ranks of two nodes, with a registered buffer of probeBytes.
func (n *network) turn(ctx context.Context, pair *Comm, b mem.Buffer, turn int, carries bool) error {
	m := measurement{ctx: ctx, comm: pair}
	n.hop = append(n.hop, m.hop(mem.Of(make([]byte, 8)), pings))
	n.packet = append(n.packet, m.stream(1))
	n.burst = append(n.burst, m.time(pings, m.bcast(b.Slice(0, burstBytes), "chain", burstBytes)))
	if probed(turn) {
		n.probe = append(n.probe, m.time(1, func() error {
			if err := pair.Bcast(ctx, b, mem.Uint8, 0, control); err != nil {
				return err
			}
			return pair.Bcast(ctx, mem.Of(make([]byte, 1)), mem.Uint8, 1, control)
		}))
	}
	if m.err == nil && carries && carried(turn) {
		cost, err := pair.carry(ctx, b)
		if err != nil {
			return err
		}
		n.carry = append(n.carry, cost)
	}
	return m.err
}

// byLibrary is a turn of all ranks: the MPI library's own allreduce, as the engine calls it, over the same by
// yardstick. What helps short messages or slows all of them, and is not in the model (the burst of a shaped
// link, ranks that share cores), is in both.
func (n *network) byLibrary(ctx context.Context, c *Comm) error {
	m := measurement{ctx: ctx, comm: c}
	its := spec.Spec{Levels: []spec.Level{{Algorithm: spec.Library}}}
	n.library = append(n.library, nil)
	turn := &n.library[len(n.library)-1]
	for _, size := range selection.LibraryProbes {
		b := mem.Of(make([]byte, size))
		by := func(s spec.Spec) float64 {
			return m.times(pings, func() error { return c.Allreduce(ctx, b, b, mem.Float32, mem.Sum, With(s)) })[pings/2]
		}
		*turn = append(*turn, by(its)/max(by(yardstick), 1e-7))
	}
	return m.err
}

// on returns m with what was measured between ranks of a layout. What is measured is rounded
// before anything is taken from it: differences of two such vary more than either.
func (n *network) on(m sim.Model, l spec.Layout) sim.Model {
	round := func(turns []float64, least float64, steps ...float64) float64 {
		return selection.Rounded(max(middle(turns), least), steps...)
	}
	if len(n.hop) > 0 {
		hop := round(n.hop, 1e-7, fiveSteps...)
		// Neither end is busy with a message for more than a fourth of its way, however slowly many of them
		// follow each other: its sender's core and its receiver's may be one.
		m.Packet = min(round(n.packet, 1e-8, fiveSteps...), hop/4)
		m.Packet = selection.Rounded(max(m.Packet-2*m.Op, 1e-8), fiveSteps...)
		m.Inter.Latency = selection.Rounded(max(hop-2*(m.Op+m.Packet), 1e-7), tenSteps...)
		m.Inter.Bandwidth = selection.Rounded(probeBytes/max(slices.Min(n.probe)-hop, 1e-6), tenSteps...)
		m.Inter.Burst = 0
		if wire := burstBytes / m.Inter.Bandwidth; wire > 4*hop && middle(n.burst)-2*hop < wire/2 {
			m.Inter.Burst = burstBytes
		}
		if m.Carry = 0; len(n.carry) > 0 {
			perByte := worked(n.carry) - 4*m.Packet/carryChunk
			m.Carry = selection.Rounded(1/min(max(perByte, 1e-12), 1e-7), fiveSteps...)
		}
	}
	if len(n.library) > 0 {
		ratios := make([]float64, len(selection.LibraryProbes))
		for i := range ratios {
			var turns []float64
			for _, t := range n.library {
				turns = append(turns, t[i])
			}
			ratios[i] = round(turns, 1e-2, tenSteps...)
		}
		m = selection.WithLibrary(m, l, schedule.Allreduce, yardstick, ratios)
	}
	return m
}

// middle returns the median.
func middle(turns []float64) float64 { return slices.Sorted(slices.Values(turns))[len(turns)/2] }

// carryChunk is the size of the messages that carry sends.
const carryChunk = 256 << 10

// carrying is what a stream from one rank to another took: CPU time at the end that had more, and its time, both for
// a byte; and the share of a core that a rank has which only waits.
type carrying struct{ spent, took, waits float64 }

// worked returns the CPU time that a byte costs at an end, without that of waiting for the network, which is the longer the
// slower it is, of what turns measured. What disturbs a turn makes a rank that waits look busier, so the least share counts;
// and waiting explains no more than half of what was spent, for the difference of two that are nearly the same is none of a cost.
func worked(turns []carrying) float64 {
	var spent, took, waits []float64
	for _, t := range turns {
		spent, took, waits = append(spent, t.spent), append(took, t.took), append(waits, t.waits)
	}
	share := min(slices.Min(waits), 0.9)
	return max((middle(spent)-share*middle(took))/(1-share), middle(spent)/2)
}

// carry is a collective of two ranks that measures a stream of b's bytes from one to the other, and then what it takes to wait
// for as long, for as many messages of one byte.
func (c *Comm) carry(ctx context.Context, b mem.Buffer) (carrying, error) {
	spent, took, err := c.spent(ctx, func() error {
		return c.Bcast(ctx, b, mem.Uint8, 0, rule("chain", carryChunk))
	})
	if err != nil {
		return carrying{}, err
	}
	token, chunks := mem.Of(make([]byte, 1)), b.Len()/carryChunk
	idle, waited, err := c.spent(ctx, func() error {
		for range chunks {
			if c.rank == 0 {
				time.Sleep(time.Duration(took / float64(chunks) * 1e9))
			}
			if err := c.Bcast(ctx, token, mem.Uint8, 0, control); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return carrying{}, err
	}
	bytes := float64(b.Len())
	most := []float64{spent / bytes, took / bytes, idle / waited} // rank 0 does not wait
	err = c.Allreduce(ctx, mem.Of(most), mem.Of(most), mem.Float64, mem.Max, control)
	return carrying{most[0], most[1], most[2]}, err
}

// spent is a collective that returns how much CPU time this rank has within do, and how long that takes, in seconds. Ranks that
// wait look whether there is something as long as nobody else wants their core. So another thread of each wants it meanwhile, for
// then they sleep (nbc/internal/backoff), as they do where ranks share cores.
func (c *Comm) spent(ctx context.Context, do func() error) (cpu, took float64, err error) {
	if err := c.Barrier(ctx); err != nil {
		return 0, 0, err
	}
	stop := spin()
	began, before := time.Now(), cpuTime(false)
	err = do()
	all := cpuTime(false) - before
	took = time.Since(began).Seconds()
	return max(0, all-stop()), took, err
}

// spin starts a thread that keeps a core busy. What it returns ends it, and returns
// what CPU time it took.
func spin() func() float64 {
	var over atomic.Bool
	began, took := make(chan struct{}), make(chan float64)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		before := cpuTime(true)
		close(began)
		for !over.Load() {
		}
		took <- cpuTime(true) - before
	}()
	<-began
	return func() float64 {
		over.Store(true)
		return <-took
	}
}
