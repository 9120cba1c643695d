package replay

import (
	"slices"
	"sync"
	"time"

	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/kernels/factors"
	"github.com/scaffe/scaffe/replay/workload"
	"github.com/scaffe/scaffe/syncer/sfb"
)

// factored is a layer whose factors travel. The product that rebuilds its gradient is a
// wait, and with a checker a product too.
type factored struct {
	r       *rank
	layer   int
	product time.Duration  // of all ranks' factors, in the profile's time
	iter    int            // of the factors
	filled  *factors.Stack // where this rank's part has been written
}

// factor makes a layer of a plan one whose factors travel.
func (r *rank) factor(p *plan, layer int) {
	l := &r.c.Profile.Layers[layer]
	f := &factored{r: r, layer: layer}
	p.backward[layer], f.product = rebuilding(l, len(r.team.Members()))
	p.factored = append(p.factored, f)
	m := matrixOf(l, &p.layers[layer], r.c.Profile.K(), len(r.team.Members()))
	m.Put, m.Rebuild = f.put, f.rebuild
	p.layers[layer].Factors = m
}

// rebuilt returns how much longer this rank computes because it rebuilds the gradients of
// layers that it updates, less what all ranks leave out.
func (r *rank) rebuilt(p *plan, x *exchange.Exchange) (more time.Duration) {
	own := map[int]bool{}
	for _, s := range x.Own() {
		for _, l := range s.Bucket.Layers {
			own[l] = true
		}
	}
	for _, f := range p.factored {
		more += p.backward[f.layer] - r.c.Profile.Layers[f.layer].Backward
		if own[f.layer] {
			more += f.product
		}
	}
	return more
}

// matrixOf returns the matrix of a placed layer with factors, of which each of so many ranks
// has k rows.
func matrixOf(l *workload.Layer, placed *exchange.Layer, k, ranks int) *sfb.Matrix {
	m := &sfb.Matrix{Name: l.Name, Rows: slices.Repeat([]int{k}, ranks), Passes: 1, Weights: placed.Params[0]}
	m.Shape, _ = shape(l)
	if len(placed.Params) > 1 {
		m.Bias = placed.Params[1]
	}
	return m
}

// put writes this rank's factors: once, as gradients are, unless they are checked.
func (f *factored) put(s *factors.Stack, stacked []float32, part, pass int) {
	f.iter = f.r.next - 1
	switch {
	case f.r.check != nil:
		f.r.check.put(f.layer, f.iter, s, stacked, part, pass)
	case f.filled != s:
		off, n := s.Part(part)
		for i := range n {
			stacked[off+i] = 1
		}
		f.filled = s
	}
}

// rebuild waits as long as the product takes.
func (f *factored) rebuild(s *factors.Stack, stacked, weights, bias []float32) error {
	r := f.r
	if err := r.multiply(time.Duration(float64(f.product) * r.scale * r.slower(f.iter))); err != nil {
		return err
	}
	if r.check == nil {
		return nil
	}
	return s.Rebuild(stacked, weights, bias)
}

// multiply takes the processor for so long. Products come one after another.
func (r *rank) multiply(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	r.multiplying.Lock()
	defer r.multiplying.Unlock()
	return r.multiplyWait.until(r.processor.take(time.Now(), d))
}

// reach waits until the computation that is scheduled has ended: products that came in
// between have put it off.
func (r *rank) reach() error {
	for {
		end := r.processor.ends(r.from, r.at)
		if err := r.wait.until(end); err != nil {
			return err
		}
		if r.processor.ends(r.from, r.at).Equal(end) { // none came while it waited
			r.resume(end)
			return nil
		}
	}
}

// resume lets the schedule of computation go on from t.
func (r *rank) resume(t time.Time) {
	r.at, r.from = t, t
	r.processor.passed(t)
}

// processor is what computation and products take turns on: a product has it as
// soon as the factors are there, and computation goes on after it.
type processor struct {
	mu    sync.Mutex
	turns []turn // of products, one after another, that computation has not come past
}

// turn is the time of a product.
type turn struct{ begin, end time.Time }

// take gives the processor to a product from now on, or from the end of the one before, and
// returns when it ends.
func (p *processor) take(now time.Time, d time.Duration) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.turns); n > 0 && p.turns[n-1].end.After(now) {
		now = p.turns[n-1].end
	}
	p.turns = append(p.turns, turn{now, now.Add(d)})
	return now.Add(d)
}

// ends returns when computation ends that begins at from and would last until to without the
// products so far.
func (p *processor) ends(from, to time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.turns {
		switch {
		case !to.After(from): // there is nothing to compute
			return to
		case !t.end.After(from):
		case !t.begin.Before(to):
			return to
		case t.begin.After(from):
			to = to.Add(t.end.Sub(t.begin))
		default: // it is under way
			to = to.Add(t.end.Sub(from))
		}
	}
	return to
}

// passed forgets products that ended before t.
func (p *processor) passed(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turns = slices.DeleteFunc(p.turns, func(x turn) bool { return !x.end.After(t) })
}
