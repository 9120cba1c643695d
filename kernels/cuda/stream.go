//go:build cuda && cgo && linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/cuda/internal/driver"
	"github.com/scaffe/scaffe/kernels/vec"
	"github.com/scaffe/scaffe/mem"
)

// Stream is a queue of work for a GPU, which does it in this order. The verbs put work there and
// return at once; buffers must stay until it has been done, which events tell.
type Stream struct {
	d *Device
	s driver.Stream
}

// NewStream returns an empty stream.
func (d *Device) NewStream() (*Stream, error) {
	s, err := d.c.NewStream()
	if err != nil {
		return nil, d.wrap("make a stream", err)
	}
	return &Stream{d, s}, nil
}

// Close gives the stream back.
func (s *Stream) Close() error { return s.d.wrap("close a stream", s.d.c.DestroyStream(s.s)) }

// Done reports whether all that was put on the stream has been done. An error is the device's, and
// means that it has failed as a whole.
func (s *Stream) Done() (bool, error) {
	done, err := s.d.c.StreamDone(s.s)
	return done, s.d.wrap("look at a stream", err)
}

// ErrDeadline is the error of a wait that took too long.
var ErrDeadline = errors.New("the GPU has not done its work in time")

// Synchronize waits until all that was put on the stream has been done, for so long.
func (s *Stream) Synchronize(within time.Duration) error {
	for start := time.Now(); ; {
		done, err := s.Done()
		switch passed := time.Since(start); {
		case err != nil || done:
			return err
		case passed > within:
			return s.d.wrap(fmt.Sprintf("wait for %v", within), ErrDeadline)
		case passed > 50*time.Microsecond: // what is short ends within some microseconds
			Rest()
		}
	}
}

// Event is a point on a stream.
type Event struct {
	d *Device
	e driver.Event
}

// NewEvent returns an event that is on no stream yet.
func (d *Device) NewEvent() (*Event, error) {
	e, err := d.c.NewEvent()
	if err != nil {
		return nil, d.wrap("make an event", err)
	}
	return &Event{d, e}, nil
}

// NewTimer is NewEvent for one that knows when it has passed, which costs the GPU a little.
func (d *Device) NewTimer() (*Event, error) {
	e, err := d.c.NewTimer()
	if err != nil {
		return nil, d.wrap("make a timer", err)
	}
	return &Event{d, e}, nil
}

// Since returns how much later than first e has passed; both are timers, and have passed.
func (e *Event) Since(first *Event) (time.Duration, error) {
	ms, err := e.d.c.Elapsed(first.e, e.e)
	return time.Duration(float64(ms) * float64(time.Millisecond)), e.d.wrap("compare timers", err)
}

// Close gives the event back.
func (e *Event) Close() error { return e.d.wrap("close an event", e.d.c.DestroyEvent(e.e)) }

// Passed reports whether what was on the stream when the event was recorded has been done.
func (e *Event) Passed() (bool, error) {
	passed, err := e.d.c.Passed(e.e)
	return passed, e.d.wrap("look at an event", err)
}

// Record puts the event on the stream; where it was before is forgotten.
func (s *Stream) Record(e *Event) error { return s.d.wrap("record an event", s.d.c.Record(e.e, s.s)) }

// Wait has what is put on the stream from now on begin after the event, on whichever stream that is.
func (s *Stream) Wait(e *Event) error {
	return s.d.wrap("wait for an event", s.d.c.Wait(s.s, e.e))
}

// launch puts a kernel that goes over n bytes on the stream.
func (s *Stream) launch(what string, f driver.Function, n int, arguments ...uint64) error {
	var all [driver.MostArguments]uint64
	count := copy(all[:], arguments)
	if err := s.d.c.Launch(f, s.d.blocks(n), blockThreads, s.s, &all, count); err != nil {
		return s.d.wrap(what, err)
	}
	return nil
}

// Launch puts a kernel of layers.cu on the stream, for so many items, of buffers in the GPU's memory and numbers. A buffer
// may be empty where the kernel says so.
func (s *Stream) Launch(k Kernel, items int, buffers []mem.Buffer, numbers ...int64) error {
	of := &layerKernels[k]
	if len(buffers) != of.buffers || len(numbers) != of.numbers {
		return s.d.wrap(of.name, fmt.Errorf("%d buffers and %d numbers: want %d and %d", len(buffers), len(numbers), of.buffers, of.numbers))
	}
	if items <= 0 {
		return nil
	}
	var all [driver.MostArguments]uint64
	n := 0
	for i, b := range buffers {
		if b.Len() > 0 && (b.Space() != mem.CUDA || address(b)%4 != 0) {
			return s.d.wrap(of.name, fmt.Errorf("buffer %d, at %#x in %v memory: want addresses of whole elements in cuda memory", i, address(b), b.Space()))
		}
		all[n], all[n+1] = address(b), uint64(b.Len())
		n += 2
	}
	for _, x := range numbers {
		all[n] = uint64(x)
		n++
	}
	blocks := min((items+blockThreads-1)/blockThreads, s.d.mostBlock)
	if err := s.d.c.Launch(s.d.layers[k], blocks, blockThreads, s.s, &all, n); err != nil {
		return s.d.wrap(of.name, err)
	}
	return nil
}

