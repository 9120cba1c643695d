package launch

import (
	"errors"
	"fmt"

	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/lending"
	"github.com/scaffe/scaffe/nbc/staging"
)

// gpu is a rank's, where Options.CUDA asks for one.
type gpu struct {
	numbers []int // Options.GPUs
	mayLack bool
	device  *cuda.Device
	err     error // why there is none
}

// newGPUs returns what the ranks of this process are to have.
func newGPUs(o Options) (all []*gpu) {
	if o.CUDA {
		for range max(1, o.Local) {
			all = append(all, &gpu{numbers: o.GPUs, mayLack: o.MayLack})
		}
	}
	return all
}

// over returns what the engine of a rank works with: t and the CPU's kernels and, where that can be opened, the GPU of the
// rank, over which t then carries messages. That it cannot is told to all ranks later, by an engine that works.
func (g *gpu) over(t nbc.Transport, cpu device.Host) (nbc.Transport, nbc.Device) {
	if g.mayLack && t.Size() == 1 {
		return t, cpu
	}
	if g.device, g.err = g.open(place(t)); g.err != nil {
		return t, cpu
	}
	var copies [2]nbc.Accelerator // of staging, and of what is read where it lies
	for i := range copies {
		if copies[i], g.err = g.accelerator(); g.err != nil {
			if i > 0 {
				g.err = errors.Join(g.err, copies[0].Close())
			}
			return t, cpu
		}
	}
	sums, err := device.CUDA(g.device, cpu)
	if err != nil {
		g.err = errors.Join(err, copies[0].Close(), copies[1].Close())
		return t, cpu
	}
	return lending.New(staging.New(t, copies[0], staging.Options{}), copies[1]), sums
}

// accelerator returns the GPU as a device with kernels of its own for the host's memory.
func (g *gpu) accelerator() (nbc.Accelerator, error) {
	k, err := kernels.NewCPU()
	if err != nil {
		return nil, err
	}
	cpu := device.CPU(k)
	a, err := device.CUDA(g.device, cpu)
	if err != nil {
		return nil, errors.Join(err, cpu.Close())
	}
	return a, nil
}

// closeGPUs gives up what was opened, after the engines.
func closeGPUs(all []*gpu) error {
	var err error
	for _, g := range all {
		if g.device != nil {
			err = errors.Join(err, g.device.Close())
		}
	}
	return err
}

// place returns the rank's number among those of its node.
func place(t nbc.Transport) int {
	p, ok := t.(nbc.Topology)
	if !ok {
		return t.Rank()
	}
	n, nodes := 0, p.Nodes()
	for rank := range t.Rank() {
		if nodes[rank] == nodes[t.Rank()] {
			n++
		}
	}
	return n
}

// open opens the GPU of a rank by its place: the ranks of a node take its GPUs in turn.
func (g *gpu) open(place int) (*cuda.Device, error) {
	index, err := cuda.Turn(g.numbers, place)
	if err != nil {
		return nil, err
	}
	return cuda.Open(index)
}

// serves reports whether the rank's engine has the GPU.
func (g *gpu) serves() bool { return g.device != nil && g.err == nil }

// need says why a rank has no GPU.
func (g *gpu) need() error {
	if g.err == nil || g.mayLack {
		return nil
	}
	return fmt.Errorf("buffers in a GPU's memory: %w", g.err)
}
