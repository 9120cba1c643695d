package data

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
)

// DefaultPrefetch is how many batches are decoded ahead if neither the net nor
// the Options say: Caffe's default.
const DefaultPrefetch = 4

// ErrClosed is returned by a Loader after Close.
var ErrClosed = errors.New("data: the loader is closed")

// Config is what a Loader loads.
type Config struct {
	// Source is read from and, at Close, closed.
	Source Source
	// Transform is applied to each sample.
	Transform *Transformer
	// BatchSize is the layer's batch_size; Part determines what it means.
	BatchSize int
	// RandSkip, if positive, starts the data set at a sample below it, drawn
	// from the seed.
	RandSkip int
	// Labels makes samples without a label an error.
	Labels bool
	// Prefetch is how many batches are decoded ahead; Options.Prefetch, if
	// set, overrides it. 0 means DefaultPrefetch.
	Prefetch int
	Options
}

// Loader delivers this part's samples of each global batch in turn. Goroutines,
// started by the first Next, read and decode a bounded number of batches ahead
// into buffers that are reused.
//
// Next, SeekBatch and Close must be called from one goroutine at a time; Stats
// may be called from any.
type Loader struct {
	c     Config
	shape Shape // of a transformed sample
	n     int   // samples of this part in a batch
	skip  int64
	next  int64 // the global batch that Next gives

	workers []*worker // each with a source of its own, the first with Config's
	ahead   *ahead    // nil where it is not running
	slots   []*slot
	err     error // what ended the loader
	closed  bool

	counters counters
}

// NewLoader checks the configuration and reads the first sample, whose
// transformed shape all samples must have. If it fails, it closes the source.
func NewLoader(c Config) (*Loader, error) {
	l := &Loader{c: c, workers: []*worker{{source: c.Source}}}
	if err := l.init(); err != nil {
		return nil, errors.Join(err, l.closeSources())
	}
	return l, nil
}

func (l *Loader) init() error {
	c := &l.c
	if err := c.Part.Check(c.BatchSize); err != nil {
		return err
	}
	n := c.Source.Len()
	if of := c.Part.whole().Of; n < int64(of) {
		return fmt.Errorf("the data set holds %d samples, fewer than the %d workers: use fewer workers or more samples", n, of)
	}
	if c.RandSkip > 0 {
		r := chooser{mix(c.Seed ^ 0x5ca1ab1e)}
		l.skip = int64(r.below(c.RandSkip))
	}
	l.n = c.Part.Local(c.BatchSize)
	var s Sample
	err := guard(func() error {
		if err := c.Source.Read(0, 0, &s); err != nil {
			return err
		}
		var err error
		l.shape, err = c.Transform.Out(s.Shape)
		return err
	})
	if err == nil {
		err = l.checkLabel(&s)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.Source.Where(), err)
	}
	if l.shape.Count() > math.MaxInt32/l.n {
		return fmt.Errorf("a batch of %d samples of %v is larger than a blob may be (2^31 values): use a smaller batch_size", l.n, l.shape)
	}
	for range l.wanted(&s) - 1 {
		src, err := c.Source.Fork()
		if err != nil {
			return err
		}
		l.workers = append(l.workers, &worker{source: src})
	}
	return nil
}

// encodedWorkers is how many goroutines decode images if the Options do not say
// and there are as many processors. A core decodes some 200 photographs a
// second; more than four would take the cores that train.
const encodedWorkers = 4

// wanted returns how many goroutines read samples like s: for raw values one,
// which copies as fast as memory allows. More than there are samples to read
// ahead would be idle.
func (l *Loader) wanted(s *Sample) int {
	n := l.c.Workers
	switch {
	case n > 0:
	case s.Encoded:
		n = min(encodedWorkers, runtime.GOMAXPROCS(0))
	default:
		n = 1
	}
	return min(n, l.n*l.depth())
}

func (l *Loader) checkLabel(s *Sample) error {
	if l.c.Labels && !s.HasLabel {
		return errors.New("the sample has no label, and the layer has a label top: remove the top or add labels")
	}
	return nil
}

// checkSample reports a sample that differs in shape from the others.
func (l *Loader) checkSample(s *Sample) error {
	if err := l.checkLabel(s); err != nil {
		return err
	}
	switch shape, err := l.c.Transform.Out(s.Shape); {
	case err != nil:
		return err
	case shape != l.shape:
		return fmt.Errorf("the sample is %v after transformation, but the first one %v: resize them, or set crop_size", shape, l.shape)
	}
	return nil
}

