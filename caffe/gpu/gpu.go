// Package gpu is a GPU as blobs, layers and solvers see it: one stream of kernels, which are done in the
// order in which they were begun, and vectors that lie in the host's memory, in the GPU's, or in both.
//
//	d, err := gpu.Open(0)
//	...
//	x := d.NewMemory(4 * n)
//	copy(mem.Float32s(x.Host()), values)                   // the host's side is the current one
//	d.Launch(cuda.Scaled, n, []mem.Buffer{y.Write(), x.Read()}, cuda.Number(2), 0)
//	fmt.Println(mem.Float32s(y.HostRead())[0])             // waits for it
//	err = d.Err()
//
// A vector's side that is asked for is brought up to date first: Read copies to the GPU, which nobody waits for, and
// Host back, which waits. What was copied and how often somebody waited is counted. Copies go on streams of their own, one
// each way: a copy waits for the kernels that were begun before it, and kernels for the copies that they need.
//
// # Updates
//
// What changes parameters while the passes of layers go on is begun on another stream (Beside), and may come
// from other goroutines. A memory that is changed there (Memory.Beside) is the passes' again after Join, which
// nobody waits for but the stream.
//
// A GPU that fails, fails as a whole: the first error stays (Err), and nothing is begun after it.
package gpu

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/mem"
)

// within bounds a wait for the GPU. What it has been given takes milliseconds; what is not done by
// then never will be.
const within = 2 * time.Minute

// Counts is what has been copied between the memories, in bytes, and how often the host has waited for the GPU: in
// FetchResult, and elsewhere.
type Counts struct {
	Up, Down       int64
	Fetches, Waits int64
}

// Sub returns what c has more than before.
func (c Counts) Sub(before Counts) Counts {
	return Counts{c.Up - before.Up, c.Down - before.Down, c.Fetches - before.Fetches, c.Waits - before.Waits}
}

// Device is a GPU that one worker trains on. It may be used by several goroutines.
type Device struct {
	gpu      *cuda.Device
	stream   *cuda.Stream // of the passes
	up, down *cuda.Stream // of copies
	updates  *cuda.Stream

	mu       sync.Mutex
	err      error
	counts   Counts
	end      *cuda.Event // of Fetch and of waits
	turn     *cuda.Event // of order
	tracer   *tracer     // nil without Trace
	joins    bool        // Beside has begun something that Join has not seen
	others   int64       // bytes of Count
	device   []mem.Buffer
	pinned   []mem.Buffer
	events   []*cuda.Event
	scratch  mem.Buffer
	scratch2 mem.Buffer

	libraries *cuda.Libraries // nil: UseLibraries has not been called
	math      cuda.Math
}

// Open makes GPU number index of this machine usable.
func Open(index int) (*Device, error) {
	g, err := cuda.Open(index)
	if err != nil {
		return nil, err
	}
	d := &Device{gpu: g}
	for _, s := range d.streams() {
		if err == nil {
			*s, err = g.NewStream()
		}
	}
	for _, e := range []**cuda.Event{&d.end, &d.turn} {
		if err == nil {
			*e, err = g.NewEvent()
		}
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Device) streams() []**cuda.Stream {
	return []**cuda.Stream{&d.stream, &d.up, &d.down, &d.updates}
}

// GPU says which GPU it is.
func (d *Device) GPU() cuda.GPU { return d.gpu.GPU }

// String is such as "cuda:0 (NVIDIA H200)".
func (d *Device) String() string { return fmt.Sprintf("cuda:%d (%s)", d.gpu.Index, d.gpu.Name) }

// Close waits for what is under way and gives all memory back. Memories are of no use afterwards.
func (d *Device) Close() error {
	var errs []error
	for _, s := range d.streams() {
		if *s != nil {
			errs = append(errs, (*s).Synchronize(within))
		}
	}
	if d.libraries != nil {
		errs = append(errs, d.libraries.Close())
	}
	for _, s := range d.streams() {
		if *s != nil {
			errs = append(errs, (*s).Close())
			*s = nil
		}
	}
	for _, e := range []**cuda.Event{&d.end, &d.turn} {
		if *e != nil {
			errs = append(errs, (*e).Close())
			*e = nil
		}
	}
	for _, e := range d.events {
		errs = append(errs, e.Close())
	}
	for _, b := range d.device {
		errs = append(errs, d.gpu.Free(b))
	}
	for _, b := range d.pinned {
		errs = append(errs, d.gpu.FreeHost(b))
	}
	d.libraries = nil
	d.events, d.device, d.pinned = nil, nil, nil
	return errors.Join(append(errs, d.gpu.Close())...)
}

// Err returns the first error, which ends all work.
func (d *Device) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Counts returns what has been counted so far.
func (d *Device) Counts() Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts
}

