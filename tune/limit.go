package tune

import (
	"math"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
)

// limit returns in seconds what no algorithm can beat for a collective of some
// bytes: what must pass a node's port, or its memory, over the best bandwidth that
// anything has shown. That is the model's or, on a machine that was busy when the
// model was calibrated, what the measurements of that size and of larger ones come
// to (smaller ones may have been served by a cache). So the limit is never above a
// measured time.
func (r *Result) limit(c schedule.Collective, bytes int) float64 {
	m := selection.Where(r.Selector.Model, r.Layout, r.Config.Buffers)
	for _, p := range r.Points {
		if p.Bytes < bytes {
			continue
		}
		of, err := schedule.ParseCollective(p.Collective)
		if err != nil {
			continue // of a file that a person has changed
		}
		for _, s := range p.Specs {
			m = r.raised(m, of, p.Bytes, s.best())
		}
	}
	return selection.Limit(c, bytes, r.Layout, m)
}

// raised returns m with bandwidths by which a collective can have taken the given
// seconds.
func (r *Result) raised(m sim.Model, c schedule.Collective, bytes int, took float64) sim.Model {
	if took <= 0 {
		return m
	}
	wire, memory := m, m
	wire.Memory.Bandwidth, memory.Inter.Bandwidth = math.Inf(1), math.Inf(1)
	if t := selection.Limit(c, bytes, r.Layout, wire); t > took {
		m.Inter.Bandwidth *= t / took
	}
	if t := selection.Limit(c, bytes, r.Layout, memory); t > took {
		m.Memory.Bandwidth *= t / took
	}
	return m
}

// best returns the shortest time that was measured.
func (s Measured) best() float64 {
	if s.Best > 0 {
		return s.Best
	}
	return s.Median // kept by a version that did not note it
}
