// Package device is the kernels as the engine's device: nbc.Device over them.
package device

import (
	"fmt"

	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// cpu is the device over the CPU's kernels: every operation is done when the
// call returns.
type cpu struct {
	k      *kernels.CPU
	around bool // sums and copies are stored around the caches
}

// Host is a device for the host's memory.
type Host interface {
	nbc.Device
	nbc.Spreader
	nbc.Expecter
	nbc.Immediate
}

// CPU returns the device that combines host memory on the calling thread.
func CPU(k *kernels.CPU) Host { return &cpu{k: k} }

// Expect says of how many bytes that nobody needs soon the results are that come next.
func (c *cpu) Expect(bytes int) { c.around = bytes >= kernels.StreamFrom }

func (c *cpu) Reduce(_ nbc.Token, dt mem.Datatype, op mem.Op, dst, a, b mem.Buffer) (bool, error) {
	return true, c.k.Reduce(dt, op, dst, a, b)
}

func (c *cpu) ReduceAll(_ nbc.Token, dt mem.Datatype, op mem.Op, dst mem.Buffer, from []mem.Buffer) (bool, error) {
	return true, c.k.ReduceAll(dt, op, dst, from, c.around)
}

func (c *cpu) ReduceTo(_ nbc.Token, dt mem.Datatype, op mem.Op, to, from []mem.Buffer) (bool, error) {
	return true, c.k.ReduceTo(dt, op, to, from, c.around)
}

func (c *cpu) CopyTo(_ nbc.Token, to []mem.Buffer, src mem.Buffer) (bool, error) {
	for _, b := range to {
		if b.Space() != mem.Host || src.Space() != mem.Host {
			return false, fmt.Errorf("device: copy from %v to %v memory: want host memory", src.Space(), b.Space())
		}
	}
	kernels.MoveTo(to, src, c.around)
	return true, nil
}

// At how many places a result is stored at once, of a collective that is stored around the caches, which one pass does, and of any.
const (
	mostPlaces = kernels.Operands
	fewPlaces  = 2
)

// Spreads: what is stored around the caches would have to be read again from memory for each further place. What is not
// is worth while to store where one other wants it, who would read it out of another core's cache. (Three
// others mostly share cores, and read it out of the cache that it is in.)
func (c *cpu) Spreads(bytes, places int) bool {
	return places <= fewPlaces || places <= mostPlaces && bytes >= kernels.StreamFrom
}

func (c *cpu) Divide(_ nbc.Token, dt mem.Datatype, dst, src mem.Buffer, by float64) (bool, error) {
	return true, c.k.Divide(dt, dst, src, by)
}

func (c *cpu) Copy(_ nbc.Token, dst, src mem.Buffer) (bool, error) {
	if c.around && dst.Len() == src.Len() && dst.Space() == mem.Host && src.Space() == mem.Host && !dst.Overlaps(src) {
		kernels.Move(dst, src, true)
		return true, nil
	}
	return true, c.k.Copy(dst, src)
}

func (c *cpu) Immediate() {}

func (c *cpu) Poll([]nbc.Completion) (int, error) { return 0, nil }

func (c *cpu) Drain() {}

func (c *cpu) Close() error { return c.k.Close() }
