package draw

import (
	"errors"
	"fmt"

	"github.com/scaffe/scaffe/internal/svg"
	"github.com/scaffe/scaffe/schedule"
)

// Options of a picture; the zero value is good.
type Options struct {
	// Title stands above the picture.
	Title string
	// Root is the rank whose line is the topmost; the others follow in the
	// order of their relative ranks, (rank-root+size)%size.
	Root int
	// Group, unless 0, is how many consecutive lines belong together: the
	// lowest level's group size.
	Group int
}

// SVG returns the picture of all, one schedule per rank in the order of ranks.
// Schedules that do not match or that get stuck are an error.
func SVG(all []*schedule.Schedule, o Options) ([]byte, error) {
	if len(all) == 0 {
		return nil, errors.New("draw: no schedules")
	}
	if o.Root < 0 || o.Root >= len(all) || o.Group < 0 {
		return nil, fmt.Errorf("draw: root %d of %d ranks, groups of %d: no such picture", o.Root, len(all), o.Group)
	}
	list, chunks, err := messages(all)
	if err != nil {
		return nil, fmt.Errorf("draw: %w", err)
	}
	p := newPicture(all, list, chunks, o)
	p.head()
	p.bands()
	p.grid()
	if len(list) > 0 {
		p.strokes()
		p.load()
		p.legend()
	}
	p.End()
	return []byte(p.String()), nil
}

// picture is the drawing under way. Lengths are in SVG's user units.
type picture struct {
	Options
	svg.Drawing
	list   []message
	ranks  int
	chunks int
	steps  int

	col, row   float64 // a step's width, a rank's height
	dot        float64 // radius of a chunk's dot
	left, top  float64 // where step 0 and the first line begin
	labeled    bool    // dots carry the chunk's number
	w, h       float64
	loadTop    float64
	loadHeight float64
}

func newPicture(all []*schedule.Schedule, list []message, chunks int, o Options) *picture {
	p := &picture{Options: o, list: list, ranks: len(all), chunks: chunks, left: 112, top: 104, loadHeight: 46}
	if n := len(list); n > 0 {
		p.steps = list[n-1].Step + 1
	}
	p.col = between(1200/float64(max(p.steps, 1)), 10, between(468/float64(max(p.steps, 1)), 52, 100))
	p.row = between(880/float64(p.ranks), 14, 46)
	p.dot = between(min(p.col, p.row)*0.23, 2, 10)
	p.labeled = p.dot >= 6
	p.loadTop = p.y(p.ranks-1) + p.row/2 + 44
	p.w = max(p.x(p.steps)+48, 620)
	p.h = p.loadTop + p.loadHeight + 84
	return p
}

func between(v, low, high float64) float64 { return min(max(v, low), high) }

// x returns where step begins, y the line of the i-th rank from the root.
func (p *picture) x(step int) float64 { return p.left + float64(step)*p.col }
func (p *picture) y(i int) float64    { return p.top + (float64(i)+0.5)*p.row }

// line returns a rank's line.
func (p *picture) line(rank int) float64 { return p.y((rank - p.Root + p.ranks) % p.ranks) }

const style = `<style>
.card{fill:#fcfcfd;stroke:#dcdce3}.band{fill:#f0f1f5}.rule{stroke:#c3c5d0}.tick{stroke:#e6e7ed}.halo{stroke:#fcfcfd}.bar{fill:#8d91a6}
text{font-family:Inter,"Segoe UI","Helvetica Neue",Arial,sans-serif;fill:#3d3f4b;font-size:12px}
.title{font-size:17px;font-weight:600;fill:#1b1b1f}.facts{fill:#686b7a}.rank{font-weight:500;text-anchor:end}.root{font-weight:700;fill:#1b1b1f}
.axis{fill:#686b7a;font-size:11px}.mid{text-anchor:middle}.end{text-anchor:end}.num{font-weight:600;text-anchor:middle}.key{stroke:#686b7a}.keyfill{fill:#686b7a}.hole{fill:#fcfcfd}
@media (prefers-color-scheme:dark){
.card{fill:#17181d;stroke:#34363f}.band{fill:#20222a}.rule{stroke:#474a57}.tick{stroke:#2a2c35}.halo{stroke:#17181d}.bar{fill:#6d7186}.hole{fill:#17181d}
text{fill:#c9cbd6}.title,.root{fill:#f4f4f7}.facts,.axis{fill:#9599a8}.key{stroke:#9599a8}.keyfill{fill:#9599a8}}
</style>
`

