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
