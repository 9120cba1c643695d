package campaign

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/scaffe/scaffe/internal/svg"
)

// colors are those of systems, in the order in which they appear.
var colors = []string{"#8a8a95", "#e0565c", "#1a8f6c", "#4846c6", "#c98a1b", "#2b2b30", "#7aa6d8"}

// panelOf is what one part of a figure's picture shows.
type panelOf struct {
	title string
	rows  []FigureRow
}

// drawFigure returns a figure's picture: for each net and bandwidth a panel with a line for each system
// against nodes, or one panel with bars.
func drawFigure(f *figure, all []FigureRow) string {
	var names []string
	var panels []panelOf
	predicted, several := "", ""
	for _, r := range all {
		if r.Figure != f.name {
			continue
		}
		if !r.measured() {
			predicted = "; dashed: predicted"
		}
		if r.PerNode > 1 {
			several = "; squares: several ranks a node"
		}
		if !slices.Contains(names, r.System) {
			names = append(names, r.System)
		}
		title := fmt.Sprintf("%s, %g Gbit/s", r.Profile, r.Gbit)
		if r.Ratio > 0 {
			title = fmt.Sprintf("%s, ratio %g", r.Profile, r.Ratio)
		}
		switch f.value.against {
		case systems:
			title += ", " + nodesOf(r.Nodes, r.PerNode)
		case bandwidth:
			title = r.Profile + ", servers " + r.servers()
		}
		i := slices.IndexFunc(panels, func(p panelOf) bool { return p.title == title })
		if i < 0 {
			i = len(panels)
			panels = append(panels, panelOf{title: title})
		}
		panels[i].rows = append(panels[i].rows, r)
	}
	slices.SortStableFunc(panels, func(a, b panelOf) int { return strings.Compare(a.title, b.title) })
	columns := min(3, max(1, len(panels)))
	lines := (len(panels) + columns - 1) / columns
	var d svg.Drawing
	title := fmt.Sprintf("%s: %s", f.name, f.title)
	look := colored(len(names), ".predicted{stroke-dasharray:4 3}")
	d.Begin(max(leftMargin+float64(columns)*(panelWidth+gapX), 720), topMargin+float64(lines)*(panelHeight+gapY)+10, title, look)
	d.Text("title", 20, 28, "%s", title)
	d.Text("tick", 20, 44, "%s, in the lab at the paper's bandwidths%s%s", f.value.title, predicted, several)
	x := 20.0
	for i, s := range names {
		d.Rect(fmt.Sprintf("bar%d", i), x, 56, 12, 8, 2)
		d.Text("", x+18, 64, "%s", s)
		x += 40 + 6.5*float64(len(s))
	}
	for i, p := range panels {
		at := func(column, row int) (float64, float64) {
			return leftMargin + float64(column)*(panelWidth+gapX), topMargin + float64(row)*(panelHeight+gapY)
		}
		left, top := at(i%columns, i/columns)
		p.draw(&d, f.value, names, left, top)
	}
	d.End()
	return d.String()
}

