//go:build cuda && cgo && linux && (amd64 || arm64)

package cuda

import (
	_ "embed"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/cuda/internal/driver"
	"github.com/scaffe/scaffe/mem"
)

//go:embed kernels.ptx
var ptx string

//go:embed layers.ptx
var layersPTX string

// minSM is the generation that the kernels are for; a driver translates them for
// later ones.
const minSM = 80

// A launch has up to perProcessor blocks of blockThreads for each multiprocessor, which go over
// a buffer in steps.
const (
	blockThreads = 256
	perProcessor = 8
)

// Device is a GPU that this process uses. Its methods, and those of its streams and events, may be
// called by any goroutine, for one stream by one at a time.
type Device struct {
	GPU
	c         driver.Context
	modules   []driver.Module
	reduce    [mem.NumDatatypes][mem.NumOps]driver.Function
	sums      [mem.NumDatatypes]driver.Function // of floating-point numbers
	divide    [mem.NumDatatypes]driver.Function
	copy      driver.Function
	updates   [len(ruleNames)]driver.Function
	layers    [len(layerKernels)]driver.Function
	mostBlock int // blocks of a launch

	mu      sync.Mutex
	reached []int // GPUs whose memory this one's kernels may touch, and whose contexts are retained for that
}

// Open makes a GPU usable, by its number in GPUs.
func Open(index int) (*Device, error) {
	all, err := GPUs()
	if err != nil {
		return nil, err
	}
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("cuda: this machine has %w", driver.ErrNoGPU)
	case index < 0 || index >= len(all):
		return nil, fmt.Errorf("cuda: there is no GPU cuda:%d: there are %d, from cuda:0 on", index, len(all))
	}
	d := &Device{GPU: all[index]}
	switch {
	case d.SM < minSM:
		return nil, d.wrap("open", fmt.Errorf("it is of generation sm_%d, and scaffe needs sm_%d or later", d.SM, minSM))
	case d.Mode == Prohibited:
		return nil, d.wrap("open", errors.New("its compute mode lets no process use it: nvidia-smi -c DEFAULT changes that"))
	}
	if d.c, err = driver.Retain(index); err != nil {
		if d.Mode == ExclusiveProcess {
			err = fmt.Errorf("%w: its compute mode is %v, so one other process may have it", err, d.Mode)
		}
		return nil, d.wrap("open", err)
	}
	if err := d.load(); err != nil {
		return nil, errors.Join(d.wrap("open", err), driver.Release(index))
	}
	return d, nil
}

// load translates the kernels and looks up each.
func (d *Device) load() error {
	device, err := cu.GetDevice(d.Index)
	if err != nil {
		return err
	}
	processors, err := device.Attribute(cu.MultiprocessorCount)
	if err != nil {
		return fmt.Errorf("the number of its multiprocessors: %w", err)
	}
	d.mostBlock = perProcessor * processors
	for _, text := range []string{ptx, layersPTX} {
		m, err := d.c.Load(text)
		if err != nil {
			return errors.Join(fmt.Errorf("the driver does not take the kernels: %w", err), d.unload())
		}
		d.modules = append(d.modules, m)
	}
	from := d.modules[0]
	find := func(name string) (f driver.Function) {
		if err == nil {
			if f, err = d.c.Function(from, name); err != nil {
				err = fmt.Errorf("kernel %s: %w", name, err)
			}
		}
		return f
	}
	for _, dt := range mem.Datatypes {
		for _, op := range mem.OpsOf(dt) {
			if alike := kernels.Alike(dt, op); alike == dt {
				d.reduce[dt][op] = find("reduce_" + dt.String() + "_" + op.String())
			}
		}
		if dt.Float() {
			d.sums[dt] = find("sums_" + dt.String())
		}
		d.divide[dt] = find("divide_" + dt.String())
	}
	d.copy = find("copy")
	for i, name := range ruleNames {
		d.updates[i] = find("update_" + name)
	}
	from = d.modules[1]
	for i, k := range layerKernels {
		d.layers[i] = find(k.name)
	}
	if err != nil {
		return errors.Join(err, d.unload())
	}
	return nil
}

func (d *Device) unload() error {
	var err error
	for _, m := range d.modules {
		err = errors.Join(err, d.c.Unload(m))
	}
	d.modules = nil
	return err
}

// wrap says what was attempted, and on which GPU.
func (d *Device) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cuda:%d (%s): %s: %w", d.Index, d.Name, what, err)
}

// Close gives up what Open took. Memory, streams and events have been given back before.
func (d *Device) Close() error {
	err := d.unload()
	for _, index := range d.reached {
		err = errors.Join(err, driver.Release(index))
	}
	d.reached = nil
	return d.wrap("close", errors.Join(err, driver.Release(d.Index)))
}

// AllocHost returns n bytes of the host's memory that are pinned: a GPU copies to and from them by itself.
// Contents are undefined. They are given back with FreeHost.
func (d *Device) AllocHost(n int) (mem.Buffer, error) {
	if n == 0 {
		return mem.Buffer{}, nil
	}
	if n < 0 {
		return mem.Buffer{}, d.wrap("allocate pinned memory", fmt.Errorf("%d bytes", n))
	}
	p, err := d.c.HostAlloc(n)
	if err != nil {
		return mem.Buffer{}, d.wrap(fmt.Sprintf("allocate %d bytes of pinned memory", n), err)
	}
	return mem.At(p, n, mem.Host), nil
}

// FreeHost gives back what AllocHost returned, with nothing under way that touches it.
func (d *Device) FreeHost(b mem.Buffer) error {
	if b.Len() == 0 {
		return nil
	}
	return d.wrap("free pinned memory", d.c.HostFree(b.Pointer()))
}

// blocks returns how many blocks go over n bytes in lines.
func (d *Device) blocks(n int) int {
	return min(max(1, (n/16+blockThreads-1)/blockThreads), d.mostBlock)
}

func address(b mem.Buffer) uint64 { return uint64(uintptr(unsafe.Pointer(b.Pointer()))) }
