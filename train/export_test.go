package train

import (
	"time"

	"github.com/scaffe/scaffe/caffe/gpu"
)

// LateAfter takes the place of the clock that says who is late (Consistency.Drop); what it returns
// brings the other one back.
func LateAfter(clock func(time.Duration) <-chan time.Time) (restore func()) {
	lateAfter = clock
	return func() { lateAfter = nil }
}

// Begun is how many iterations a worker has begun that may be ahead of others (Consistency.SSP).
func (w *Worker) Begun() int { return int(w.stale.clock.Load()) }

// AfterBackward has f called after the backward pass of every layer, in passes that run apart.
func (w *Worker) AfterBackward(f func(iter, layer int)) {
	var p *passes
	if w.stale != nil {
		p = w.stale.passes
	} else {
		p = w.stragglers.passes
	}
	after := p.calls.after
	p.calls.after = func(pass, layer int) error {
		f(p.next-1, layer)
		if after == nil {
			return nil
		}
		return after(pass, layer)
	}
}

// HandOverEarly has gradients that are on their way from a GPU not be waited for: a mistake, for a test that has to find it.
func (w *Worker) HandOverEarly() { w.staging.await = func(...*gpu.Memory) {} }

// InPlace reports whether gradients are reduced in the GPUs' memory.
func (w *Worker) InPlace() bool { return w.inPlace != nil }

// WaitsInside is how often the host has waited for its GPU in iterations, but for the loss.
func (w *Worker) WaitsInside() int64 { return w.waits.inside }

// Mistakes are what may be left out where gradients are reduced in place, for tests that have to find it.
var Mistakes = []string{"gradients without their event", "pulls without that of the update", "passes that do not wait for updates"}

// Mistake has the worker make one.
func (w *Worker) Mistake(which string) {
	s := &w.inPlace.queues.spoil
	s.early, s.outdated, s.apart = which == Mistakes[0], which == Mistakes[1], which == Mistakes[2]
}

// OnPull has f called whenever parameters begin to be pulled.
func (w *Worker) OnPull(f func()) { w.inPlace.queues.spoil.pulled = f }
