package tune

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/scaffe/scaffe/internal/svg"
)

// chartData is what a chart with two logarithmic axes shows.
type chartData struct {
	xLabel, yLabel string
	x              []tick
	lines          []line
}

type tick struct {
	at   float64
	name string
}

type line struct {
	name, class string // class is a color of the page: c0 to c7, or limit
	dashed      bool
	points      []xy
}

type xy struct {
	x, y float64
	note string // shown where the pointer is over the point
}

// The page's colors, which differ on light and dark, are CSS variables. The
// plotting library knows numbers, so each variable has one that nothing else
// has, and inPage puts the variables back.
var (
	ink, soft, rule = pageColor(0xfe), pageColor(0xfd), pageColor(0xfc)
	palette         = newPalette()
	inPage          = newReplacer()
)

func pageColor(n uint8) color.Color { return color.RGBA{n, 0xab, 0xcd, 0xff} }

// newPalette returns the colors of lines by class.
func newPalette() map[string]color.Color {
	p := map[string]color.Color{"limit": ink}
	for i := range colors {
		p[fmt.Sprintf("c%d", i)] = pageColor(uint8(i))
	}
	return p
}

func newReplacer() *strings.Replacer {
	pairs := []string{
		"font-family:Liberation Sans", "font-family:system-ui,sans-serif",
		`xmlns="http://www.w3.org/2000/svg"`, "", `xmlns:xlink="http://www.w3.org/1999/xlink"`, "", // needed outside of HTML alone
	}
	put := func(c color.Color, variable string) {
		r, g, b, _ := c.RGBA()
		pairs = append(pairs, fmt.Sprintf("#%02X%02X%02X", r>>8, g>>8, b>>8), "var(--"+variable+")")
	}
	put(ink, "ink")
	put(soft, "soft")
	put(rule, "rule")
	for class, c := range palette {
		if class != "limit" {
			put(c, class)
		}
	}
	return strings.NewReplacer(pairs...)
}

// Sizes of a chart and of the legend at its right.
const (
	chartWidth, chartHeight, legendWidth vg.Length = 720, 324, 190
)

var labelFont = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 9.5}

// svg returns the chart as an SVG element, "" where there is nothing to show.
func (d chartData) svg() (string, error) {
	if d.lines = drawable(d.lines); len(d.lines) == 0 {
		return "", nil
	}
	p := d.plot()
	legend := d.legend()
	for _, l := range d.lines {
		drawn, err := l.plotter()
		if err != nil {
			return "", err
		}
		p.Add(drawn)
	}
	d.widen(p)
	picture := vgsvg.New(chartWidth, chartHeight)
	all := draw.New(picture)
	left := draw.Crop(all, 0, -legendWidth, 0, 0)
	p.Draw(left)
	legend.Draw(draw.Crop(all, chartWidth-legendWidth+14, 0, 0, -4))
	var b bytes.Buffer
	if _, err := picture.WriteTo(&b); err != nil {
		return "", err
	}
	_, text, _ := strings.Cut(inPage.Replace(b.String()), "<svg ")
	text = strings.TrimSuffix(strings.TrimSpace(text), "</svg>")
	label := svg.Escape(d.yLabel + " against " + d.xLabel)
	return fmt.Sprintf("<svg role=\"img\" aria-label=\"%s\" %s%s</svg>", label, text, d.notes(p, left)), nil
}

// drawable returns what logarithmic axes can show.
func drawable(lines []line) (some []line) {
	for _, l := range lines {
		l.points = slices.DeleteFunc(slices.Clone(l.points), func(q xy) bool { return !(q.x > 0 && q.y > 0 && q.y < math.Inf(1)) })
		if len(l.points) > 0 {
			some = append(some, l)
		}
	}
	return some
}

