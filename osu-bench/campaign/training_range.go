package campaign

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/svg"
)

// accuracyRange is where a scheme's settings have come to after so many iterations: the accuracy of the worst, their mean
// and the best, as in P3's Figure 11 (section 5.5).
type accuracyRange struct {
	Scheme            string
	Settings          int
	Iteration         int
	Worst, Mean, Best float64
}

var rangeColumns = []report.Column[accuracyRange]{
	{Name: "scheme", Left: true, Value: func(r accuracyRange) any { return r.Scheme }},
	{Name: "settings", Value: func(r accuracyRange) any { return r.Settings }},
	{Name: "iteration", Value: func(r accuracyRange) any { return r.Iteration }},
	{Name: "worst", Title: "accuracy: worst", Digits: 4, Value: func(r accuracyRange) any { return r.Worst }},
	{Name: "mean", Digits: 4, Value: func(r accuracyRange) any { return r.Mean }},
	{Name: "best", Digits: 4, Value: func(r accuracyRange) any { return r.Best }},
}

// schemesOf returns the schemes of rows, in the order in which they appear.
func schemesOf(rows []TrainingRow) (all []string) {
	for _, r := range rows {
		if !slices.Contains(all, r.Scheme) {
			all = append(all, r.Scheme)
		}
	}
	return all
}

// rangesOf returns the ranges of a scheme, one for each iteration that has a test.
func rangesOf(rows []TrainingRow, scheme string) (all []accuracyRange) {
	at := map[int][]float64{}
	for _, r := range rows {
		if r.Scheme != scheme {
			continue
		}
		accuracy := 1 - r.Error
		if math.IsNaN(accuracy) {
			accuracy = 0
		}
		at[r.Iteration] = append(at[r.Iteration], accuracy)
	}
	for i, v := range at {
		all = append(all, accuracyRange{scheme, len(v), i, slices.Min(v), stat.Mean(v, nil), slices.Max(v)})
	}
	slices.SortFunc(all, func(a, b accuracyRange) int { return a.Iteration - b.Iteration })
	return all
}

// ranges returns the last range of each scheme.
func ranges(rows []TrainingRow) (all []accuracyRange) {
	for _, s := range schemesOf(rows) {
		of := rangesOf(rows, s)
		all = append(all, of[len(of)-1])
	}
	return all
}

// drawRanges returns the picture: the accuracy from the worst to the best setting against iteration, a band for each
// scheme, with its mean.
func drawRanges(title string, rows []TrainingRow) string {
	const wide, high = 3 * panelWidth, 2 * panelHeight
	names := schemesOf(rows)
	end, low := 1, 1.0
	for _, r := range rows {
		end = max(end, r.Iteration)
		if r.Error >= 0 && r.Iteration > 0 {
			low = min(low, 1-r.Error)
		}
	}
	low = math.Floor(10*low) / 10
	if low >= 1 {
		low = 0.9
	}
	var d svg.Drawing
	d.Begin(leftMargin+wide+gapX, topMargin+high+gapY, title, colored(len(names), "path.band{stroke:none;fill-opacity:.25}"))
	d.Text("title", 20, 28, "%s", title)
	if len(rows) > 0 {
		d.Text("tick", 20, 44, "%s, %s, %d samples a rank in an iteration; bands: worst to best setting, lines: their mean", rows[0].Data, svg.Count(rows[0].Ranks, "rank"), rows[0].Batch)
	}
	atX := func(i int) float64 { return leftMargin + wide*float64(i)/float64(end) }
	atY := func(v float64) float64 { return topMargin + high*(1-(max(v, low)-low)/(1-low)) }
	for k := range 6 {
		v := low + (1-low)*float64(k)/5
		d.Line("grid", leftMargin, atY(v), leftMargin+wide, atY(v))
		d.Text("tick end", leftMargin-5, atY(v)+3, "%.3g", v)
	}
	for k := range 5 {
		d.Text("tick middle", atX(end*k/4), topMargin+high+13, "%d", end*k/4)
	}
	d.Rect("frame", leftMargin, topMargin, wide, high, 0)
	for i, name := range names {
		d.Rect(fmt.Sprintf("bar%d", i), 20+80*float64(i), 56, 12, 8, 2)
		d.Text("", 38+80*float64(i), 64, "%s", name)
		all := rangesOf(rows, name)
		outline, back, line, pen := "", "", "", "M"
		for _, r := range all {
			x := svg.Num(atX(r.Iteration))
			outline += fmt.Sprintf("%s%s %s", pen, x, svg.Num(atY(r.Best)))
			line += fmt.Sprintf("%s%s %s", pen, x, svg.Num(atY(r.Mean)))
			back = fmt.Sprintf("L%s %s", x, svg.Num(atY(r.Worst))) + back
			pen = "L"
		}
		d.Add("<path class=\"bar%d band\" d=\"%s%sZ\"/>\n<path class=\"line%d\" d=\"%s\"/>\n", i, outline, back, i, line)
	}
	d.End()
	return d.String()
}
