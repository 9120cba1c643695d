package campaign

import (
	"fmt"
	"math"
	"strings"

	"github.com/scaffe/scaffe/internal/svg"
)

// drawTraining returns the picture of curves: the loss of training and the test error against iteration, the
// vertical axes logarithmic.
func drawTraining(title string, rows []TrainingRow) string {
	runs := curves(rows)
	const wide = 2 * panelWidth
	var d svg.Drawing
	d.Begin(leftMargin+2*(wide+gapX), topMargin+panelHeight*1.6+gapY, title, colored(len(runs), ""))
	d.Text("title", 20, 28, "%s", title)
	if len(rows) > 0 {
		d.Text("tick", 20, 44, "%s, %d samples a rank in an iteration; logarithmic, 0 lies on the axis", rows[0].Data, rows[0].Batch)
	}
	x := 20.0
	for i, run := range runs {
		name := fmt.Sprintf("%s, %s", run[0].Scheme, svg.Count(run[0].Ranks, "rank"))
		d.Rect(fmt.Sprintf("bar%d", i), x, 56, 12, 8, 2)
		d.Text("", x+18, 64, "%s", name)
		x += 40 + 6.5*float64(len(name))
	}
	for i, p := range []struct {
		title string
		of    func(r TrainingRow) float64
	}{
		{"loss of training", func(r TrainingRow) float64 { return r.Loss }},
		{"test error", func(r TrainingRow) float64 { return r.Error }},
	} {
		drawCurves(&d, p.title, runs, p.of, leftMargin+float64(i)*(wide+gapX), topMargin, wide, 1.6*panelHeight)
	}
	d.End()
	return d.String()
}

// colored is the style sheet with classes for n lines and bars, and more.
func colored(n int, more string) string {
	var b strings.Builder
	for i := range n {
		c := colors[i%len(colors)]
		fmt.Fprintf(&b, ".line%d{stroke:%s}.bar%d{fill:%s}", i, c, i, c)
	}
	return strings.Replace(style, "</style>", b.String()+more+"\n</style>", 1)
}

// drawCurves draws one value of the runs in a panel with its corner at x, y.
func drawCurves(d *svg.Drawing, title string, runs [][]TrainingRow, of func(r TrainingRow) float64, x, y, width, height float64) {
	low, high, iterations := math.Inf(1), 0.0, 1
	for _, run := range runs {
		for _, r := range run {
			if v := of(r); v > 0 {
				low, high = min(low, v), max(high, v)
			}
			iterations = max(iterations, r.Iteration)
		}
	}
	if high == 0 {
		low, high = 1, 1
	}
	bottom, top := math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high)*1.0000001))
	if top <= bottom {
		top = 10 * bottom
	}
	atX := func(i int) float64 { return x + width*float64(i)/float64(iterations) }
	atY := func(v float64) float64 {
		return y + height*(1-math.Log(max(v, bottom)/bottom)/math.Log(top/bottom))
	}
	d.Text("", x, y-7, "%s", title)
	for decade := bottom; decade < top*1.5; decade *= 10 {
		for _, k := range []float64{1, 2, 5} {
			if v := k * decade; v <= top*1.0001 {
				d.Line("grid", x, atY(v), x+width, atY(v))
				d.Text("tick end", x-5, atY(v)+3, "%.3g", v)
			}
		}
	}
	for i := range 5 {
		n := iterations * i / 4
		d.Text("tick middle", atX(n), y+height+13, "%d", n)
	}
	d.Rect("frame", x, y, width, height, 0)
	for i, run := range runs {
		path, pen := "", "M"
		for _, r := range run {
			v := of(r)
			if math.IsNaN(v) {
				pen = "M"
				continue
			}
			path += fmt.Sprintf("%s%s %s", pen, svg.Num(atX(r.Iteration)), svg.Num(atY(v)))
			pen = "L"
		}
		if path != "" {
			d.Add("<path class=\"line%d\" d=\"%s\"/>\n", i, path)
		}
	}
}
