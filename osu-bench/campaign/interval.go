package campaign

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/svg"
	"github.com/scaffe/scaffe/osu-bench/port"
)

// Interval is what a node's port sent and received in some milliseconds of a row's measured iterations. Its Time is since
// its turn began.
type Interval struct {
	Figure, Profile, System string
	Turn                    int // from 1 on
	port.Sample
}

// intervalColumns are the columns of the file, in the order in which readIntervals reads them.
var intervalColumns = func() []report.Column[Interval] {
	columns := []report.Column[Interval]{
		{Name: "figure", Value: func(r Interval) any { return r.Figure }},
		{Name: "profile", Value: func(r Interval) any { return r.Profile }},
		{Name: "system", Value: func(r Interval) any { return r.System }},
		{Name: "turn", Value: func(r Interval) any { return r.Turn }},
	}
	for _, c := range port.Columns {
		columns = append(columns, report.Column[Interval]{Name: c.Name, Value: func(r Interval) any { return c.Value(r.Sample) }})
	}
	return columns
}()

// parseSample reads the cells of a sample.
func parseSample(c *cells) (s port.Sample) {
	s.Time, s.Unix, s.Length, s.Sent, s.Received = c.number(), c.number(), c.number(), int64(c.number()), int64(c.number())
	c.text() // shares follow from these
	c.text()
	s.Rate = c.number()
	return s
}

// readSamples reads the file that hostfiles/lab watch has written.
func readSamples(path string) ([]port.Sample, error) {
	all, err := readRows(path, port.Columns, parseSample)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s: no samples of the port", path)
	}
	return all, err
}

// readIntervals reads the intervals of rows; a file that is not there has none.
func readIntervals(path string) ([]Interval, error) {
	return readRows(path, intervalColumns, func(c *cells) (r Interval) {
		r.Figure, r.Profile, r.System, r.Turn = c.text(), c.text(), c.text(), c.whole()
		r.Sample = parseSample(c)
		return r
	})
}

// intervals is the file of the intervals, beside that of the rows.
func (c *FigureConfig) intervals() string {
	return strings.TrimSuffix(c.Out, ".csv") + "-intervals.csv"
}

// addIntervals writes those that there are and those of new rows, which take the place of what an
// interrupted run has left of theirs, and returns them.
func addIntervals(path string, all []Interval, rows []FigureRow) ([]Interval, error) {
	for _, r := range rows {
		all = slices.DeleteFunc(all, func(i Interval) bool { return i.of(&r) })
		all = append(all, r.Port...)
	}
	return all, writeRows(path, intervalColumns, all)
}

// of reports whether an interval is one of a row's.
func (i *Interval) of(r *FigureRow) bool {
	return i.Figure == r.Figure && i.Profile == r.Profile && i.System == r.System
}

// parseTurns reads when turns began and ended, as scaffe replay writes it.
func parseTurns(words []string) (turns [][2]float64, err error) {
	for _, word := range words {
		begin, end, _ := strings.Cut(word, "-")
		b, err := strconv.ParseFloat(begin, 64)
		e, err2 := strconv.ParseFloat(end, 64)
		if err != nil || err2 != nil || b >= e {
			return nil, fmt.Errorf("the replay's report: %q is no turn", word)
		}
		turns = append(turns, [2]float64{b, e})
	}
	return turns, nil
}

// watched gives rows the samples that lie within their turns, and what follows from these.
func watched(rows []FigureRow, samples []port.Sample) error {
	for i := range rows {
		r := &rows[i]
		var mine []port.Sample
		var sent, length float64
		for turn, t := range r.Turns {
			for _, s := range samples {
				if s.Unix < t[0] || s.Unix+s.Length > t[1] {
					continue
				}
				mine = append(mine, s)
				sent, length = sent+s.SentShare()*s.Length, length+s.Length
				s.Time = s.Unix - t[0]
				r.Port = append(r.Port, Interval{r.Figure, r.Profile, r.System, turn + 1, s})
			}
		}
		if len(mine) == 0 {
			return fmt.Errorf("no sample of the port lies within the measured iterations of %s: is it another machine's clock?", r.System)
		}
		r.Intervals, r.Sends = len(mine), sent/length
		r.SendsQuiet, r.ReceivesQuiet = port.QuietShares(mine)
	}
	return nil
}

// drawIntervals returns the picture of the first turns: for each net and system a panel with what the port sends and
// receives against time.
func drawIntervals(f *figure, rows []FigureRow, all []Interval) string {
	const wide = 2*panelWidth + gapX
	names := []string{"sends", "receives"}
	var shown []*FigureRow
	for i := range rows {
		if rows[i].Figure == f.name && slices.ContainsFunc(all, func(v Interval) bool { return v.of(&rows[i]) }) {
			shown = append(shown, &rows[i])
		}
	}
	var d svg.Drawing
	title := fmt.Sprintf("%s: %s", f.name, f.title)
	d.Begin(max(leftMargin+wide+gapX, 720), topMargin+float64(len(shown))*(panelHeight+gapY)+10, title, colored(len(names), "path{stroke-width:1}"))
	d.Text("title", 20, 28, "%s", title)
	d.Text("tick", 20, 44, "%% of the rate of one node's port in every 10 ms, against seconds of the first turn's measured iterations")
	for i, name := range names {
		d.Rect(fmt.Sprintf("bar%d", i), 20+80*float64(i), 56, 12, 8, 2)
		d.Text("", 38+80*float64(i), 64, "%s", name)
	}
	for i, r := range shown {
		r.drawPort(&d, all, leftMargin, topMargin+float64(i)*(panelHeight+gapY), wide)
	}
	d.End()
	return d.String()
}

// drawPort draws a row's panel with its corner at x, y.
func (r *FigureRow) drawPort(d *svg.Drawing, all []Interval, x, y, width float64) {
	var first []Interval
	end := 1.0
	for _, v := range all {
		if v.of(r) && v.Turn == 1 {
			first = append(first, v)
			end = max(end, v.Time+v.Length)
		}
	}
	const most = 1.2 // after a pause a token bucket lets through more than its rate
	atX := func(ms float64) float64 { return x + width*ms/end }
	atY := func(share float64) float64 { return y + panelHeight*(1-min(share, most)/most) }
	d.Text("", x, y-7, "%s, %s at %d Mbit/s: sends at under 5 %% in %.1f %% of the time, receives in %.1f %%", r.Profile, r.System, r.Rate, 100*r.SendsQuiet, 100*r.ReceivesQuiet)
	for _, share := range []float64{0, 0.25, 0.5, 0.75, 1} {
		d.Line("grid", x, atY(share), x+width, atY(share))
		d.Text("tick end", x-5, atY(share)+3, "%.0f", 100*share)
	}
	for k := range 5 {
		ms := end * float64(k) / 4
		d.Text("tick middle", atX(ms), y+panelHeight+13, "%.2f", ms/1e3)
	}
	d.Rect("frame", x, y, width, panelHeight, 0)
	for k, of := range []func(port.Sample) float64{port.Sample.SentShare, port.Sample.ReceivedShare} {
		path, pen := "", "M"
		for _, v := range first {
			path += fmt.Sprintf("%s%s %s", pen, svg.Num(atX(v.Time+v.Length/2)), svg.Num(atY(of(v.Sample))))
			pen = "L"
		}
		if path != "" {
			d.Add("<path class=\"line%d\" d=\"%s\"/>\n", k, path)
		}
	}
}
