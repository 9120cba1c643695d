package data

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// ahead reads ahead from one SeekBatch to the next. Its goroutines take pieces
// of batches in order, so that all of them work on the batch that is needed
// soonest. A batch is delivered when all its pieces are done and the batches
// before it have been delivered.
type ahead struct {
	l    *Loader
	step int // samples in a piece
	done sync.WaitGroup

	// stopped is set under mu; between samples it is read without the lock.
	stopped atomic.Bool

	mu    sync.Mutex
	room  sync.Cond // a worker may find a piece now
	ready sync.Cond // a batch is done
	batch int64     // of the piece that is taken next
	at    int       // its first sample
	first int64     // the batch that is given next
	last  int64     // the first batch that failed, after which none is decoded
}

// slot is one batch's buffers: batch k lies in slot k modulo the depth.
type slot struct {
	data, labels []float32

	// Under the mutex of ahead:
	left       int  // samples not decoded yet
	done       bool // all are, and the batch may be given
	begin, end time.Time
	err        error // of the sample errAt, the first in order that failed
	errAt      int
}

// worker is what one goroutine decodes with.
type worker struct {
	source Source
	sample Sample
	bytes  int64 // read for the piece in hand
}

// piece is the samples [lo, hi) of this part of a batch.
type piece struct {
	slot   *slot
	batch  int64
	lo, hi int
	// dead means that an earlier sample of the batch failed: nothing to do.
	dead bool
}

// startAhead starts reading ahead from global batch k on.
func (l *Loader) startAhead(k int64) *ahead {
	if l.slots == nil {
		for range l.depth() {
			l.slots = append(l.slots, &slot{data: make([]float32, l.n*l.shape.Count()), labels: make([]float32, l.n)})
		}
	}
	for _, s := range l.slots {
		s.done = false
	}
	a := &ahead{l: l, step: l.n, batch: k, first: k, last: math.MaxInt64}
	a.room.L, a.ready.L = &a.mu, &a.mu
	if w := len(l.workers); w > 1 {
		a.step = max(1, l.n/(4*w))
	}
	for _, w := range l.workers {
		a.done.Go(func() { a.work(w) })
	}
	return a
}

// stop stops reading ahead and waits for its goroutines.
func (a *ahead) stop() {
	a.mu.Lock()
	a.stopped.Store(true)
	a.mu.Unlock()
	a.room.Broadcast()
	a.done.Wait()
}

// slot returns where batch k lies.
func (a *ahead) slot(k int64) *slot { return a.l.slots[k%int64(len(a.l.slots))] }

// work decodes piece after piece.
func (a *ahead) work(w *worker) {
	for {
		p, ok := a.take()
		if !ok {
			return
		}
		begin := time.Now()
		w.bytes = 0
		at := p.lo
		var err error
		if !p.dead {
			err = guard(func() error { return a.l.load(a, w, p, &at) })
			if errors.Is(err, errUnreadable) {
				err = fmt.Errorf("%s: %w", w.source.Where(), err)
			}
		}
		a.finish(p, w, begin, at, err)
	}
}

// take waits for the next piece to decode. There is none after stop or a
// failed batch.
func (a *ahead) take() (p piece, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for !a.stopped.Load() && a.batch <= a.last && a.batch-a.first >= int64(len(a.l.slots)) {
		a.room.Wait()
	}
	if a.stopped.Load() || a.batch > a.last {
		return piece{}, false
	}
	s := a.slot(a.batch)
	if a.at == 0 {
		s.left, s.err, s.begin, s.end = a.l.n, nil, time.Time{}, time.Time{}
	}
	p = piece{slot: s, batch: a.batch, lo: a.at, hi: min(a.at+a.step, a.l.n), dead: s.err != nil}
	if a.at = p.hi; a.at == a.l.n {
		a.batch, a.at = a.batch+1, 0
	}
	return p, true
}

// finish notes that a piece is done or, with err, that its sample at failed.
func (a *ahead) finish(p piece, w *worker, begin time.Time, at int, err error) {
	s, n, end := p.slot, &a.l.counters, time.Now()
	n.decode.Add(int64(end.Sub(begin)))
	n.bytes.Add(w.bytes)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		// Pieces are taken in order, so all before this one are in hand and
		// the first sample that fails will be known.
		if s.err == nil || at < s.errAt {
			s.err, s.errAt = err, at
		}
		a.last = min(a.last, p.batch)
		a.room.Broadcast()
	}
	if s.begin.IsZero() || begin.Before(s.begin) {
		s.begin = begin
	}
	if end.After(s.end) {
		s.end = end
	}
	if s.left -= p.hi - p.lo; s.left > 0 {
		return
	}
	if s.err == nil {
		n.decoded.Add(1)
		if f := a.l.c.OnBatch; f != nil {
			begin, end := s.begin, s.end
			a.mu.Unlock()
			f(p.batch, begin, end)
			a.mu.Lock()
		}
	}
	s.done = true
	n.queued.Add(1)
	a.ready.Signal()
}

// wait returns the next batch when it is decoded, noting how long that took.
func (a *ahead) wait() *slot {
	n := &a.l.counters
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.slot(a.first)
	n.found.Add(n.queued.Load())
	if !s.done {
		start := time.Now()
		for !s.done {
			a.ready.Wait()
		}
		n.waits.Add(1)
		n.starved.Add(int64(time.Since(start)))
	}
	n.queued.Add(-1)
	return s
}

// free returns the buffers of the batch that wait returned.
func (a *ahead) free() {
	a.mu.Lock()
	a.slot(a.first).done = false
	a.first++
	a.mu.Unlock()
	a.room.Broadcast()
}
