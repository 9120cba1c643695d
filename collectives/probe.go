package collectives

import (
	"context"
	"math"
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

// What measureNetwork sends: enough that a token bucket's burst (a shaped link lets a
// megabyte or so through at once) does not pass for the link's rate.
const (
	pings      = 15
	probeBytes = 4 << 20
)

// measureNetwork is a collective that measures the network between the first ranks of
// two nodes, for some milliseconds to some dozens of them, and returns m with
// what it found. Results are rounded, so that run after run comes to the
// same choices.
func (c *Comm) measureNetwork(ctx context.Context, m sim.Model) (sim.Model, error) {
	other := slices.IndexFunc(c.nodes, func(n int) bool { return n != c.nodes[0] })
	color := -1
	if c.rank == 0 || c.rank == other {
		color = 0
	}
	pair, err := c.Split(ctx, color, 0)
	if err != nil || pair == nil {
		return m, err
	}
	defer pair.Close()
	n := measurement{ctx: ctx, comm: pair}
	hop := n.hop(mem.Of(make([]byte, 8)), pings)
	packet := n.stream(pings)
	if n.err != nil {
		return m, n.err
	}
	took, err := pair.probe(ctx)
	if err != nil {
		return m, err
	}
	if m.Carry = 0; m.Cores >= 1 && float64(c.layout.PPN)*m.Hosted > m.Cores {
		cost, err := pair.carry(ctx)
		if err != nil {
			return m, err
		}
		m.Carry = selection.Rounded(1/min(max(cost-4*m.Packet/carryChunk, 1e-12), 1e-7), 1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8)
	}
	m.Packet = selection.Rounded(max(packet-2*m.Op, 1e-8), 1, 1.6, 2.5, 4, 6.3)
	m.Inter.Latency = selection.Rounded(max(hop-2*(m.Op+m.Packet), 1e-7), 1, 1.6, 2.5, 4, 6.3)
	m.Inter.Bandwidth = selection.Rounded(probeBytes/max(took-hop, 1e-6), 1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8)
	return m, nil
}

// probe returns the least time of probeBytes one way and an answer.
func (c *Comm) probe(ctx context.Context) (float64, error) {
	b, err := c.Alloc(probeBytes)
	if err != nil {
		return 0, err
	}
	defer c.Free(b)
	if err := c.Bcast(ctx, b.Slice(0, probeBytes/8), mem.Uint8, 0, control); err != nil { // the first touch of the memory
		return 0, err
	}
	answer := mem.Of(make([]byte, 1))
	best := math.Inf(1)
	for range 2 {
		from := time.Now()
		if err := c.Bcast(ctx, b, mem.Uint8, 0, control); err != nil {
			return 0, err
		}
		if err := c.Bcast(ctx, answer, mem.Uint8, 1, control); err != nil {
			return 0, err
		}
		best = min(best, time.Since(from).Seconds())
	}
	return best, nil
}

// carryChunk is the size of the messages that carry sends.
const carryChunk = 256 << 10

// carry is a collective of two ranks that returns the CPU time that a byte of a stream
// from one to the other costs at an end. Ranks that wait look whether there is something,
// which is no cost of a message. So another thread of each wants its core meanwhile, for then
// they sleep (nbc/internal/backoff), as they do where ranks share cores.
func (c *Comm) carry(ctx context.Context) (float64, error) {
	b, err := c.Alloc(probeBytes)
	if err != nil {
		return 0, err
	}
	defer c.Free(b)
	clear(mem.Bytes(b))
	cost := []float64{math.Inf(1)}
	for range 3 {
		if err := c.Barrier(ctx); err != nil {
			return 0, err
		}
		stop := spin()
		before := cpuTime(false)
		err := c.Bcast(ctx, b, mem.Uint8, 0, rule("chain", carryChunk))
		all := cpuTime(false) - before
		spun := stop()
		if err != nil {
			return 0, err
		}
		cost[0] = min(cost[0], max(0, all-spun)/probeBytes)
	}
	err = c.Allreduce(ctx, mem.Of(cost), mem.Of(cost), mem.Float64, mem.Max, control)
	return cost[0], err
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

// measureLibrary is a collective that measures the MPI library's own allreduce, of few
// bytes and of the most that the model may give it, as the engine calls it, and returns
// m with what an end of a message and its bytes cost there.
func (c *Comm) measureLibrary(ctx context.Context, m sim.Model) (sim.Model, error) {
	took := make([]float64, 2)
	sizes := []int{8, selection.LibraryBytes}
	byLibrary := With(spec.Spec{Levels: []spec.Level{{Algorithm: spec.Library}}})
	for i, size := range sizes {
		b := mem.Of(make([]byte, size))
		took[i] = math.Inf(1)
		for range pings {
			if err := c.Barrier(ctx); err != nil {
				return m, err
			}
			from := time.Now()
			if err := c.Allreduce(ctx, b, b, mem.Float32, mem.Sum, byLibrary); err != nil {
				return m, err
			}
			took[i] = min(took[i], time.Since(from).Seconds())
		}
	}
	if err := c.Allreduce(ctx, mem.Of(took), mem.Of(took), mem.Float64, mem.Max, control); err != nil {
		return m, err
	}
	return selection.WithLibrary(m, c.layout, schedule.Allreduce, sizes, took), nil
}
