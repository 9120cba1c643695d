package tune

import (
	"fmt"
	"slices"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/svg"
	"github.com/scaffe/scaffe/internal/units"
)

// mapWidth is the map's width, in SVG's units.
const mapWidth = 960.0

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
	width := (mapWidth - left) / float64(max(len(sizes), 1))
	var d svg.Drawing
	used := map[string]bool{}
	height := top + cellHeight*float64(len(r.Config.Collectives))
	d.Add("<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"the fastest spec for every size and collective\">\n", mapWidth, height+4)
	for i, n := range sizes {
		d.Text("tick mid", left+width*(float64(i)+0.5), 16, "%s", units.FormatBytes(n))
	}
	for k, v := range r.Config.Collectives {
		y := top + cellHeight*float64(k)
		d.Text("axis end", left-12, y+cellHeight/2+4, "%v", v)
		for _, p := range r.of(v) {
			x := left + width*float64(slices.Index(sizes, p.Bytes))
			best := p.Specs[0]
			used[shape(best.Spec)] = true
			note, over := fmt.Sprintf("%v of %s: %s by %s", v, units.FormatBytes(p.Bytes), Duration(seconds(best.Median)), best.Spec), ""
			if l := p.find(spec.Library); l != nil && best.Spec != spec.Library {
				over = fmt.Sprintf("%.1f×", l.Median/best.Median)
				note += fmt.Sprintf(", %.2f times as fast as the library's own", l.Median/best.Median)
			}
			d.Add("<g><title>%s</title>", svg.Escape(note))
			d.Rect("cell "+r.color(shape(best.Spec)), x+1.5, y+1.5, width-3, cellHeight-3, 5)
			if width > 34 {
				d.Text("in mid", x+width/2, y+cellHeight/2+4, "%s", over)
			}
			d.Add("</g>\n")
		}
	}
	d.End()
	d.Add("<div class=\"legend\">\n")
	for _, name := range r.shapes() {
		if used[name] {
			d.Add("<span><i class=\"%s\"></i>%s</span>\n", r.color(name), svg.Escape(name))
		}
	}
	d.Add("</div>\n")
	return d.String()
}