func (p *picture) head() {
	p.Begin(p.w, p.h, p.Title, style)
	p.Text("title", 28, 40, "%s", p.Title)
	if len(p.list) == 0 {
		p.Text("facts", 28, 62, "%s · nothing travels", svg.Count(p.ranks, "rank"))
		return
	}
	p.Text("facts", 28, 62, "%s · %s · %s · %s", svg.Count(p.ranks, "rank"), svg.Count(p.chunks, "chunk"), svg.Count(len(p.list), "message"), svg.Count(p.steps, "step"))
}

// bands shade every second group of ranks.
func (p *picture) bands() {
	if p.Group == 0 || p.Group >= p.ranks {
		return
	}
	for first := p.Group; first < p.ranks; first += 2 * p.Group {
		n := min(p.Group, p.ranks-first)
		p.Rect("band", 16, p.y(first)-p.row/2, p.w-32, float64(n)*p.row, 8)
	}
}

// grid draws the ranks' lines and the steps.
func (p *picture) grid() {
	every := 1
	for float64(every)*p.col < 22 {
		every *= 5
	}
	for s := range p.steps + 1 {
		if s%every == 0 {
			p.Add("<path class=\"tick\" d=\"M%s %sV%s\"/>\n", svg.Num(p.x(s)), svg.Num(p.top), svg.Num(p.loadTop+p.loadHeight))
		}
		if s < p.steps && (s+1)%every == 0 {
			p.Text("axis mid", p.x(s)+p.col/2, p.top-8, "%d", s+1)
		}
	}
	p.Text("axis end", p.left-16, p.top-8, "step")
	for i := range p.ranks {
		rank := (i + p.Root) % p.ranks
		p.Add("<path class=\"rule\" d=\"M%s %sH%s\"/>\n", svg.Num(p.left), svg.Num(p.y(i)), svg.Num(p.x(p.steps)))
		switch {
		case i == 0:
			p.Text("rank root", p.left-16, p.y(i)+4, "root %d", rank)
		default:
			p.Text("rank", p.left-16, p.y(i)+4, "rank %d", rank)
		}
	}
}

// strokes draws the messages, then the dots where they arrive.
func (p *picture) strokes() {
	width := between(p.dot*0.34, 1, 3)
	p.Add("<g fill=\"none\">\n")
	arrived := map[[2]int]int{} // rank, step -> the chunk that has arrived before it
	for _, m := range p.list {
		fill, _ := color(m.chunk, p.chunks)
		x, y := p.x(m.Step), p.line(m.From)
		chunk, any := arrived[[2]int{m.From, m.Step}]
		if any && chunk != m.chunk { // leaves beside the dot: it is not that one which goes on
			x += p.dot + width
		}
		d := fmt.Sprintf("M%s %sL%s %s", svg.Num(x), svg.Num(y), svg.Num(p.x(m.Step+1)), svg.Num(p.line(m.To)))
		p.Add("<path class=\"halo\" stroke-width=\"%s\" d=\"%s\"/><path stroke=\"%s\" stroke-width=\"%s\" d=\"%s\"><title>%s</title></path>",
			svg.Num(width+2), d, fill, svg.Num(width), d, svg.Escape(m.String()))
		if !any || chunk != m.chunk {
			p.Add("<circle cx=\"%s\" cy=\"%s\" r=\"%s\" fill=\"%s\"/>", svg.Num(x), svg.Num(y), svg.Num(width), fill)
		}
		p.Add("\n")
		arrived[[2]int{m.To, m.Step + 1}] = m.chunk
	}
	p.Add("</g>\n")
	for _, m := range p.list {
		fill, text := color(m.chunk, p.chunks)
		p.arrival(p.x(m.Step+1), p.line(m.To), m, fill, text)
	}
}