// Reduce puts dst[i] = a[i] ⊕ b[i] on the stream, of buffers in the GPU's memory, with the bits of
// kernels.CPU.
func (s *Stream) Reduce(dt mem.Datatype, op mem.Op, dst, a, b mem.Buffer) error {
	if err := kernels.CheckReduce(mem.CUDA, dt, op, dst, a, b); err != nil {
		return s.d.wrap(fmt.Sprintf("reduce %v of %v", op, dt), err)
	}
	if dst.Len() == 0 {
		return nil
	}
	alike := kernels.Alike(dt, op)
	return s.launch("reduce", s.d.reduce[alike][op], dst.Len(), address(dst), address(a), address(b), uint64(dst.Len()/alike.Size()))
}

// ReduceAll puts dst[i] = ((from[0][i] ⊕ from[1][i]) ⊕ from[2][i]) … on the stream, with the bits of Reduce of two after the other. There are
// at least two; dst may be the first or the second. Sums of floating-point numbers at addresses of whole elements take one kernel for each
// Operands of them, which reads every operand once and writes dst once; all else takes one for each addition.
func (s *Stream) ReduceAll(dt mem.Datatype, op mem.Op, dst mem.Buffer, from []mem.Buffer) error {
	if err := kernels.CheckReduceAll(mem.CUDA, dt, op, dst, from); err != nil {
		return s.d.wrap(fmt.Sprintf("reduce %v of %d buffers of %v", op, len(from), dt), err)
	}
	if dst.Len() == 0 {
		return nil
	}
	first, rest := from[0], from[1:]
	for len(rest) > 0 {
		n := 1
		var err error
		if len(rest) > 1 && Folds(dt, op) && aligned(dt, dst, from) {
			n = min(len(rest), Operands-1)
			err = s.sum(dt, dst, first, rest[:n])
		} else {
			err = s.Reduce(dt, op, dst, first, rest[0])
		}
		if err != nil {
			return err
		}
		first, rest = dst, rest[n:]
	}
	return nil
}

// sum puts the sum of up to Operands buffers on the stream, by one kernel.
func (s *Stream) sum(dt mem.Datatype, dst, first mem.Buffer, rest []mem.Buffer) error {
	var a [Operands + 3]uint64
	a[0], a[1] = address(dst), address(first)
	for i := range Operands - 1 {
		a[2+i] = address(rest[min(i, len(rest)-1)])
	}
	a[Operands+1], a[Operands+2] = uint64(dst.Len()/dt.Size()), uint64(1+len(rest))
	return s.launch("sum", s.d.sums[dt], dst.Len(), a[:]...)
}

// aligned reports whether all buffers begin at multiples of an element's size.
func aligned(dt mem.Datatype, dst mem.Buffer, from []mem.Buffer) bool {
	all := address(dst)
	for _, b := range from {
		all |= address(b)
	}
	return all%uint64(dt.Size()) == 0
}

// Divide puts dst[i] = src[i] / by on the stream, likewise.
func (s *Stream) Divide(dt mem.Datatype, dst, src mem.Buffer, by float64) error {
	if err := kernels.CheckDivide(mem.CUDA, dt, dst, src, by); err != nil {
		return s.d.wrap("divide", err)
	}
	if dst.Len() == 0 {
		return nil
	}
	divisor := math.Float64bits(by)
	if !dt.Float() {
		divisor = uint64(by)
	}
	return s.launch("divide", s.d.divide[dt], dst.Len(), address(dst), address(src), divisor, uint64(dst.Len()/dt.Size()))
}

// Copy puts dst = src on the stream, between buffers of which one at least is in the GPU's memory. They do
// not overlap, and one in the host's memory lies outside the Go heap.
func (s *Stream) Copy(dst, src mem.Buffer) error {
	var err error
	switch n, to, from := dst.Len(), dst.Space(), src.Space(); {
	case n != src.Len():
		err = fmt.Errorf("dst and src hold %d and %d bytes: they must be equally long", n, src.Len())
	case n == 0 || dst.Same(src):
	case dst.OnGoHeap() || src.OnGoHeap():
		err = errors.New("a buffer lies in the Go heap, where it may be moved: want one of mem.Alloc")
	case dst.Overlaps(src):
		err = errors.New("dst partly overlaps src: want a separate buffer")
	case to == mem.CUDA && from == mem.CUDA:
		return s.launch("copy", s.d.copy, n, address(dst), address(src), uint64(n))
	case to == mem.CUDA:
		err = s.d.c.ToDevice(dst.Pointer(), src.Pointer(), n, s.s)
	case from == mem.CUDA:
		err = s.d.c.ToHost(dst.Pointer(), src.Pointer(), n, s.s)
	default:
		err = errors.New("both buffers lie in host memory: a GPU copies what is its own")
	}
	return s.d.wrap("copy", err)
}

