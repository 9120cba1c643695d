package collectives

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule/sim"
)

// What measure sends: enough that a token bucket's burst (a shaped link lets a
// megabyte or so through at once) does not pass for the link's rate.
const (
	pings      = 15
	probeBytes = 4 << 20
)

// measure is a collective that measures the network between the first ranks of
// two nodes, for some milliseconds to some dozens of them, and returns m with
// what it found. Results are rounded, so that run after run comes to the
// same choices.
func (c *Comm) measure(ctx context.Context, m sim.Model) (sim.Model, error) {
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
	latency, err := pair.pingPong(ctx)
	if err != nil {
		return m, err
	}
	took, err := pair.probe(ctx)
	if err != nil {
		return m, err
	}
	m.Inter.Latency = rounded(max(latency, 1e-7), 1, 1.6, 2.5, 4, 6.3)
	m.Inter.Bandwidth = rounded(probeBytes/max(took-latency, 1e-6), 1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8)
	return m, nil
}

// pingPong returns the least time of a few bytes one way: ranks that share cores
// are late more often than not.
func (c *Comm) pingPong(ctx context.Context) (float64, error) {
	b := mem.Of(make([]byte, 8))
	var times []float64
	for range pings {
		from := time.Now()
		for root := range 2 {
			if err := c.Bcast(ctx, b, mem.Uint8, root, control); err != nil {
				return 0, err
			}
		}
		times = append(times, time.Since(from).Seconds()/2)
	}
	return slices.Min(times), nil
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

// rounded returns the one of steps, times a power of ten, that v is nearest to.
func rounded(v float64, steps ...float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	best := 10 * power
	for _, step := range steps {
		if math.Abs(math.Log(v/(step*power))) < math.Abs(math.Log(v/best)) {
			best = step * power
		}
	}
	return best
}
