package tune

import (
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/scaffe/scaffe/collectives/spec"
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
	var out strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	used := map[string]bool{}
	height := top + cellHeight*float64(len(r.Config.Collectives))
	add(`<svg viewBox="0 0 %g %g" role="img" aria-label="the fastest spec for every size and collective">`, mapWidth, height+4)
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
			add(`<g><title>%s</title><rect class="cell %s" x="%.1f" y="%.1f" width="%.1f" height="%g" rx="5"/>`, html.EscapeString(note), r.color(shape(best.Spec)), x+1.5, y+1.5, width-3, cellHeight-3)
			if width > 34 {
				add(`<text class="in" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, x+width/2, y+cellHeight/2+4, over)
			}
			add(`</g>`)
		}
	}
	add(`</svg><div class="legend">`)
	for _, name := range r.shapes() {
		if used[name] {
			add(`<span><i class="%s"></i>%s</span>`, r.color(name), html.EscapeString(name))
		}
	}
	add(`</div>`)
	return out.String()
}
