package tune

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/units"
)

// plot is a chart with two logarithmic axes, as SVG. Colours come from classes
// of the page, so that it is at home on light and dark.
type plot struct {
	xLabel, yLabel string
	x              []tick
	lines          []line
}

type tick struct {
	at   float64
	name string
}

type line struct {
	name, class string
	dashed      bool
	points      []xy
}

type xy struct {
	x, y float64
	note string
}

// Places in the picture, in SVG's units.
const (
	plotLeft, plotTop, plotRight, plotBottom = 74.0, 18.0, 740.0, 380.0
	plotWidth, plotHeight                    = 960.0, 432.0
	labelHeight                              = 17.0
)

// scale maps a logarithmic axis onto a line.
type scale struct{ from, to, low, high float64 }

func (s scale) at(v float64) float64 {
	if s.high == s.low {
		return (s.from + s.to) / 2
	}
	return s.from + (s.to-s.from)*(math.Log(v)-s.low)/(s.high-s.low)
}

func (p plot) svg() string {
	var out strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	sx := scale{plotLeft + 14, plotRight - 14, math.Log(p.x[0].at), math.Log(p.x[len(p.x)-1].at)}
	low, high := p.bounds()
	sy := scale{plotBottom, plotTop, math.Log(low), math.Log(high)}
	add(`<svg viewBox="0 0 %g %g" role="img" aria-label="%s against %s">`, plotWidth, plotHeight, p.yLabel, p.xLabel)
	for _, t := range timeTicks(low, high) {
		y := sy.at(t.at)
		add(`<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/><text class="tick" x="%g" y="%.1f" text-anchor="end">%s</text>`, plotLeft, plotRight, y, y, plotLeft-8, y+4, t.name)
	}
	every := (len(p.x) + 7) / 8
	for i, t := range p.x {
		x := sx.at(t.at)
		add(`<line class="grid faint" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/>`, x, x, plotTop, plotBottom)
		if i%every == 0 || i == len(p.x)-1 && i%every > every/2 {
			add(`<text class="tick" x="%.1f" y="%g" text-anchor="middle">%s</text>`, x, plotBottom+18, html.EscapeString(t.name))
		}
	}
	add(`<text class="axis" x="%g" y="%g" text-anchor="middle">%s</text>`, (plotLeft+plotRight)/2, plotBottom+42, html.EscapeString(p.xLabel))
	for _, l := range slices.Backward(p.lines) {
		p.line(add, l, sx, sy)
	}
	p.labels(add, sx, sy)
	add(`</svg>`)
	return out.String()
}

func (p plot) line(add func(string, ...any), l line, sx, sy scale) {
	class := l.class
	if l.dashed {
		class += " dashed"
	}
	var path []string
	for _, q := range l.points {
		path = append(path, fmt.Sprintf("%.1f,%.1f", sx.at(q.x), sy.at(q.y)))
	}
	if len(path) > 1 {
		add(`<polyline class="line %s" points="%s"/>`, class, strings.Join(path, " "))
	}
	for _, q := range l.points {
		if q.note != "" {
			add(`<circle class="dot %s" cx="%.1f" cy="%.1f" r="3.6"><title>%s</title></circle>`, l.class, sx.at(q.x), sy.at(q.y), html.EscapeString(q.note))
		}
	}
}

// labels names the lines at their ends, one below the other.
func (p plot) labels(add func(string, ...any), sx, sy scale) {
	type label struct {
		line
		from xy
		y    float64
	}
	var all []label
	for _, l := range p.lines {
		if n := len(l.points); n > 0 {
			end := l.points[n-1]
			at := xy{x: sx.at(end.x), y: sy.at(end.y)}
			all = append(all, label{l, at, at.y})
		}
	}
	slices.SortStableFunc(all, func(a, b label) int { return int(math.Copysign(1, a.y-b.y)) })
	for i := range all {
		if i > 0 {
			all[i].y = max(all[i].y, all[i-1].y+labelHeight)
		}
	}
	for i, floor := len(all)-1, plotBottom; i >= 0; i-- { // none below the axis
		all[i].y = min(all[i].y, floor)
		floor = all[i].y - labelHeight
	}
	for _, l := range all {
		x := plotRight + 20
		dash := ""
		if l.dashed {
			dash = " dashed"
		}
		add(`<polyline class="lead %s" points="%.1f,%.1f %g,%.1f %g,%.1f"/>`, l.class, l.from.x+5, l.from.y, x-12, l.y, x-4, l.y)
		add(`<line class="line %s%s" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/><text class="label" x="%g" y="%.1f">%s</text>`, l.class, dash, x-4, x+12, l.y, l.y, x+18, l.y+4, html.EscapeString(l.name))
	}
}

