package tune

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/schedule"
)

//go:embed report.html
var page string

var pageTemplate = template.Must(template.New("report").Parse(page))

// Report returns the page: one HTML file with everything in it.
func (r *Result) Report() ([]byte, error) {
	v, err := r.view()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = pageTemplate.Execute(&b, v)
	return b.Bytes(), err
}

// view is what the page shows.
type view struct {
	Title, Incomplete string
	Facts             [][2]string
	Map               template.HTML
	Charts            []chart
	Rows              []row
	Table             string
}

type chart struct {
	ID, Title, Text string
	SVG             template.HTML
}

type row struct{ Collective, Size, Spec, Time, Spread, Limit, Library string }

func (r *Result) view() (view, error) {
	t := r.Table()
	v := view{Title: "Tuning of " + r.Layout.String(), Table: t.String(), Map: template.HTML(r.winnerMap())}
	m := t.Made
	v.Facts = [][2]string{
		{"Host", m.Machine.Host},
		{"MPI", m.Machine.MPI},
		{"Layout", r.Layout.String()},
		{"Date", m.Date},
		{"Iterations", fmt.Sprintf("up to %d", m.Iterations)},
		{"Spread", m.Spread + " between the quartiles, the median of the winners'"},
		{"Buffers", fmt.Sprintf("%v, %v", r.Config.Buffers, r.Config.Type)},
		{"Model", r.Selector.From},
	}
	if m.Machine.GPU != "" {
		v.Facts = append(v.Facts, [2]string{"GPU", m.Machine.GPU})
	}
	if m.Version != "" {
		v.Facts = append(v.Facts, [2]string{"Version", m.Version})
	}
	if !r.Complete() {
		v.Incomplete = fmt.Sprintf("%d of %d points were measured within the budget.", len(r.Points), r.Jobs)
	}
	for _, collective := range r.Config.Collectives {
		points := r.of(collective)
		if len(points) == 0 {
			continue
		}
		charts, err := r.charts(collective, points)
		if err != nil {
			return v, err
		}
		v.Charts = append(v.Charts, charts...)
		for _, p := range points {
			v.Rows = append(v.Rows, r.row(collective, p))
		}
	}
	return v, nil
}

// charts returns those of a collective.
func (r *Result) charts(collective schedule.Collective, points []Point) ([]chart, error) {
	time, err := r.timeChart(collective, points)
	if err != nil {
		return nil, err
	}
	chains, err := r.chainChart(points)
	if err != nil {
		return nil, err
	}
	charts := []chart{{
		ID: collective.String(), Title: "Time of " + collective.String(),
		Text: "The last rank's time, the median of all executions; of each algorithm its best chunk. Dotted: the limit, what must pass " + r.bottleneck() + " over the best bandwidth that the model knows or that was measured.",
		SVG:  template.HTML(time),
	}}
	if chains != "" {
		charts = append(charts, chart{
			ID: collective.String() + "-chains", Title: "Chain sizes, " + collective.String(),
			Text: "Chains of that many ranks below a binomial tree (CB) or, dashed, a chain (CC): S-Caffe’s figure 11.",
			SVG:  template.HTML(chains),
		})
	}
	return charts, nil
}

func (r *Result) bottleneck() string {
	if r.Layout.Nodes > 1 {
		return "a node's port"
	}
	return "memory"
}

func (r *Result) row(collective schedule.Collective, p Point) row {
	best := p.Specs[0]
	out := row{
		Collective: collective.String(), Size: units.FormatBytes(p.Bytes), Spec: best.Spec,
		Time: Duration(seconds(best.Median)), Spread: fmt.Sprintf("%.0f %%", 100*best.Spread),
	}
	if t := r.limit(collective, p.Bytes); t > 0 {
		out.Limit = Duration(seconds(t))
	}
	if l := p.find(spec.Library); l != nil {
		out.Library = fmt.Sprintf("%s (%.2f ×)", Duration(seconds(l.Median)), l.Median/best.Median)
	}
	return out
}

func (p Point) find(spec string) *Measured {
	for i := range p.Specs {
		if p.Specs[i].Spec == spec {
			return &p.Specs[i]
		}
	}
	return nil
}

// shape returns a spec's text without its chunks.
func shape(spec string) string {
	s := parse(spec)
	for i := range s.Levels {
		s.Levels[i].Chunk = 0
	}
	return s.String()
}