// CopyByDriver puts dst = src on the stream, both in the GPU's memory, as the driver copies: what bandwidths are compared with.
func (s *Stream) CopyByDriver(dst, src mem.Buffer) error {
	if dst.Len() != src.Len() || dst.Space() != mem.CUDA || src.Space() != mem.CUDA {
		return s.d.wrap("copy", fmt.Errorf("%d bytes in %v memory to %d in %v memory: want as many, in cuda memory", src.Len(), src.Space(), dst.Len(), dst.Space()))
	}
	return s.d.wrap("copy", s.d.c.OnDevice(dst.Pointer(), src.Pointer(), dst.Len(), s.s))
}

// The rules of vec.Update, in the order of their kernels.
const (
	ruleSGD = iota
	ruleNesterov
	ruleAdaGrad
	ruleRMSProp
	ruleAdaDelta
	ruleAdam
)

var ruleNames = [...]string{"sgd", "nesterov", "adagrad", "rmsprop", "adadelta", "adam"}

// SGD puts vec.Update.SGD on the stream, for float32 vectors in the GPU's memory. The results have the same
// bits, NaN aside, of which there are several.
func (s *Stream) SGD(o vec.Update, momentum float32, w, g, h mem.Buffer) error {
	return s.update(ruleSGD, o, [5]float32{momentum}, w, g, h, mem.Buffer{})
}

// Nesterov is vec.Update.Nesterov, likewise.
func (s *Stream) Nesterov(o vec.Update, momentum float32, w, g, h mem.Buffer) error {
	return s.update(ruleNesterov, o, [5]float32{momentum, 1 + momentum}, w, g, h, mem.Buffer{})
}

// AdaGrad is vec.Update.AdaGrad, likewise.
func (s *Stream) AdaGrad(o vec.Update, delta float32, w, g, h mem.Buffer) error {
	return s.update(ruleAdaGrad, o, [5]float32{delta}, w, g, h, mem.Buffer{})
}

// RMSProp is vec.Update.RMSProp, likewise.
func (s *Stream) RMSProp(o vec.Update, decay, delta float32, w, g, h mem.Buffer) error {
	return s.update(ruleRMSProp, o, [5]float32{decay, 1 - decay, delta}, w, g, h, mem.Buffer{})
}

// AdaDelta is vec.Update.AdaDelta, likewise.
func (s *Stream) AdaDelta(o vec.Update, momentum, delta float32, w, g, h, u mem.Buffer) error {
	return s.update(ruleAdaDelta, o, [5]float32{momentum, 1 - momentum, delta}, w, g, h, u)
}

// Adam is vec.Update.Adam, likewise.
func (s *Stream) Adam(o vec.Update, beta1, beta2, delta float32, w, g, h, u mem.Buffer) error {
	return s.update(ruleAdam, o, [5]float32{beta1, 1 - beta1, beta2, 1 - beta2, delta}, w, g, h, u)
}

func (s *Stream) update(rule int, o vec.Update, factors [5]float32, w, g, h, u mem.Buffer) error {
	vectors := []mem.Buffer{w, g, h, u}
	if rule < ruleAdaDelta {
		vectors = vectors[:3]
	}
	for i, v := range vectors {
		if v.Len() != w.Len() || v.Len()%4 != 0 {
			return s.d.wrap("update by "+ruleNames[rule], fmt.Errorf("vector %d has %d bytes of %d: want equally many whole elements", i, v.Len(), w.Len()))
		}
		if v.Len() > 0 && (v.Space() != mem.CUDA || address(v)%4 != 0) {
			return s.d.wrap("update by "+ruleNames[rule], fmt.Errorf("vector %d, at %#x in %v memory: want addresses of whole elements in cuda memory", i, address(v), v.Space()))
		}
		for _, other := range vectors[:i] {
			if v.Overlaps(other) {
				return s.d.wrap("update by "+ruleNames[rule], errors.New("vectors overlap"))
			}
		}
	}
	if w.Len() == 0 {
		return nil
	}
	var flags uint64
	if o.L1 {
		flags |= 1
	}
	if o.Clear {
		flags |= 2
	}
	number := func(x float32) uint64 { return math.Float64bits(float64(x)) }
	return s.launch("update", s.d.updates[rule], w.Len(), address(w), address(g), address(h), address(u), uint64(w.Len()/4),
		number(o.Scale), number(o.Decay), number(o.Rate), flags,
		number(factors[0]), number(factors[1]), number(factors[2]), number(factors[3]), number(factors[4]))
}
