package selection

import (
	"math"
	"strconv"

	"github.com/scaffe/scaffe/schedule/sim"
)

// Costs are what was measured of a machine, in seconds, and of memory in seconds a
// byte that is read or written: what is slower has the larger number. 0 was not
// measured.
type Costs struct {
	Op, Latency           float64 // see sim.Model
	ShortOp, ShortLatency float64
	ShortLent             float64
	Switch                float64
	Fresh                 float64
	Core, Memory          RateCosts
	Staging               RateCosts // a byte that is copied
	GPU                   GPUCosts  `json:",omitzero"` // of a GPU, measured by itself
}

// RateCosts are the costs of the rates of a sim.Rates.
type RateCosts struct{ Cached, Shared, Bandwidth float64 }

// GPUCosts are what was measured of a GPU; see sim.GPU.
type GPUCosts struct {
	Launch, Memory float64 // Memory: a byte that a kernel reads or writes
	Down, Up       CopyCosts
}

// CopyCosts are of a copy, and of each of its bytes besides.
type CopyCosts struct{ Latency, Byte float64 }

// fields returns all costs, in one order.
func (c *Costs) fields() []*float64 {
	all := []*float64{&c.Op, &c.Latency, &c.ShortOp, &c.ShortLatency, &c.ShortLent, &c.Switch, &c.Fresh}
	for _, r := range []*RateCosts{&c.Core, &c.Memory, &c.Staging} {
		all = append(all, &r.Cached, &r.Shared, &r.Bandwidth)
	}
	return append(all, &c.GPU.Launch, &c.GPU.Memory, &c.GPU.Down.Latency, &c.GPU.Down.Byte, &c.GPU.Up.Latency, &c.GPU.Up.Byte)
}

// Values returns the costs as numbers, so that ranks can compare theirs.
func (c Costs) Values() []float64 {
	var v []float64
	for _, f := range c.fields() {
		v = append(v, *f)
	}
	return v
}

// CostsOf is Values backwards.
func CostsOf(values []float64) (c Costs) {
	for i, f := range c.fields() {
		*f = values[i]
	}
	return c
}

// steps are about 8 % apart: the E24 series of preferred numbers (IEC 60063).
var steps = []float64{1, 1.1, 1.2, 1.3, 1.5, 1.6, 1.8, 2, 2.2, 2.4, 2.7, 3, 3.3, 3.6, 3.9, 4.3, 4.7, 5.1, 5.6, 6.2, 6.8, 7.5, 8.2, 9.1}

// fastest is what no memory reaches, in bytes a second: a cost that is less was not
// told from others.
const fastest = 2e13

// On returns m with the costs that were measured, rounded, so that measuring anew
// mostly comes to the same choices. Memory is never faster than a cache: a rank's copies
// were the shortest of some, which nothing makes shorter than they are, so where they say
// otherwise the cache's were disturbed; what all ranks do at once was not told from what
// their cores do.
func (c Costs) On(m sim.Model) sim.Model {
	times := map[*float64]float64{
		&m.Op: c.Op, &m.Intra.Latency: c.Latency, &m.Short.Op: c.ShortOp, &m.Short.Latency: c.ShortLatency, &m.Short.Lent: c.ShortLent, &m.Switch: c.Switch,
		&m.GPU.Launch: c.GPU.Launch, &m.GPU.Down.Latency: c.GPU.Down.Latency, &m.GPU.Up.Latency: c.GPU.Up.Latency,
	}
	for at, cost := range times {
		if cost > 0 {
			*at = Rounded(cost, steps...)
		}
	}
	if c.Fresh > 1/fastest {
		m.Fresh = Rounded(1/c.Fresh, steps...)
	}
	set := func(rate *float64, cost float64) {
		if cost > 1/fastest {
			*rate = Rounded(1/cost, steps...)
		}
	}
	set(&m.GPU.Memory, c.GPU.Memory)
	set(&m.GPU.Down.Bandwidth, c.GPU.Down.Byte)
	set(&m.GPU.Up.Bandwidth, c.GPU.Up.Byte)
	rates := map[*sim.Rates]RateCosts{&m.Core: c.Core, &m.Memory: c.Memory, &m.Staging: c.Staging}
	for at, cost := range rates {
		set(&at.Cached, cost.Cached)
		set(&at.Shared, cost.Shared)
		set(&at.Bandwidth, cost.Bandwidth)
	}
	for _, at := range []*sim.Rates{&m.Core, &m.Staging} {
		at.Shared = max(at.Shared, at.Bandwidth)
		at.Cached = max(at.Cached, at.Shared)
	}
	m.Memory.Shared = min(m.Memory.Shared, m.Memory.Cached)
	m.Memory.Bandwidth = min(m.Memory.Bandwidth, m.Memory.Shared)
	return m
}

// Rounded returns the one of steps, times a power of ten, that v is nearest to.
func Rounded(v float64, steps ...float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	best := 10 * power
	for _, step := range steps {
		if math.Abs(math.Log(v/(step*power))) < math.Abs(math.Log(v/best)) {
			best = step * power
		}
	}
	exact, err := strconv.ParseFloat(strconv.FormatFloat(best, 'g', 3, 64), 64)
	if err != nil {
		return best
	}
	return exact // 8.2e-08 rather than 8.199999999999999e-08
}