// shapes returns all shapes that were measured: the library first, then those
// that won most often.
func (r *Result) shapes() []string {
	wins := map[string]int{}
	var names []string
	for _, p := range r.Points {
		for i, s := range p.Specs {
			name := shape(s.Spec)
			if _, seen := wins[name]; !seen {
				names = append(names, name)
				wins[name] = 0
			}
			if i == 0 {
				wins[name]++
			}
		}
	}
	slices.SortStableFunc(names, func(a, b string) int {
		if lib := spec.Library; (a == lib) != (b == lib) {
			if a == lib {
				return -1
			}
			return 1
		}
		if wins[a] != wins[b] {
			return wins[b] - wins[a]
		}
		return strings.Compare(a, b)
	})
	return names
}

// colors is how many the page has, the first of them for the library; what
// comes later is grey.
const colors = 8

// color returns the class of a shape.
func (r *Result) color(name string) string {
	if name == spec.Library {
		return "c0"
	}
	i := 1
	for _, other := range r.shapes() {
		switch {
		case other == name && i < colors:
			return fmt.Sprintf("c%d", i)
		case other != spec.Library:
			i++
		}
	}
	return "other"
}

// timeChart plots time against size, a line a shape.
func (r *Result) timeChart(collective schedule.Collective, points []Point) (string, error) {
	best := map[string]map[int]Measured{}
	var names []string
	for _, p := range points {
		for _, s := range p.Specs {
			name := shape(s.Spec)
			if best[name] == nil {
				best[name] = map[int]Measured{}
				names = append(names, name)
			}
			if old, has := best[name][p.Bytes]; !has || s.Median < old.Median {
				best[name][p.Bytes] = s
			}
		}
	}
	order := r.shapes()
	slices.SortFunc(names, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
	var lines []line
	for _, name := range names {
		if r.color(name) == "other" || len(best[name]) < 2 && len(points) > 2 {
			continue
		}
		l := line{name: name, class: r.color(name)}
		for _, p := range points {
			if m, has := best[name][p.Bytes]; has {
				l.points = append(l.points, xy{float64(p.Bytes), m.Median, fmt.Sprintf("%s of %s: %s by %s, spread %.0f %%", collective, units.FormatBytes(p.Bytes), Duration(seconds(m.Median)), m.Spec, 100*m.Spread)})
			}
		}
		lines = append(lines, l)
	}
	low := points[0].Specs[0].Median
	for _, p := range points {
		low = min(low, p.Specs[0].Median)
	}
	limit := line{name: "limit", class: "limit"}
	for _, p := range points {
		if t := r.limit(collective, p.Bytes); t > low/4 {
			limit.points = append(limit.points, xy{float64(p.Bytes), t, ""})
		}
	}
	return chartData{xLabel: "size of the buffer", yLabel: "time", x: sizeTicks(points), lines: append(lines, limit)}.svg()
}

// chainChart plots time against chain size, a line for every size and kind.
func (r *Result) chainChart(points []Point) (string, error) {
	var lines []line
	sizes := map[int]bool{}
	count := 0 // of message sizes
	for _, p := range points {
		before := len(lines)
		for kind, top := range []string{"binomial", "chain"} {
			l := line{name: units.FormatBytes(p.Bytes) + " C" + strings.ToUpper(top[:1]), class: fmt.Sprintf("c%d", 1+count%(colors-1))}
			for size := 2; size < r.Layout.Ranks; size *= 2 {
				if m := p.find(fmt.Sprintf("chain:%d/%s", size, top)); m != nil {
					sizes[size] = true
					l.points = append(l.points, xy{float64(size), m.Median, fmt.Sprintf("%s: %s by %s", units.FormatBytes(p.Bytes), Duration(seconds(m.Median)), m.Spec)})
				}
			}
			l.dashed = kind == 1
			if len(l.points) > 1 {
				lines = append(lines, l)
			}
		}
		if len(lines) > before {
			count++
		}
	}
	if len(lines) == 0 {
		return "", nil
	}
	var ticks []tick
	for size := range sizes {
		ticks = append(ticks, tick{float64(size), fmt.Sprint(size)})
	}
	slices.SortFunc(ticks, func(a, b tick) int { return int(a.at - b.at) })
	return chartData{xLabel: "chain size", yLabel: "time", x: ticks, lines: lines}.svg()
}

func sizeTicks(points []Point) (ticks []tick) {
	for _, p := range points {
		ticks = append(ticks, tick{float64(p.Bytes), units.FormatBytes(p.Bytes)})
	}
	return ticks
}
