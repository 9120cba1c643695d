package train

import (
	"time"

	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/caffe/layers"
	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/trace"
)

// timeline says what the computing goroutine does, layer by layer, and how it
// waits. Collectives and the waits for them are package exchange's to tell; a
// bucket's goroutine tells of its updates itself.
type timeline struct {
	sink   trace.Sink
	layers []net.Layer
	reads  []bool      // by layer: it reads data
	gpu    *gpu.Device // nil unless it is to tell what it does, too

	began     time.Time // the run
	iteration time.Time
	iter      int32
	mark      time.Time // where the last thing told of ended
	open      int       // the layer whose forward runs, -1: none
	since     time.Time // of a test or a snapshot
}

func newTimeline(sink trace.Sink, ls []net.Layer) timeline {
	t := timeline{sink: sink, layers: ls, reads: make([]bool, len(ls)), open: -1}
	for i, l := range ls {
		_, t.reads[i] = l.Layer.(layers.Batcher)
	}
	return t
}

// tell adds an event from begin until now.
func (t *timeline) tell(kind trace.Kind, name string, begin time.Time) {
	t.sink.Add(trace.Event{Kind: kind, Name: name, Iter: t.iter, Begin: begin, End: time.Now()})
}

// start begins iteration iter.
func (t *timeline) start(iter int) {
	t.iter, t.iteration, t.open = int32(iter), time.Now(), -1
	if t.gpu != nil {
		t.gpu.Told(iter)
	}
}

// rests says that nothing is begun any more.
func (t *timeline) rests() {
	if t.gpu != nil {
		t.gpu.Told(int(t.iter))
	}
}

// end ends it.
func (t *timeline) end() {
	if !t.iteration.IsZero() {
		t.tell(trace.Iteration, "", t.iteration)
	}
}

// forwardEnds closes the forward pass of the layer that was last begun.
func (t *timeline) forwardEnds() {
	if t.open < 0 {
		return
	}
	kind := trace.Forward
	if t.reads[t.open] {
		kind = trace.Input
	}
	t.sink.Add(trace.Event{Kind: kind, Name: t.layers[t.open].Name, Iter: t.iter, Layer: int32(t.open), Begin: t.mark, End: time.Now()})
	if t.gpu != nil && kind == trace.Forward {
		t.gpu.Span(trace.Event{Kind: trace.OnForward, Name: t.layers[t.open].Name, Iter: t.iter})
	}
	t.open = -1
}

// readAhead says that a layer has read a batch ahead.
func (t *timeline) readAhead(layer int, began time.Time) {
	t.sink.Add(trace.Event{Kind: trace.Input, Name: t.layers[layer].Name, Iter: t.iter, Layer: int32(layer), Begin: began, End: time.Now()})
}

// forwardBegins says that nothing is waited for any more.
func (t *timeline) forwardBegins(layer int) {
	t.open, t.mark = layer, time.Now()
	t.marks()
}

// marks has the GPU tell what it does from now on.
func (t *timeline) marks() {
	if t.gpu != nil {
		t.gpu.Mark()
	}
}

// backwardBegins begins the backward pass, or continues it after something else
// was done.
func (t *timeline) backwardBegins() {
	t.mark = time.Now()
	t.marks()
}

// backwardEnds closes a layer's backward pass.
func (t *timeline) backwardEnds(layer int) {
	if l := &t.layers[layer]; l.Backward {
		t.sink.Add(trace.Event{Kind: trace.Backward, Name: l.Name, Iter: t.iter, Layer: int32(layer), Begin: t.mark, End: time.Now()})
		if t.gpu != nil {
			t.gpu.Span(trace.Event{Kind: trace.OnBackward, Name: l.Name, Iter: t.iter})
		}
	}
}

// waits begins a wait of the computing goroutine for the other ranks; what it
// returns ends it.
func (t *timeline) waits(what string) func() {
	begin := time.Now()
	return func() { t.tell(trace.Sync, what, begin) }
}

// pauses begins a test or a snapshot, between two iterations.
func (t *timeline) pauses() { t.since = time.Now() }

// resumes ends it.
func (t *timeline) resumes(kind trace.Kind, name string) { t.tell(kind, name, t.since) }