// Shape returns the shape of a sample as Next delivers it.
func (l *Loader) Shape() Shape { return l.shape }

// LocalBatch returns the number of samples that Next delivers.
func (l *Loader) LocalBatch() int { return l.n }

// GlobalBatch returns the number of samples of the batches of all parts.
func (l *Loader) GlobalBatch() int { return l.c.Part.Global(l.c.BatchSize) }

// Next copies this part of the next global batch to data, LocalBatch times
// Shape.Count values, and its labels to labels, which may be nil. It waits
// if the batch is not decoded yet. Once it has returned an error, it returns the
// same error until SeekBatch.
func (l *Loader) Next(data, labels []float32) error {
	if l.closed {
		return ErrClosed
	}
	if l.err != nil {
		return l.err
	}
	if want := l.n * l.shape.Count(); len(data) != want || labels != nil && len(labels) != l.n {
		return fmt.Errorf("data: batch buffers of %d values and %d labels, the batch has %d and %d", len(data), len(labels), want, l.n)
	}
	if l.ahead == nil {
		l.ahead = l.startAhead(l.next)
	}
	b := l.ahead.wait()
	if b.err != nil {
		l.err = b.err
		l.stop()
		return l.err
	}
	copy(data, b.data)
	copy(labels, b.labels)
	l.ahead.free()
	l.next++
	l.counters.batches.Add(1)
	return nil
}

// SeekBatch positions the loader: the next call of Next delivers global batch k,
// counted from 0, as if the k before it had been read. It clears an earlier error.
func (l *Loader) SeekBatch(k int64) error {
	if l.closed {
		return ErrClosed
	}
	if k < 0 || k > math.MaxInt64/4/int64(l.GlobalBatch()) {
		return fmt.Errorf("data: invalid global batch %d: must not be negative", k)
	}
	if k == l.next && l.err == nil {
		return nil
	}
	l.stop()
	l.next, l.err = k, nil
	return nil
}

// Close stops prefetching and closes the source. It may be called again.
func (l *Loader) Close() error {
	if l.closed {
		return nil
	}
	l.closed = true
	l.stop()
	l.slots = nil
	return l.closeSources()
}

func (l *Loader) closeSources() error {
	var errs []error
	for _, w := range l.workers {
		errs = append(errs, w.source.Close())
	}
	return errors.Join(errs...)
}

// Buffered returns how many bytes the batches that are decoded ahead take.
func (l *Loader) Buffered() int64 {
	const float32Bytes = 4
	return int64(l.depth()) * int64(l.n) * int64(l.Shape().Count()+1) * float32Bytes
}

func (l *Loader) depth() int {
	switch {
	case l.c.Options.Prefetch > 0:
		return l.c.Options.Prefetch
	case l.c.Prefetch > 0:
		return l.c.Prefetch
	}
	return DefaultPrefetch
}

// stop stops reading ahead and waits for its goroutines.
func (l *Loader) stop() {
	if l.ahead == nil {
		return
	}
	l.ahead.stop()
	l.ahead = nil
	l.counters.queued.Store(0)
}

// load reads and transforms the samples of a piece. It keeps the number of the
// current one in at.
func (l *Loader) load(a *ahead, w *worker, p piece, at *int) error {
	first, _ := l.c.Part.Range(l.c.BatchSize)
	counter := p.batch*int64(l.GlobalBatch()) + int64(first) + l.skip
	n, size, s := w.source.Len(), l.shape.Count(), &w.sample
	for j := p.lo; j < p.hi; j++ {
		if a.stopped.Load() {
			return ErrClosed
		}
		*at = j
		i := counter + int64(j)
		s.Stored = 0
		err := w.source.Read(i/n, i%n, s)
		w.bytes += int64(s.Stored)
		if err == nil {
			err = l.checkSample(s)
		}
		if err == nil {
			err = l.c.Transform.Apply(p.slot.data[j*size:(j+1)*size], s, i)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", w.source.Where(), err)
		}
		p.slot.labels[j] = float32(s.Label)
	}
	return nil
}

var errUnreadable = errors.New("the file became unreadable while it was read")

// guard calls f and turns a memory fault in it into an error: the mapped file
// was truncated, or its disk failed, while it was read. Such an error is an
// errUnreadable and does not name the file.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if fault, ok := p.(interface{ Addr() uintptr }); ok && fault.Addr() >= 4096 { // else a nil pointer
			err = fmt.Errorf("%w: %v", errUnreadable, p)
		} else if p != nil {
			panic(p)
		}
	}()
	return f()
}
