package collectives

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule/sim"
)

// GPU is what Configure is told of this rank's GPU, so that the cost model knows what buffers in its memory cost.
type GPU struct {
	// Kept is what measurements of it are kept under: those of a GPU alike count for this one.
	Kept selection.Kept
	// Open returns the GPU for a measurement, which closes it.
	Open func() (nbc.Accelerator, error)
	// Devices, Lends and Turns are those of sim.GPU; rank 0's count.
	Devices, Lends int
	Turns          bool
}

// HasGPU has Configure find the parameters of GPUs, too. All ranks of c call it before Configure, or none.
func (c *Comm) HasGPU(g GPU) { c.gpu = &g }

// Machine returns what a table that is made of this communicator's measurements depends on: Options.Machine with this rank's GPU, if it has one.
func (c *Comm) Machine() selection.Machine {
	m := c.opts.Machine
	if c.gpu != nil {
		m.GPU = c.gpu.Kept.GPU
	}
	return m
}

// measureGPUs is a collective that returns m with the parameters of the ranks' GPUs, as they are kept or measured now: by the first
// rank of every node that is measured for its machine. From says where they come from.
func (c *Comm) measureGPUs(ctx context.Context, m sim.Model, stands bool, how string) (_ sim.Model, from, warning string, err error) {
	first := stands && slices.Index(c.nodes, c.nodes[c.rank]) == c.rank
	kept, costs, warning, err := c.keptOrMeasured(ctx, c.gpu.Kept, first, how, func() (selection.Costs, error) {
		var costs selection.Costs
		var err error
		if first {
			costs.GPU, err = gpuCosts(ctx, c.gpu.Open)
		}
		return costs, c.Agree(ctx, err)
	})
	if err != nil {
		return m, "", warning, err
	}
	m = costs.On(m)
	m.GPU.Devices, m.GPU.Lends, m.GPU.Turns = float64(c.gpu.Devices), float64(c.gpu.Lends), 0
	if c.gpu.Turns {
		m.GPU.Turns = 1
	}
	return m, kept.From(), warning, nil
}

// What is measured of a GPU: few bytes take the time of a launch or of a copy, many are more than its caches hold, where
// it has room for three times so many.
const (
	gpuFew       = 4 << 10
	gpuMany      = 32 << 20
	gpuLeast     = 2 << 20
	gpuFewTimes  = 41
	gpuManyTimes = 5
	gpuWithin    = time.Minute // for one kernel or copy
)

// gpuCosts measures a GPU, in some dozens of milliseconds: of each time, from when something is begun until Poll has seen its end, the
// median counts.
func gpuCosts(ctx context.Context, open func() (nbc.Accelerator, error)) (costs selection.GPUCosts, err error) {
	a, err := open()
	if err != nil {
		return costs, err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	many := gpuMany
	device, err := a.Alloc(3 * many)
	for err != nil && many > gpuLeast { // others have most of its memory
		many /= 4
		device, err = a.Alloc(3 * many)
	}
	if err != nil {
		return costs, err
	}
	defer a.Free(device)
	on := [3]mem.Buffer{device.Slice(0, many), device.Slice(many, many), device.Slice(2*many, many)}
	host, err := a.AllocHost(many)
	if err != nil {
		return costs, err
	}
	defer a.FreeHost(host)
	defer a.Drain() // before that is given back
	clear(mem.Bytes(host))
	p := gpuProbe{ctx: ctx, a: a}
	few := func(b mem.Buffer) mem.Buffer { return b.Slice(0, gpuFew) }
	copied := func(dst, src mem.Buffer) func() (bool, error) {
		return func() (bool, error) { return a.Copy(gpuToken, dst, src) }
	}
	added := func(dst, x, y mem.Buffer) func() (bool, error) {
		return func() (bool, error) { return a.Reduce(gpuToken, mem.Float32, mem.Sum, dst, x, y) }
	}
	// of is what a byte costs of some, besides what few of them take.
	of := func(bytes int, all, little float64) float64 { return max(0, all-little) / float64(bytes) }
	up := p.time(gpuManyTimes, copied(on[0], host))
	p.time(1, copied(on[1], host)) // sums are of numbers
	costs.Up.Latency = p.time(gpuFewTimes, copied(few(on[0]), few(host)))
	costs.Up.Byte = of(many, up, costs.Up.Latency)
	costs.Launch = p.time(gpuFewTimes, added(few(on[2]), few(on[0]), few(on[1])))
	costs.Memory = of(3*many, p.time(gpuManyTimes, added(on[2], on[0], on[1])), costs.Launch)
	costs.Down.Latency = p.time(gpuFewTimes, copied(few(host), few(on[0])))
	costs.Down.Byte = of(many, p.time(gpuManyTimes, copied(host, on[0])), costs.Down.Latency)
	return costs, p.err
}

// gpuToken names what is under way, of which there is one.
const gpuToken nbc.Token = 1

// gpuProbe measures one thing after the other: as soon as something has failed, nothing more is done.
type gpuProbe struct {
	ctx context.Context
	a   nbc.Accelerator
	err error
}

// time returns the median of n times of what begin begins, in seconds, after one that does not count.
func (p *gpuProbe) time(n int, begin func() (bool, error)) float64 {
	took := make([]float64, n+1)
	for i := range took {
		from := time.Now()
		if p.err == nil {
			p.err = p.once(from, begin)
		}
		took[i] = time.Since(from).Seconds()
	}
	took = took[1:]
	slices.Sort(took)
	return took[n/2]
}

func (p *gpuProbe) once(from time.Time, begin func() (bool, error)) error {
	done, err := begin()
	var ended [1]nbc.Completion
	for err == nil && !done {
		n, e := p.a.Poll(ended[:])
		switch err = e; {
		case n > 0:
			return errors.Join(err, ended[0].Err)
		case err != nil:
		case p.ctx.Err() != nil:
			err = context.Cause(p.ctx)
		case time.Since(from) > gpuWithin:
			err = fmt.Errorf("a GPU has not ended a kernel, or a copy, after %v", gpuWithin)
		}
	}
	return err
}
