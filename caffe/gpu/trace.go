package gpu

import (
	"time"

	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/trace"
)

// rebase is after how long the GPU's clock is compared with the host's again: the two drift apart by some microseconds a second.
const rebase = 5 * time.Second

// tracer tells what the GPU does when, by its own events.
type tracer struct {
	to    trace.Sink
	base  *base
	spans []span // in the order in which they were begun on their streams, but not told
	spare []*cuda.Event
	mark  *cuda.Event // where the span begins that Span ends
	iter  int32       // of copies
}

// base is a moment that both clocks know.
type base struct {
	event *cuda.Event
	at    time.Time
	apart time.Duration // what lay between its recording and its passing
}

// span is what is on a stream between two events.
type span struct {
	what       trace.Event
	base       *base
	begin, end *cuda.Event
}

// Trace has a sink take what the GPU does from now on, on the clock of time.Now: what lies between Mark and Span, and
// copies. It is told by Told.
func (d *Device) Trace(to trace.Sink) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tracer = &tracer{to: to}
	d.compareClocks()
}

// How often the clocks are compared for a base, at most, and how close they are to come: a host whose thread is kept from its
// core meanwhile is tried again.
const (
	comparisons = 16
	nearEnough  = 50 * time.Microsecond
)

// compareClocks makes a base: the event, on a stream that has little to do, between whose recording and passing the least time
// lay.
func (d *Device) compareClocks() {
	t := d.tracer
	t.base = &base{}
	var waits int64 // not of an iteration's work
	for try := range comparisons {
		e, before := d.timer(), time.Now()
		if d.err == nil {
			d.fail(d.up.Record(e))
		}
		d.wait(e, &waits)
		apart := time.Since(before)
		switch {
		case d.err != nil:
			return
		case try == 0 || apart < t.base.apart:
			if try > 0 {
				t.spare = append(t.spare, t.base.event)
			}
			*t.base = base{e, before.Add(apart / 2), apart}
		default:
			t.spare = append(t.spare, e)
		}
		if t.base.apart <= nearEnough && try > 0 { // copies may have had to end first
			return
		}
	}
}

// timer returns an event for a span, nil where the GPU has failed.
func (d *Device) timer() *cuda.Event {
	if k := len(d.tracer.spare) - 1; k >= 0 {
		e := d.tracer.spare[k]
		d.tracer.spare = d.tracer.spare[:k]
		return e
	}
	if d.err != nil {
		return nil
	}
	e, err := d.gpu.NewTimer()
	if err != nil {
		d.fail(err)
		return nil
	}
	d.events = append(d.events, e)
	return e
}

// stamp returns an event that knows when a stream has come to what has been begun there; nil without a trace.
func (d *Device) stamp(s *cuda.Stream) *cuda.Event {
	if d.tracer == nil || d.err != nil {
		return nil
	}
	e := d.timer()
	if d.err == nil {
		d.fail(s.Record(e))
	}
	return e
}

// span adds what a stream does from begin, of stamp, up to here.
func (d *Device) span(s *cuda.Stream, begin *cuda.Event, what trace.Event) {
	if begin == nil {
		return
	}
	if end := d.stamp(s); end != nil {
		d.tracer.spans = append(d.tracer.spans, span{what, d.tracer.base, begin, end})
	}
}

// copied adds a copy.
func (d *Device) copied(s *cuda.Stream, begin *cuda.Event, kind trace.Kind, bytes int) {
	if begin != nil {
		d.span(s, begin, trace.Event{Kind: kind, Iter: d.tracer.iter, Bytes: int64(bytes)})
	}
}

// Mark begins a span of the passes, in place of one that was begun before. Without Trace it does nothing, nor does Span.
func (d *Device) Mark() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tracer == nil {
		return
	}
	if d.tracer.mark != nil {
		d.tracer.spare = append(d.tracer.spare, d.tracer.mark)
	}
	d.tracer.mark = d.stamp(d.stream)
}

// Span ends the span: that is what the GPU has done between, but for the times.
func (d *Device) Span(what trace.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tracer != nil && d.tracer.mark != nil {
		d.span(d.stream, d.tracer.mark, what)
		d.tracer.mark = nil
	}
}

// Told tells of what has been done so far, and says of which iteration copies are from now on. It waits for none of it.
func (d *Device) Told(iter int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tracer
	if t == nil {
		return
	}
	t.iter = int32(iter)
	kept := t.spans[:0]
	for _, s := range t.spans {
		if !d.tellSpan(s) {
			kept = append(kept, s)
		}
	}
	t.spans = kept
	if time.Since(t.base.at) > rebase {
		d.compareClocks()
	}
}

// tellSpan tells of a span that has ended, and reports whether it has.
func (d *Device) tellSpan(s span) bool {
	if d.err != nil {
		return true
	}
	passed, err := s.end.Passed()
	if err == nil && !passed {
		return false
	}
	var begin, end time.Duration
	if err == nil {
		begin, err = s.begin.Since(s.base.event)
	}
	if err == nil {
		end, err = s.end.Since(s.base.event)
	}
	if err != nil {
		d.fail(err)
		return true
	}
	s.what.Begin, s.what.End = s.base.at.Add(begin), s.base.at.Add(end)
	d.tracer.to.Add(s.what)
	d.tracer.spare = append(d.tracer.spare, s.begin, s.end)
	return true
}