// arrival draws the dot where a message arrives.
func (p *picture) arrival(x, y float64, m message, fill, text string) {
	p.Add("<circle cx=\"%s\" cy=\"%s\" r=\"%s\" %s/>", svg.Num(x), svg.Num(y), svg.Num(p.dot), p.dotStyle(m.adds, fill))
	if p.labeled {
		style := fmt.Sprintf("font-size:%spx", svg.Num(p.dot*1.15))
		if m.adds {
			style += ";fill:" + text
		}
		p.Add("<text class=\"num\" style=\"%s\" x=\"%s\" y=\"%s\">%d</text>", style, svg.Num(x), svg.Num(y+p.dot*0.42), m.chunk)
	}
	p.Add("\n")
}

// dotStyle is full where a message is added, hollow where it is stored.
func (p *picture) dotStyle(adds bool, fill string) string {
	if adds {
		return fmt.Sprintf("fill=\"%s\"", fill)
	}
	return fmt.Sprintf("class=\"hole\" stroke=\"%s\" stroke-width=\"%s\"", fill, svg.Num(max(p.dot*0.25, 1)))
}

// String says what a message is, for the reader who points at it.
func (m message) String() string {
	does := "stored"
	if m.adds {
		does = "added"
	}
	return fmt.Sprintf("step %d: chunk %d from rank %d to rank %d, %s there", m.Step+1, m.chunk, m.From, m.To, does)
}

// load draws how many messages travel in each step.
func (p *picture) load() {
	busy := make([]int, p.steps)
	busiest := 1
	for _, m := range p.list {
		busy[m.Step]++
		busiest = max(busiest, busy[m.Step])
	}
	bottom := p.loadTop + p.loadHeight
	gap := between(p.col*0.12, 0.5, 5)
	for s, n := range busy {
		h := p.loadHeight * float64(n) / float64(busiest)
		p.Rect("bar", p.x(s)+gap, bottom-h, p.col-2*gap, h, 2)
		if p.labeled {
			p.Text("axis mid", p.x(s)+p.col/2, bottom-h-5, "%d", n)
		}
	}
	p.Add("<path class=\"rule\" d=\"M%s %sH%s\"/>\n", svg.Num(p.left), svg.Num(bottom), svg.Num(p.x(p.steps)))
	p.Text("axis end", p.left-16, bottom-8, "messages")
	p.Text("axis end", p.left-16, bottom+6, "a step")
}

// legend explains colors and dots.
func (p *picture) legend() {
	y := p.h - 30
	x := 28.0
	p.Text("axis", x, y+4, "chunk")
	x += 44
	shown := min(p.chunks, 16)
	for i := range shown {
		chunk := i
		if shown > 1 {
			chunk = i * (p.chunks - 1) / (shown - 1)
		}
		fill, text := color(chunk, p.chunks)
		p.Add("<rect x=\"%s\" y=\"%s\" width=\"22\" height=\"18\" fill=\"%s\"/>", svg.Num(x), svg.Num(y-9), fill)
		if i == 0 || i == shown-1 || shown == p.chunks {
			p.Add("<text class=\"num\" style=\"fill:%s;font-size:11px\" x=\"%s\" y=\"%s\">%d</text>", text, svg.Num(x+11), svg.Num(y+4), chunk)
		}
		p.Add("\n")
		x += 22
	}
	x += 26
	for _, k := range []struct {
		adds bool
		says string
	}{{true, "added on arrival"}, {false, "stored on arrival"}} {
		if p.has(k.adds) {
			p.Add("<circle class=\"key %s\" cx=\"%s\" cy=\"%s\" r=\"6\" stroke-width=\"2\"/>\n", map[bool]string{true: "keyfill", false: "hole"}[k.adds], svg.Num(x), svg.Num(y))
			p.Text("axis", x+12, y+4, "%s", k.says)
			x += 128
		}
	}
}

func (p *picture) has(adds bool) bool {
	for _, m := range p.list {
		if m.adds == adds {
			return true
		}
	}
	return false
}