// draw draws a panel with its corner at x, y.
func (p *panelOf) draw(d *svg.Drawing, v value, names []string, x, y float64) {
	most, least, last := 0.0, math.Inf(1), 1.0
	for i := range p.rows {
		r := &p.rows[i]
		_, high := v.of(r)
		at := v.against.of(r)
		most, least, last = max(most, high), min(least, at), max(last, at)
	}
	if v.against == nodes {
		most, least = max(most, last), 1
	}
	step, most := axisSteps(most)
	atY := func(v float64) float64 { return y + panelHeight*(1-v/most) }
	d.Text("", x, y-7, "%s", p.title)
	for t := 0.0; t <= most+step/2; t += step {
		d.Line("grid", x, atY(t), x+panelWidth, atY(t))
		d.Text("tick end", x-5, atY(t)+3, "%g", t)
	}
	d.Rect("frame", x, y, panelWidth, panelHeight, 0)
	if v.against == systems {
		p.bars(d, v, names, x, y, atY)
		return
	}
	width := math.Log2(last / least)
	if width == 0 {
		width = 1
	}
	atX := func(at float64) float64 { return x + panelWidth*math.Log2(at/least)/width }
	switch v.against {
	case nodes:
		for n := 1.0; n <= last; n *= 2 {
			d.Text("tick middle", atX(n), y+panelHeight+13, "%g", n)
			d.Line("one", atX(n), atY(n), atX(min(2*n, last)), atY(min(2*n, last))) // linear
		}
	default:
		for _, at := range p.ticks(v.against) {
			d.Text("tick middle", atX(at), y+panelHeight+13, "%s", v.against.text(at))
		}
	}
	for i, s := range names {
		path, pen := "", "M"
		var x0, y0 float64 // of the last that was measured
		for _, at := range p.ticks(v.against) {
			for k := range p.rows {
				r := &p.rows[k]
				if r.System != s || v.against.of(r) != at {
					continue
				}
				_, high := v.of(r)
				x1, y1 := atX(at), atY(high)
				switch {
				case !r.measured():
					if path != "" {
						d.Add("<path class=\"line%d predicted\" d=\"M%s %sL%s %s\"/>\n", i, svg.Num(x0), svg.Num(y0), svg.Num(x1), svg.Num(y1))
					}
				case r.PerNode > 1: // at as many ranks, apart from the line
					d.Rect(fmt.Sprintf("bar%d", i), x1-3, y1-3, 6, 6, 0)
				default:
					path += fmt.Sprintf("%s%s %s", pen, svg.Num(x1), svg.Num(y1))
					pen, x0, y0 = "L", x1, y1
				}
			}
		}
		if path != "" {
			d.Add("<path class=\"line%d\" d=\"%s\"/>\n", i, path)
		}
	}
}

// bars draws one for each system.
func (p *panelOf) bars(d *svg.Drawing, v value, names []string, x, y float64, atY func(float64) float64) {
	width := panelWidth / float64(len(names)+1)
	for i, s := range names {
		for k := range p.rows {
			if p.rows[k].System != s {
				continue
			}
			low, high := v.of(&p.rows[k])
			left := x + (float64(i)+0.6)*width
			d.Rect(fmt.Sprintf("bar%d", i), left, atY(low), width*0.8, y+panelHeight-atY(low), 0)
			if high > low { // the node with the most above that with the least
				d.Rect(fmt.Sprintf("bar%d", i), left+width*0.3, atY(high), width*0.2, atY(low)-atY(high), 0)
			}
			d.Text("tick middle", left+width*0.4, atY(high)-3, "%.3g", high)
		}
	}
}

// axisSteps returns how far apart the marks of an axis from 0 are, and where it ends, for values up to most.
func axisSteps(most float64) (step, end float64) {
	step = math.Pow(10, math.Floor(math.Log10(max(most, 1e-9))))
	if most/step < 3 {
		step /= 2
	}
	return step, step * math.Ceil(max(most, step)/step)
}

// of returns where a row stands on an axis: of nodes, at as many ranks.
func (a axis) of(r *FigureRow) float64 {
	switch a {
	case bandwidth:
		return r.Gbit
	case sliceSize:
		return float64(max(1, r.Slice))
	}
	return float64(max(1, r.Nodes*r.PerNode))
}

// text shows a value of an axis.
func (a axis) text(at float64) string {
	if a == sliceSize && at >= 1000 {
		return fmt.Sprintf("%gk", at/1000)
	}
	return fmt.Sprintf("%g", at)
}

// ticks returns where on an axis the rows stand, each place once, in order.
func (p *panelOf) ticks(a axis) (all []float64) {
	for i := range p.rows {
		all = append(all, a.of(&p.rows[i]))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// nodesOf says how many nodes, and ranks where each has several.
func nodesOf(nodes, perNode int) string {
	if perNode > 1 {
		return fmt.Sprintf("%s of %d ranks", svg.Count(nodes, "node"), perNode)
	}
	return svg.Count(nodes, "node")
}