// plot returns the axes and the grid.
func (d chartData) plot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Label.Text, p.Y.Label.Text = d.xLabel, d.yLabel
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Tick.Color = rule, rule
		a.Label.TextStyle.Color, a.Tick.Label.Color = soft, soft
		a.Label.TextStyle.Font, a.Tick.Label.Font = labelFont, labelFont
		a.Padding, a.Label.Padding = 6, 6
	}
	var marks []plot.Tick
	every := (len(d.x) + 7) / 8
	for i, t := range d.x {
		if i%every == 0 || i == len(d.x)-1 && i%every > every/2 {
			marks = append(marks, plot.Tick{Value: t.at, Label: t.name})
		}
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.ConstantTicks(marks), timeTicks{}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = rule, rule
	p.Add(grid)
	return p
}

// widen gives the lines some air, and one size or time a range at all.
func (d chartData) widen(p *plot.Plot) {
	p.X.Min, p.X.Max = d.x[0].at/1.15, d.x[len(d.x)-1].at*1.15
	p.Y.Min, p.Y.Max = p.Y.Min/1.4, p.Y.Max*1.4
}

// legend names the lines in the order of their ends, from top to bottom.
func (d chartData) legend() plot.Legend {
	lines := slices.Clone(d.lines)
	slices.SortStableFunc(lines, func(a, b line) int { return -cmp.Compare(a.end(), b.end()) })
	l := plot.NewLegend()
	l.Top, l.Left = true, true
	l.YPosition = draw.PosCenter
	l.Padding = 5
	l.TextStyle.Color, l.TextStyle.Font = ink, labelFont
	for _, x := range lines {
		l.Add(x.name, &plotter.Line{LineStyle: x.style()})
	}
	return l
}

func (l line) end() float64 { return l.points[len(l.points)-1].y }

func (l line) style() draw.LineStyle {
	s := draw.LineStyle{Color: palette[l.class], Width: 1.7}
	switch {
	case l.class == "limit":
		s.Width, s.Dashes = 1.2, []vg.Length{1.5, 3}
	case l.dashed:
		s.Dashes = []vg.Length{4, 3}
	}
	return s
}

// plotter draws the line, with dots where there are notes.
func (l line) plotter() (plot.Plotter, error) {
	points := make(plotter.XYs, len(l.points))
	for i, q := range l.points {
		points[i] = plotter.XY{X: q.x, Y: q.y}
	}
	drawn, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return nil, fmt.Errorf("line %s: %w", l.name, err)
	}
	drawn.LineStyle = l.style()
	dots.GlyphStyle = draw.GlyphStyle{Color: palette[l.class], Radius: 2.6, Shape: draw.CircleGlyph{}}
	if l.points[0].note == "" {
		return drawn, nil
	}
	return both{drawn, dots}, nil
}

// both are a line and its dots.
type both struct {
	*plotter.Line
	dots *plotter.Scatter
}

func (b both) Plot(c draw.Canvas, p *plot.Plot) {
	b.Line.Plot(c, p)
	b.dots.Plot(c, p)
}

// notes are transparent circles over the points, which show their notes.
func (d chartData) notes(p *plot.Plot, c draw.Canvas) string {
	var out strings.Builder
	x, y := p.Transforms(ptr(p.DataCanvas(c)))
	for _, l := range d.lines {
		for _, q := range l.points {
			if q.note != "" {
				fmt.Fprintf(&out, "<circle class=\"note %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\"><title>%s</title></circle>\n",
					l.class, float64(x(q.x)), float64(chartHeight-y(q.y)), svg.Escape(q.note))
			}
		}
	}
	return out.String()
}

func ptr[T any](x T) *T { return &x }

// timeTicks marks round times.
type timeTicks struct{}

func (timeTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	steps := []float64{1, 2, 5}
	if high/low > 1e3 {
		steps = []float64{1}
	}
	for exp := -9.0; exp < 4; exp++ {
		for _, s := range steps {
			if v := s * math.Pow(10, exp); low <= v && v <= high {
				ticks = append(ticks, plot.Tick{Value: v, Label: shortDuration(v)})
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
