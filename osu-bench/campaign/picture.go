package campaign

import (
	"fmt"
	"math"
	"slices"

	"github.com/scaffe/scaffe/internal/svg"
	"github.com/scaffe/scaffe/internal/units"
)

// series is a line of the picture.
type series struct {
	class, name string
	time        func(*cell) float64
}

var lines = []series{
	{"library", "MPI library", func(x *cell) float64 { return x.library.Time }},
	{"best", "its best algorithm", func(x *cell) float64 { return x.best.Time }},
	{"ucc", "UCC", func(x *cell) float64 { return x.ucc.Time }},
	{"unregistered", "scaffe, unregistered", func(x *cell) float64 { return x.unregistered.Time }},
	{"registered", "scaffe, registered", func(x *cell) float64 { return x.tuned.Time }},
}

const style = `<style>
.card{fill:#fff;stroke:#d8d8de}.frame{fill:none;stroke:#b8b8c0}.grid{stroke:#e8e8ee}.one{stroke:#1b1b1f;stroke-dasharray:2 3}
text{font:11px system-ui,sans-serif;fill:#1b1b1f}.title{font-size:14px;font-weight:600}.tick{font-size:9px;fill:#6a6a75}
.end{text-anchor:end}.middle{text-anchor:middle}
path{fill:none;stroke-width:1.8}.library{stroke:#8a8a95}.best{stroke:#8a8a95;stroke-dasharray:4 3}.ucc{stroke:#1a8f6c}
.registered{stroke:#4846c6}.unregistered{stroke:#e0565c}
</style>
`

// Lengths of the picture.
const (
	panelWidth, panelHeight = 250.0, 170.0
	leftMargin, topMargin   = 48.0, 100.0
	gapX, gapY              = 34.0, 44.0
	least                   = 0.5 // of the vertical axis
)

// draw returns the picture: a panel for each collective and layout, with time over the
// limit against size on logarithmic axes, and a line for each of what was measured.
func draw(cells []*cell, title string) string {
	var collectives []string
	var layouts []Layout
	most := 2.0
	for _, x := range cells {
		if x.limit == 0 || x.size == 0 {
			continue
		}
		if !slices.Contains(collectives, x.collective) {
			collectives = append(collectives, x.collective)
		}
		if !slices.Contains(layouts, x.layout) {
			layouts = append(layouts, x.layout)
		}
		for _, s := range lines {
			most = max(most, s.time(x)/x.limit)
		}
	}
	most = math.Pow(2, math.Ceil(math.Log2(most)))
	var d svg.Drawing
	width := max(leftMargin+float64(len(layouts))*(panelWidth+gapX), 720)
	height := topMargin + float64(len(collectives))*(panelHeight+gapY) + 10
	d.Begin(width, height, "Time over the limit against size", style)
	d.Text("title", 20, 28, "Time over the limit against size")
	d.Text("tick", 20, 44, "%s; limit: a plain C program on a node, the wire between nodes", title)
	legend(&d)
	for row, collective := range collectives {
		for column, l := range layouts {
			x, y := leftMargin+float64(column)*(panelWidth+gapX), topMargin+float64(row)*(panelHeight+gapY)
			panel(&d, cells, collective, l, x, y, most)
		}
	}
	d.End()
	return d.String()
}

func legend(d *svg.Drawing) {
	x := 20.0
	for _, s := range lines {
		d.Add("<path class=\"%s\" d=\"M%s 60h22\"/>\n", s.class, svg.Num(x))
		d.Text("", x+28, 64, "%s", s.name)
		x += 46 + 5.6*float64(len(s.name))
	}
}

// panel draws the cells of a collective and layout with its corner at x, y.
func panel(d *svg.Drawing, cells []*cell, collective string, l Layout, x, y, most float64) {
	var of []*cell
	for _, c := range cells {
		if c.collective == collective && c.layout == l && c.limit > 0 && c.size > 0 {
			of = append(of, c)
		}
	}
	if len(of) == 0 {
		return
	}
	first, last := math.Log2(float64(of[0].size)), math.Log2(float64(of[len(of)-1].size))
	atX := func(size int) float64 { return x + panelWidth*(math.Log2(float64(size))-first)/max(1, last-first) }
	atY := func(v float64) float64 {
		return y + panelHeight*(1-math.Log2(max(v, least)/least)/math.Log2(most/least))
	}
	d.Text("", x, y-7, "%s, %v", collective, l)
	for v := least; v <= most; v *= 2 {
		class := "grid"
		if v == 1 {
			class = "one"
		}
		d.Line(class, x, atY(v), x+panelWidth, atY(v))
		d.Text("tick end", x-5, atY(v)+3, "%g", v)
	}
	every := (len(of) + 5) / 6
	for i, c := range of {
		if i%every == 0 {
			d.Text("tick middle", atX(c.size), y+panelHeight+13, "%s", units.FormatBytes(c.size))
		}
	}
	d.Rect("frame", x, y, panelWidth, panelHeight, 0)
	for _, s := range lines {
		path, pen := "", "M"
		for _, c := range of {
			t := s.time(c)
			if t == 0 {
				pen = "M"
				continue
			}
			path += fmt.Sprintf("%s%s %s", pen, svg.Num(atX(c.size)), svg.Num(atY(t/c.limit)))
			pen = "L"
		}
		if path != "" {
			d.Add("<path class=\"%s\" d=\"%s\"/>\n", s.class, path)
		}
	}
}
