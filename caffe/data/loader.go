package data

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultPrefetch is how many batches are decoded ahead where neither the net
// nor the Options say: Caffe's.
const DefaultPrefetch = 4

// ErrClosed is returned by a Loader after Close.
var ErrClosed = errors.New("data: the loader is closed")

// Config is what a Loader loads.
type Config struct {
	// Source is read from and, at Close, closed.
	Source Source
	// Transform is done to each sample.
	Transform *Transformer
	// BatchSize is the layer's batch_size; Part says what it means.
	BatchSize int
	// RandSkip, where positive, starts the data set at a sample below it, drawn
	// from the seed.
	RandSkip int
	// Labels says that samples without a label are an error.
	Labels bool
	// Prefetch is how many batches are decoded ahead; Options.Prefetch, where
	// set, overrides it. 0 means DefaultPrefetch.
	Prefetch int
	Options
}

// Loader gives this part's samples of each global batch in turn. One
// goroutine, started by the first Next, decodes a bounded number of batches
// ahead into buffers that are used again.
//
// Next, SeekBatch and Close are for one goroutine; Stats is for any.
type Loader struct {
	c     Config
	shape Shape // of a transformed sample
	n     int   // samples of this part in a batch
	skip  int64
	next  int64 // the global batch that Next gives

	run    *run // the prefetching, nil where it is not running
	slots  []*slot
	err    error // what ended the loader
	closed bool

	read, waits, starved, queued atomic.Int64
}

// slot is one batch's buffers.
type slot struct {
	data, labels []float32
	err          error
}

// run is the prefetching from one SeekBatch to the next.
type run struct {
	free, ready chan *slot
	quit        chan struct{}
	done        sync.WaitGroup
	sample      Sample
}

// NewLoader checks the configuration and reads the first sample, whose
// transformed shape all samples must have. It closes the source where it
// fails.
func NewLoader(c Config) (*Loader, error) {
	l := &Loader{c: c}
	if err := l.init(); err != nil {
		return nil, errors.Join(err, c.Source.Close())
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
	return nil
}

func (l *Loader) checkLabel(s *Sample) error {
	if l.c.Labels && !s.HasLabel {
		return errors.New("the sample has no label, and the layer has a label top: remove the top or add labels")
	}
	return nil
}

// checkSample reports a sample that does not fit among the others.
func (l *Loader) checkSample(s *Sample) error {
	if err := l.checkLabel(s); err != nil {
		return err
	}
	switch shape, err := l.c.Transform.Out(s.Shape); {
	case err != nil:
		return err
	case shape != l.shape:
		return fmt.Errorf("the sample is %v after transformation, the first one %v: all must be alike, so resize them or use crop_size", shape, l.shape)
	}
	return nil
}

// Shape returns the shape of a sample as Next gives it.
func (l *Loader) Shape() Shape { return l.shape }

// LocalBatch returns the number of samples that Next gives.
func (l *Loader) LocalBatch() int { return l.n }

// GlobalBatch returns the number of samples of the batches of all parts.
func (l *Loader) GlobalBatch() int { return l.c.Part.Global(l.c.BatchSize) }

// Next copies this part of the next global batch to data, LocalBatch times
// Shape.Count values, and its labels to labels, which may be nil. It waits
// where the batch is not decoded yet. An error is given again by every later
// Next, until SeekBatch.
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
	if l.run == nil {
		l.start()
	}
	b := l.take()
	if b.err != nil {
		l.stop()
		l.err = b.err
		return l.err
	}
	copy(data, b.data)
	copy(labels, b.labels)
	l.run.free <- b
	l.next++
	l.read.Add(1)
	return nil
}

// take waits for the next decoded batch, noting how long it took.
func (l *Loader) take() *slot {
	select {
	case b := <-l.run.ready:
		l.queued.Add(-1)
		return b
	default:
	}
	start := time.Now()
	b := <-l.run.ready
	l.queued.Add(-1)
	l.waits.Add(1)
	l.starved.Add(int64(time.Since(start)))
	return b
}