// bounds returns the lowest and highest y, with some air.
func (p plot) bounds() (low, high float64) {
	low = math.Inf(1)
	for _, l := range p.lines {
		for _, q := range l.points {
			low, high = min(low, q.y), max(high, q.y)
		}
	}
	return low / 1.25, high * 1.25
}

// timeTicks returns round times.
func timeTicks(low, high float64) (ticks []tick) {
	steps := []float64{1, 2, 5}
	if high/low > 1e3 {
		steps = []float64{1}
	}
	for exp := -9.0; exp < 4; exp++ {
		for _, s := range steps {
			if v := s * math.Pow(10, exp); low <= v && v <= high {
				ticks = append(ticks, tick{v, shortDuration(v)})
			}
		}
	}
	return ticks
}

func shortDuration(s float64) string {
	d := time.Duration(math.Round(s * 1e9))
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%g s", s)
	case d >= time.Millisecond:
		return fmt.Sprintf("%g ms", math.Round(s*1e6)/1e3)
	case d >= time.Microsecond:
		return fmt.Sprintf("%g µs", math.Round(s*1e9)/1e3)
	}
	return fmt.Sprintf("%d ns", d)
}

// winnerMap draws the fastest spec for every size and collective, and how much
// faster than the MPI library's own it is.
func (r *Result) winnerMap() string {
	var sizes []int
	for _, p := range r.Points {
		if !slices.Contains(sizes, p.Bytes) {
			sizes = append(sizes, p.Bytes)
		}
	}
	slices.Sort(sizes)
	const left, cellHeight, top = 84.0, 46.0, 26.0
	width := (plotWidth - left) / float64(max(len(sizes), 1))
	var out strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	used := map[string]bool{}
	height := top + cellHeight*float64(len(r.Config.Collectives))
	add(`<svg viewBox="0 0 %g %g" role="img" aria-label="the fastest spec for every size and collective">`, plotWidth, height+4)
	for i, n := range sizes {
		add(`<text class="tick" x="%.1f" y="16" text-anchor="middle">%s</text>`, left+width*(float64(i)+0.5), units.FormatBytes(n))
	}
	for k, v := range r.Config.Collectives {
		y := top + cellHeight*float64(k)
		add(`<text class="axis" x="%g" y="%.1f" text-anchor="end">%s</text>`, left-12, y+cellHeight/2+4, v)
		for _, p := range r.of(v) {
			x := left + width*float64(slices.Index(sizes, p.Bytes))
			best := p.Specs[0]
			used[shape(best.Spec)] = true
			note, over := fmt.Sprintf("%v of %s: %s by %s", v, units.FormatBytes(p.Bytes), Duration(seconds(best.Median)), best.Spec), ""
			if l := p.find(spec.Library); l != nil && best.Spec != spec.Library {
				over = fmt.Sprintf("%.1f×", l.Median/best.Median)
				note += fmt.Sprintf(", %.2f times as fast as the library's own", l.Median/best.Median)
			}
			add(`<g><title>%s</title><rect class="cell %s" x="%.1f" y="%.1f" width="%.1f" height="%g" rx="5"/>`, html.EscapeString(note), r.colour(shape(best.Spec)), x+1.5, y+1.5, width-3, cellHeight-3)
			if width > 34 {
				add(`<text class="in" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, x+width/2, y+cellHeight/2+4, over)
			}
			add(`</g>`)
		}
	}
	add(`</svg><div class="legend">`)
	for _, name := range r.shapes() {
		if used[name] {
			add(`<span><i class="%s"></i>%s</span>`, r.colour(name), html.EscapeString(name))
		}
	}
	add(`</div>`)
	return out.String()
}
