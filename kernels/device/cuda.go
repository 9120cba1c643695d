//go:build cuda && cgo && linux && (amd64 || arm64)

package device

import (
	"errors"
	"time"

	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// drainWithin bounds Drain. What a GPU has been given takes milliseconds; one that does not end has
// hung, and the process is about to end.
const drainWithin = time.Minute

// gpu is the device over a GPU's streams, and over another device for host memory, of which alone a result is stored at several places.
type gpu struct {
	Host
	d *cuda.Device
	// The engine begins what waits for nothing, so the lanes need not wait for each other.
	// A GPU works on all three at once.
	kernels, up, down lane
}

var (
	_ nbc.Accelerator = (*gpu)(nil)
	_ nbc.Sharer      = (*gpu)(nil)
	_ Host            = (*gpu)(nil)
)

// lane is a stream, and what is under way on it, in order. The stream is made when it is first needed: those of a process share a few work
// queues, and what is staged needs no kernels, nor what is read where it lies copies.
type lane struct {
	stream *cuda.Stream // nil: nothing has been put on it
	begun  []operation
	spare  []*cuda.Event
}

// on returns the lane's stream.
func (l *lane) on(d *cuda.Device) (*cuda.Stream, error) {
	if l.stream == nil {
		s, err := d.NewStream()
		if err != nil {
			return nil, err
		}
		l.stream = s
	}
	return l.stream, nil
}

type operation struct {
	tok nbc.Token
	end *cuda.Event
}

// CUDA returns the device that combines buffers in a GPU's memory on streams, copies between it and the
// host's, and leaves host memory to another device. Any thread may call it. Close closes host, too, but not the GPU.
func CUDA(d *cuda.Device, host Host) (nbc.Accelerator, error) { return &gpu{Host: host, d: d}, nil }

// GPU says which GPU it is.
func (g *gpu) GPU() cuda.GPU { return g.d.GPU }

// Space is that of the GPU.
func (g *gpu) Space() mem.Space { return mem.CUDA }

// Alloc returns memory of the GPU.
func (g *gpu) Alloc(n int) (mem.Buffer, error) { return g.d.Alloc(n) }

// Free gives it back. A GPU that does not take it has failed, and says so to whoever works on it.
func (g *gpu) Free(b mem.Buffer) { _ = g.d.Free(b) }

// AllocHost returns pinned memory.
func (g *gpu) AllocHost(n int) (mem.Buffer, error) { return g.d.AllocHost(n) }

// FreeHost gives it back.
func (g *gpu) FreeHost(b mem.Buffer) { _ = g.d.FreeHost(b) }

// Find returns the number of the allocation in which b lies, and where b begins in it.
func (g *gpu) Find(b mem.Buffer) (id uint64, at int, err error) { return g.d.Find(b) }

// Share names an allocation to other processes.
func (g *gpu) Share(id uint64, freed func()) (nbc.SharedName, error) {
	h, err := g.d.Share(id, freed)
	return nbc.SharedName{Handle: h.Memory, Bytes: h.Bytes}, err
}

// Unshare ends that, of one that was freed.
func (g *gpu) Unshare(id uint64) error { return g.d.Unshare(id) }

// Open makes another process's memory readable on the GPU.
func (g *gpu) Open(s nbc.SharedName) (mem.Buffer, error) {
	return g.d.Import(cuda.Handle{Memory: s.Handle, Bytes: s.Bytes})
}

// CloseOpened ends that.
func (g *gpu) CloseOpened(b mem.Buffer) error { return g.d.CloseImport(b) }

// Busy reports whether something is under way on the GPU.
func (g *gpu) Busy() bool {
	return len(g.kernels.begun)+len(g.up.begun)+len(g.down.begun) > 0
}

// Combining reports whether a kernel is.
func (g *gpu) Combining() bool { return len(g.kernels.begun) > 0 }

// Folds reports whether ReduceAll takes one kernel.
func (g *gpu) Folds(dt mem.Datatype, op mem.Op) bool { return cuda.Folds(dt, op) }

func (g *gpu) lanes() [3]*lane { return [3]*lane{&g.kernels, &g.up, &g.down} }

// onGPU reports whether one of the buffers lies in a GPU's memory.
func onGPU(a, b, c mem.Buffer) bool {
	return a.Space() == mem.CUDA || b.Space() == mem.CUDA || c.Space() == mem.CUDA
}

func (g *gpu) Reduce(tok nbc.Token, dt mem.Datatype, op mem.Op, dst, a, b mem.Buffer) (bool, error) {
	if !onGPU(dst, a, b) {
		return g.Host.Reduce(tok, dt, op, dst, a, b)
	}
	s, err := g.kernels.on(g.d)
	if err != nil {
		return false, err
	}
	return g.kernels.begin(g.d, tok, dst.Len(), s.Reduce(dt, op, dst, a, b))
}

// ReduceAll adds them in their order.
func (g *gpu) ReduceAll(tok nbc.Token, dt mem.Datatype, op mem.Op, dst mem.Buffer, from []mem.Buffer) (bool, error) {
	device := dst.Space() == mem.CUDA
	for _, b := range from {
		device = device || b.Space() == mem.CUDA
	}
	if !device {
		return g.Host.ReduceAll(tok, dt, op, dst, from)
	}
	s, err := g.kernels.on(g.d)
	if err != nil {
		return false, err
	}
	return g.kernels.begin(g.d, tok, dst.Len(), s.ReduceAll(dt, op, dst, from))
}

func (g *gpu) Divide(tok nbc.Token, dt mem.Datatype, dst, src mem.Buffer, by float64) (bool, error) {
	if !onGPU(dst, src, src) {
		return g.Host.Divide(tok, dt, dst, src, by)
	}
	s, err := g.kernels.on(g.d)
	if err != nil {
		return false, err
	}
	return g.kernels.begin(g.d, tok, dst.Len(), s.Divide(dt, dst, src, by))
}

func (g *gpu) Copy(tok nbc.Token, dst, src mem.Buffer) (bool, error) {
	l := &g.kernels
	switch {
	case !onGPU(dst, src, src):
		return g.Host.Copy(tok, dst, src)
	case src.Space() == mem.Host:
		l = &g.up
	case dst.Space() == mem.Host:
		l = &g.down
	}
	s, err := l.on(g.d)
	if err != nil {
		return false, err
	}
	return l.begin(g.d, tok, dst.Len(), s.Copy(dst, src))
}

// begin puts the end of what was put on the lane there, unless that was nothing, or refused.
func (l *lane) begin(d *cuda.Device, tok nbc.Token, n int, err error) (bool, error) {
	if err != nil || n == 0 {
		return err == nil, err
	}
	var e *cuda.Event
	if k := len(l.spare) - 1; k >= 0 {
		e, l.spare = l.spare[k], l.spare[:k]
	} else if e, err = d.NewEvent(); err != nil {
		return false, err
	}
	if err := l.stream.Record(e); err != nil {
		l.spare = append(l.spare, e)
		return false, err
	}
	l.begun = append(l.begun, operation{tok, e})
	return false, nil
}

// Poll asks for the oldest of each lane, and for the next where that has ended.
func (g *gpu) Poll(done []nbc.Completion) (int, error) {
	n, err := g.Host.Poll(done)
	if err != nil {
		return n, err
	}
	for _, l := range g.lanes() {
		ended := 0
		for n < len(done) && ended < len(l.begun) {
			passed, err := l.begun[ended].end.Passed()
			if err != nil {
				return n, err // the GPU has failed, and with it all that was begun
			}
			if !passed {
				break
			}
			done[n] = nbc.Completion{Token: l.begun[ended].tok}
			n++
			ended++
		}
		l.forget(ended)
	}
	return n, nil
}

// forget drops the oldest n operations.
func (l *lane) forget(n int) {
	if n == 0 {
		return
	}
	for _, o := range l.begun[:n] {
		l.spare = append(l.spare, o.end)
	}
	l.begun = l.begun[:copy(l.begun, l.begun[n:])]
}

// Drain waits until the GPU has done what it was given. One that has failed touches nothing any more.
func (g *gpu) Drain() {
	g.Host.Drain()
	for _, l := range g.lanes() {
		if l.stream != nil {
			_ = l.stream.Synchronize(drainWithin)
		}
		l.forget(len(l.begun))
	}
}

// Close closes the device for host memory, too.
func (g *gpu) Close() error { return errors.Join(g.Host.Close(), g.closeLanes()) }

func (g *gpu) closeLanes() error {
	var err error
	for _, l := range g.lanes() {
		for _, e := range l.spare {
			err = errors.Join(err, e.Close())
		}
		if l.stream != nil {
			err = errors.Join(err, l.stream.Close())
		}
		*l = lane{}
	}
	return err
}
