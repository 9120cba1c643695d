package trace

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/scaffe/scaffe/internal/svg"
)

// SVGOptions say what SVG draws beside the iterations; the zero value is all of these, and nothing else.
type SVGOptions struct {
	// Ranks are those that are drawn; nil: all.
	Ranks []int
	// Length, unless 0, is how much time is drawn, from the begin of the first iteration on, however long the
	// iterations take: pictures of equal length can be compared.
	Length time.Duration
}

// SVG draws some iterations: ranks below each other, in each what the computing
// goroutine does, and below it what is in flight. The black line is the
// critical path. It serves for one or a few iterations.
func (t *Trace) SVG(s Span, o SVGOptions) ([]byte, error) {
	p := &picture{timeline: newTimeline(t), left: 120, width: 1080, options: o}
	for _, r := range o.Ranks {
		if !slices.ContainsFunc(t.Ranks, func(k Rank) bool { return k.Rank == r }) {
			return nil, fmt.Errorf("the trace has no rank %d: it has %s", r, svg.Count(len(t.Ranks), "rank"))
		}
	}
	var err error
	if p.begin, p.end, err = p.window(s); err != nil {
		return nil, err
	}
	if o.Length > 0 {
		p.end = p.begin + o.Length
	}
	for r := range t.Ranks {
		p.views = append(p.views, p.view(r).within(p.begin, p.end))
	}
	p.layout()
	p.head(s)
	p.grid()
	for r := range t.Ranks {
		if p.drawn(r) {
			p.rank(r)
		}
	}
	p.critical()
	p.legend()
	p.End()
	return []byte(p.String()), nil
}

// picture is a drawing under way.
type picture struct {
	svg.Drawing
	*timeline
	options     SVGOptions
	views       []view
	begin, end  time.Duration
	left, width float64
	top, bottom float64
	rowTop      [][]float64 // of every rank that is drawn the top of each row, then the end
	heights     [][]float64
	used        [classes]bool
}

func (p *picture) x(t time.Duration) float64 {
	return p.left + p.width*float64(t-p.begin)/float64(p.end-p.begin)
}

// drawn reports whether the rank at index r is.
func (p *picture) drawn(r int) bool {
	return p.options.Ranks == nil || slices.Contains(p.options.Ranks, p.t.Ranks[r].Rank)
}

// layout finds the rows' places: lanes of collectives are lower, and lower
// still where there are many.
func (p *picture) layout() {
	p.top = 96
	y := p.top
	for r := range p.views {
		if !p.drawn(r) {
			p.rowTop, p.heights = append(p.rowTop, nil), append(p.heights, nil)
			continue
		}
		rows := p.views[r].rows
		tops, heights := []float64{y}, []float64{24}
		y += 24
		for tr := compute + 1; tr < tracks; tr++ {
			if rows[tr] > 0 {
				y += 3
			}
			height := math.Min(11, 44/float64(max(rows[tr], 1)))
			for range rows[tr] {
				tops, heights = append(tops, y), append(heights, math.Max(height-1, 1))
				y += height
			}
		}
		p.rowTop, p.heights = append(p.rowTop, append(tops, y)), append(p.heights, heights)
		y += 18
	}
	p.bottom = y - 8
}

