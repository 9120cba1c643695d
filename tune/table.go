package tune

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"time"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/schedule"
)

// Table returns the rules that the measurements come to.
//
// A size that was measured stands for those around it, up to the middle
// between it and the next one. The spec of the size before is kept where it is
// as good as the winner within the spread of the two, so that noise makes no
// lines. Where the MPI library wins, its line is followed by the best of the
// others, for the calls that the library cannot serve.
func (r *Result) Table() *selection.Table {
	m := r.Selector.Model
	t := &selection.Table{Name: r.Config.Out, Model: &m}
	t.Made = selection.Provenance{
		Machine: r.Config.Machine, Layout: r.Layout, Version: r.Config.Version, Date: r.Config.Now().UTC().Format(time.RFC3339),
	}
	var spreads []float64
	for _, p := range r.Points {
		for _, s := range p.Specs {
			t.Made.Iterations = max(t.Made.Iterations, s.Iterations)
		}
		spreads = append(spreads, p.Specs[0].Spread)
	}
	t.Made.Spread = fmt.Sprintf("%.1f%%", 100*median(spreads))
	for _, v := range r.Config.Collectives {
		points := r.of(v)
		if len(points) == 0 {
			continue
		}
		all := r.rules(v, points, true)
		own := r.rules(v, points, false)
		for _, rule := range all {
			if rule.Spec.IsLibrary() {
				t.Rules = append(t.Rules, rule)
			}
		}
		t.Rules = append(t.Rules, own...)
	}
	return t
}

// of returns the points of a collective, ordered by size.
func (r *Result) of(v schedule.Collective) (points []Point) {
	for _, p := range r.Points {
		if p.Collective == v.String() {
			points = append(points, p)
		}
	}
	slices.SortFunc(points, func(a, b Point) int { return a.Bytes - b.Bytes })
	return points
}

// rules makes rules of the best specs, the library's among them or not.
func (r *Result) rules(v schedule.Collective, points []Point, library bool) (rules []selection.Rule) {
	from, before := 0, ""
	for i, p := range points {
		best := winner(p, before, library)
		last := selection.NoLimit
		if i+1 < len(points) {
			last = (p.Bytes+points[i+1].Bytes)/2 - 1
		}
		note := fmt.Sprintf("%s at %s", Duration(seconds(best.Median)), units.FormatBytes(p.Bytes))
		if n := len(rules); n > 0 && best.Spec == before {
			rules[n-1].Bytes.To = last
			rules[n-1].Note += ", " + note
		} else {
			rules = append(rules, selection.Rule{
				Collective: v, Nodes: selection.Range{From: r.Layout.Nodes, To: r.Layout.Nodes}, PPN: selection.Range{From: r.Layout.PPN, To: r.Layout.PPN},
				Bytes: selection.Range{From: from, To: last}, AnyType: true, Buffers: r.Config.Buffers, Spec: parse(best.Spec), Note: note,
			})
		}
		if last == selection.NoLimit {
			break
		}
		from, before = last+1, best.Spec
	}
	return rules
}

// winner returns the fastest of a point, or what cannot be told from it within
// the spread of the two: the spec of the size before, or one of our own in place
// of the library's, which has neither deadlines nor diagnosis.
func winner(p Point, before string, library bool) Measured {
	best, own := Measured{Median: math.Inf(1)}, Measured{Median: math.Inf(1)}
	for _, s := range p.Specs {
		isLibrary := s.Spec == spec.Library
		if s.Median < best.Median && (library || !isLibrary) {
			best = s
		}
		if s.Median < own.Median && !isLibrary {
			own = s
		}
	}
	alike := func(s Measured) bool {
		return s.Median <= best.Median*(1+min(max(0.02, (s.Spread+best.Spread)/2), 0.04))
	}
	if best.Spec == spec.Library && alike(own) {
		best = own
	}
	for _, s := range p.Specs {
		if s.Spec == before && (library || s.Spec != spec.Library) && alike(s) {
			return s
		}
	}
	return best
}

// Write writes the table and, next to it, the report; then, where everything was
// measured, it removes the partial file. It returns the report's file.
func (r *Result) Write() (report string, err error) {
	report = r.Config.Out + ".html"
	page, err := r.Report()
	if err != nil {
		return "", err
	}
	if err := atomicfile.Write(nil, r.Config.Out, []byte(r.Table().String())); err != nil {
		return "", err
	}
	if err := atomicfile.Write(nil, report, page); err != nil {
		return "", err
	}
	if r.Complete() {
		if err := os.Remove(r.Config.Partial()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return report, nil
}
