package tune_test

import (
	"testing"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/tune"
)

// The limit lies below everything measured, also where the machine was so busy
// while the model was calibrated that the model believes it to be far slower.
func TestLimitIsNeverAboveWhatWasMeasured(t *testing.T) {
	for _, layout := range []spec.Layout{spec.LayoutOf(spec.NodesOf(4, 1)), spec.LayoutOf(spec.NodesOf(4, 2)), spec.LayoutOf(spec.NodesOf(1, 2))} {
		r := measured(t)
		r.Layout = layout
		r.Selector.Model.Inter.Bandwidth, r.Selector.Model.Memory.Bandwidth = 1e8, 1e8
		for _, p := range r.Points {
			for i := range p.Specs {
				p.Specs[i].Best = p.Specs[i].Median * 0.9
			}
		}
		before := 0.0
		for _, p := range r.Points {
			limit, best := tune.Limit(r, p)
			if limit <= 0 || limit > best*(1+1e-9) {
				t.Errorf("%v: the limit of %d bytes is %g s, but %g s was measured", layout, p.Bytes, limit, best)
			}
			if limit < before {
				t.Errorf("%v: the limit of %d bytes is %g s, of fewer %g s", layout, p.Bytes, limit, before)
			}
			before = limit
		}
	}
}

// A model that knows a faster network than was seen is believed.
func TestLimitOfTheModel(t *testing.T) {
	r := measured(t)
	r.Selector.Model.Inter.Bandwidth = 1e12
	last := r.Points[len(r.Points)-1]
	if limit, _ := tune.Limit(r, last); limit != float64(last.Bytes)/1e12 {
		t.Errorf("the limit is %g s", limit)
	}
}