const svgStyle = `<style>
.card{fill:#fcfcfd;stroke:#dcdce3}.tick{stroke:#e6e7ed}.bound{stroke:#9a9dab;stroke-dasharray:3 3}.path{stroke:#1b1b1f;fill:none;stroke-width:2}.lane{fill:#f0f1f5}
text{font-family:Inter,"Segoe UI","Helvetica Neue",Arial,sans-serif;fill:#3d3f4b;font-size:12px}
.title{font-size:17px;font-weight:600;fill:#1b1b1f}.facts,.axis{fill:#686b7a}.axis{font-size:11px;text-anchor:middle}.rank{font-weight:600}.host{fill:#686b7a;font-size:11px}.in{fill:#fff;font-size:11px;text-anchor:middle}.low{fill:#fff;font-size:8px;text-anchor:middle}
.dark{fill:#5a1a20}
.k0{fill:#5b9bdc}.k1{fill:#2c66ad}.k2{fill:#8557c2}.k3{fill:#d42a3a}.k4{fill:#f0a0a6}.k5{fill:#d0a100}.k6{fill:#c0508e}.k7,.k8{fill:#8a8f96}.k10{fill:#e07f1f}.k11{fill:#16938a}.k12{fill:#8d9a3f}.k13{fill:#1b1b1f}.k14{fill:#a0764a}
@media (prefers-color-scheme:dark){
.card{fill:#17181d;stroke:#34363f}.tick{stroke:#2a2c35}.bound{stroke:#6d7186}.path{stroke:#f4f4f7}.lane{fill:#20222a}
text{fill:#c9cbd6}.title{fill:#f4f4f7}.facts,.axis,.host{fill:#9599a8}.in,.low,.dark{fill:#fff}.k4{fill:#8d4850}.k13{fill:#8a8f96}
}
</style>
`

// style is svgStyle, and what pictures with a GPU need more.
func (p *picture) style() string {
	for i := range p.views {
		if slices.ContainsFunc(p.views[i].items, func(it item) bool { return it.class == copied }) {
			return strings.Replace(svgStyle, "</style>", ".k15{fill:#5f7f2f}\n</style>", 1)
		}
	}
	return svgStyle
}

func (p *picture) head(s Span) {
	w, h := p.left+p.width+28, p.bottom+64
	title := p.t.title()
	p.Begin(w, h, title, p.style())
	p.Text("title", 28, 38, "%s", title)
	what := fmt.Sprintf("iterations %d to %d", s.First, s.End-1)
	switch {
	case s.End == math.MaxInt:
		what = fmt.Sprintf("iterations from %d on", s.First)
	case s.End == s.First+1:
		what = fmt.Sprintf("iteration %d", s.First)
	}
	if p.options.Length > 0 {
		what = fmt.Sprintf("from iteration %d on", s.First)
	}
	p.Text("facts", 28, 60, "%s, %s ms", what, svg.Num(float64(p.end-p.begin)/1e6))
}

// step returns a round distance of ticks, about so many over all.
func step(all time.Duration, ticks float64) time.Duration {
	least := float64(all) / ticks
	unit := math.Pow(10, math.Floor(math.Log10(least)))
	for _, m := range []float64{1, 2, 5} {
		if unit*m >= least {
			return max(time.Duration(unit*m), 1)
		}
	}
	return time.Duration(unit * 10)
}

func (p *picture) grid() {
	d := step(p.end-p.begin, 12)
	for t := time.Duration(0); t <= p.end-p.begin; t += d {
		x := p.x(p.begin + t)
		p.Line("tick", x, p.top-8, x, p.bottom)
		unit := ""
		if t == 0 {
			unit = " ms"
		}
		p.Text("axis", x, p.top-14, "%s%s", strconv.FormatFloat(float64(t)/1e6, 'g', 6, 64), unit)
	}
}

func (p *picture) rank(r int) {
	k, v, tops := &p.t.Ranks[r], &p.views[r], p.rowTop[r]
	p.Text("rank", 28, tops[0]+16, "rank %d", k.Rank)
	if k.Host != "" {
		p.Text("host", 28, tops[0]+32, "%s", cutText(k.Host, 13))
	}
	p.Rect("lane", p.left, tops[0], p.width, 24, 0)
	boxes := p.boxes(v)
	for _, b := range boxes {
		y, h := tops[b.row], p.heights[r][b.row]
		p.used[b.class] = true
		if b.w > 4 {
			b.w -= 0.7 // so that neighbors can be told apart
		}
		p.Rect(b.class.css(), b.x, y, b.w, h, 0)
		p.label(b, k, y, h)
	}
	for _, q := range v.periods {
		if q.begin > p.begin && q.begin < p.end {
			x := p.x(q.begin)
			p.Line("bound", x, tops[0]-6, x, tops[len(tops)-1]+4)
		}
	}
}