// SeekBatch positions the loader: the next Next gives global batch k, counted from
// 0, as if the k before it had been read. It clears an earlier error.
func (l *Loader) SeekBatch(k int64) error {
	if l.closed {
		return ErrClosed
	}
	if k < 0 || k > math.MaxInt64/4/int64(l.GlobalBatch()) {
		return fmt.Errorf("data: there is no global batch %d", k)
	}
	if k == l.next && l.err == nil {
		return nil
	}
	l.stop()
	l.next, l.err = k, nil
	return nil
}

// Close ends the prefetching and closes the source. It may be called again.
func (l *Loader) Close() error {
	if l.closed {
		return nil
	}
	l.closed = true
	l.stop()
	l.slots = nil
	return l.c.Source.Close()
}

// Stats says how well a loader kept up.
type Stats struct {
	Batches int64         // given by Next
	Waits   int64         // how many of them were not decoded in time
	Starved time.Duration // how long Next waited for them
	Queued  int           // batches decoded and waiting now
	Depth   int           // how many may wait
}

// Stats returns the loader's counts so far.
func (l *Loader) Stats() Stats {
	return Stats{
		Batches: l.read.Load(),
		Waits:   l.waits.Load(),
		Starved: time.Duration(l.starved.Load()),
		Queued:  int(l.queued.Load()),
		Depth:   l.depth(),
	}
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

// start starts the prefetching at the next batch.
func (l *Loader) start() {
	if l.slots == nil {
		for range l.depth() {
			l.slots = append(l.slots, &slot{data: make([]float32, l.n*l.shape.Count()), labels: make([]float32, l.n)})
		}
	}
	r := &run{
		free:  make(chan *slot, len(l.slots)),
		ready: make(chan *slot, len(l.slots)),
		quit:  make(chan struct{}),
	}
	for _, b := range l.slots {
		b.err = nil
		r.free <- b
	}
	l.run = r
	l.queued.Store(0)
	r.done.Add(1)
	go l.prefetch(r, l.next)
}

// stop ends the prefetching and waits for its goroutine.
func (l *Loader) stop() {
	if l.run == nil {
		return
	}
	close(l.run.quit)
	l.run.done.Wait()
	l.run = nil
	l.queued.Store(0)
}

// prefetch decodes batches from global batch k on, until quit or an error,
// which it delivers in its batch's place.
func (l *Loader) prefetch(r *run, k int64) {
	defer r.done.Done()
	for ; ; k++ {
		select {
		case <-r.quit:
			return
		case b := <-r.free:
			b.err = guard(func() error { return l.load(r, b, k) })
			l.queued.Add(1)
			r.ready <- b // has room for every slot
			if b.err != nil {
				return
			}
		}
	}
}

// load reads and transforms this part of global batch k.
func (l *Loader) load(r *run, b *slot, k int64) error {
	global := int64(l.GlobalBatch())
	lo, hi := l.c.Part.Range(l.c.BatchSize)
	n, size := l.c.Source.Len(), l.shape.Count()
	s := &r.sample
	for j := lo; j < hi; j++ {
		select {
		case <-r.quit:
			return ErrClosed
		default:
		}
		at := k*global + int64(j) + l.skip
		err := l.c.Source.Read(at/n, at%n, s)
		if err == nil {
			err = l.checkSample(s)
		}
		if err == nil {
			err = l.c.Transform.Apply(b.data[(j-lo)*size:(j-lo+1)*size], s, at)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", l.c.Source.Where(), err)
		}
		b.labels[j-lo] = float32(s.Label)
	}
	return nil
}

// guard calls f and makes an error of a memory fault in it: the mapped file
// was cut, or its disk failed, while it was read.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if fault, ok := p.(interface{ Addr() uintptr }); ok && fault.Addr() >= 4096 { // else a nil pointer
			err = fmt.Errorf("the file became unreadable while it was read: %v", p)
		} else if p != nil {
			panic(p)
		}
	}()
	return f()
}