// Bytes returns how much memory of the GPU and how much pinned memory of the host is taken.
func (d *Device) Bytes() (device, pinned int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	device = d.others
	for _, b := range d.device {
		device += int64(b.Len())
	}
	for _, b := range d.pinned {
		pinned += int64(b.Len())
	}
	return device, pinned
}

// fail keeps the first error.
func (d *Device) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// Launch begins a kernel over so many items; see package kernels/cuda.
func (d *Device) Launch(k cuda.Kernel, items int, buffers []mem.Buffer, numbers ...int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.fail(d.stream.Launch(k, items, buffers, numbers...))
	}
}

// Count has Bytes count memory of the GPU that others have taken for what is computed here.
func (d *Device) Count(b mem.Buffer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.others += int64(b.Len())
}

// Do calls f with the stream, which is nobody else's meanwhile.
func (d *Device) Do(f func(*cuda.Stream) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.fail(f(d.stream))
	}
}

// Alloc returns n bytes of the GPU's memory, which are given back by Close. Where there are none, the error stays.
func (d *Device) Alloc(n int) mem.Buffer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.alloc(n)
}

func (d *Device) alloc(n int) mem.Buffer {
	if d.err != nil || n == 0 {
		return mem.Buffer{}
	}
	b, err := d.gpu.Alloc(n)
	if err != nil {
		d.fail(err)
		return mem.Buffer{}
	}
	d.device = append(d.device, b)
	return b
}

// AllocHost returns n zeroed bytes of the host's memory that the GPU copies to and from by itself, given back by Close.
func (d *Device) AllocHost(n int) (mem.Buffer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.allocHost(n)
	return b, d.err
}

// allocHost returns memory in any case: what has failed is told later.
func (d *Device) allocHost(n int) mem.Buffer {
	if d.err == nil && n > 0 {
		b, err := d.gpu.AllocHost(n)
		if err == nil {
			clear(mem.Bytes(b))
			d.pinned = append(d.pinned, b)
			return b
		}
		d.fail(err)
	}
	return mem.Of(make([]byte, n))
}

// Scratch returns n bytes of the GPU's memory for the kernels that are begun next, until the next call.
func (d *Device) Scratch(n int) mem.Buffer { return d.room(&d.scratch, n) }

// Scratch2 returns others.
func (d *Device) Scratch2(n int) mem.Buffer { return d.room(&d.scratch2, n) }

func (d *Device) room(b *mem.Buffer, n int) mem.Buffer {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b.Len() < n { // kernels under way may still use the smaller one
		if *b = d.alloc(n); d.err != nil {
			return mem.Buffer{}
		}
	}
	return b.Slice(0, n)
}

// wait waits until the event has passed, and counts that unless it has passed already.
func (d *Device) wait(e *cuda.Event, count *int64) {
	start := time.Now()
	for first := true; d.err == nil; first = false {
		passed, err := e.Passed()
		switch took := time.Since(start); {
		case err != nil:
			d.fail(err)
		case passed:
			if !first {
				*count++
			}
			return
		case took > within:
			d.fail(fmt.Errorf("%v: waiting for %v: %w", d, within, cuda.ErrDeadline))
		case took > 50*time.Microsecond:
			cuda.Rest()
		}
	}
}

// Fetch brings the host's sides up to date, with one wait for all of them. The GPU's stay current. Of vectors that have been
// prefetched the first should be the one that was last.
func (d *Device) Fetch(ms ...*Memory) { d.fetch(&d.counts.Waits, ms) }

// FetchResult is Fetch of what a pass comes to, such as the loss, for which the host waits anyway: its waits are counted apart.
func (d *Device) FetchResult(ms ...*Memory) { d.fetch(&d.counts.Fetches, ms) }

func (d *Device) fetch(count *int64, ms []*Memory) {
	d.mu.Lock()
	defer d.mu.Unlock()
	begun := false
	for _, m := range ms {
		begun = m.beginDown() || begun
	}
	if begun && d.err == nil {
		d.fail(d.down.Record(d.end))
		d.wait(d.end, count)
	}
	for _, m := range ms {
		if m.copying {
			d.wait(m.copied, count)
			m.copying = false
		}
	}
}