// css is the class in the style sheet.
func (c class) css() string { return fmt.Sprintf("k%d", c) }

// box is an item's place.
type box struct {
	x, w  float64
	class class
	row   int
	event int
}

// boxes returns what can be seen of a view: neighbors of one class that are
// too narrow to be told apart are one.
func (p *picture) boxes(v *view) []box {
	var out []box
	last := map[int]int{} // of each row
	for i := range v.items {
		it := &v.items[i]
		x, to := p.x(it.begin), p.x(it.end)
		if l, known := last[it.row]; known && out[l].class == it.class && to-x < 1 && x-(out[l].x+out[l].w) < 0.3 {
			if out[l].w < 3 {
				out[l].event = -1 // it has no single name
			}
			out[l].w = to - out[l].x
			continue
		}
		last[it.row] = len(out)
		out = append(out, box{x, math.Max(to-x, 0.2), it.class, it.row, it.event})
	}
	return out
}

// label writes a box's name into it where there is room.
func (p *picture) label(b box, k *Rank, y, h float64) {
	if b.event < 0 || h < 8 {
		return
	}
	e := &k.Events[b.event]
	style, em := "in", 6.6
	if h < 20 {
		style, em = "low", 4.8
	}
	name := e.Name
	if b.row == 0 && (name == "" || b.class == class(InExposed)) {
		name = strings.TrimSpace(b.class.short() + " " + name)
	}
	if b.class == class(InSkew) {
		style += " dark"
	}
	for _, words := range []string{name, b.class.short()} {
		if words != "" && em*float64(utf8.RuneCountInString(words))+6 < b.w {
			p.Text(style, b.x+b.w/2, y+h/2+em*0.58, "%s", words)
			return
		}
	}
}

// critical draws the critical path along the first rows of the ranks that are drawn.
func (p *picture) critical() {
	all := map[int32]bool{}
	for r := range p.views {
		for _, q := range p.views[r].periods {
			all[q.iter] = true
		}
	}
	var d strings.Builder
	from, begin := -1, 0.0
	for _, s := range p.path(all) { // backwards
		if s.end <= p.begin || s.begin >= p.end {
			continue
		}
		if !p.drawn(s.rank) {
			if from >= 0 {
				fmt.Fprintf(&d, "H%s", svg.Num(begin))
			}
			from = -1
			continue
		}
		switch y := p.rowTop[s.rank][0] + 26; {
		case from < 0:
			fmt.Fprintf(&d, "M%s %s", svg.Num(p.x(min(s.end, p.end))), svg.Num(y))
		case from != s.rank:
			fmt.Fprintf(&d, "H%sV%s", svg.Num(p.x(min(s.end, p.end))), svg.Num(y))
		}
		from, begin = s.rank, p.x(max(s.begin, p.begin))
	}
	if from >= 0 {
		fmt.Fprintf(&d, "H%s", svg.Num(begin))
	}
	if d.Len() > 0 {
		p.Add("<path class=\"path\" d=\"%s\"/>\n", d.String())
	}
}

func (p *picture) legend() {
	x, y := 28.0, p.bottom+28
	entry := func(w float64, draw func()) {
		if x+w > p.left+p.width {
			x, y = 28, y+20
		}
		draw()
		x += w
	}
	for c, used := range p.used {
		if name := classNames[c]; used {
			entry(34+6.3*float64(len(name)), func() {
				p.Rect(class(c).css(), x, y-10, 12, 12, 2)
				p.Text("facts", x+18, y, "%s", name)
			})
		}
	}
	entry(100, func() {
		p.Line("path", x, y-4, x+14, y-4)
		p.Text("facts", x+20, y, "critical path")
	})
}

// cutText shortens text to a number of characters.
func cutText(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
