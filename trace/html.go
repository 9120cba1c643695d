package trace

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/scaffe/scaffe/internal/report"
)

//go:embed page.html
var page string

//go:embed page.js
var script string

var pageTemplate = template.Must(template.New("page").Parse(page))

// pageItems is how many items a page shows at most: a browser draws that many
// without a pause.
var pageItems = 300_000 // tests change it

// HTML writes some iterations, or all (the zero Span), as a page that needs
// nothing else: the critical path, the timeline, and the tables of the report.
func (t *Trace) HTML(w io.Writer, s Span) error {
	tl := newTimeline(t)
	r := tl.analyze(s)
	zero, end := t.bounds()
	if s != (Span{}) {
		var err error
		if zero, end, err = tl.window(s); err != nil {
			return err
		}
	}
	d, left := tl.data(zero, end)
	if left != "" {
		r.Notes = append(r.Notes, left)
	}
	for i := range r.Iterations {
		row := []int64{int64(r.Iterations[i].Iter)}
		for _, x := range r.Iterations[i].Path {
			row = append(row, int64(x)/unit)
		}
		d.Paths = append(d.Paths, row)
	}
	b, err := json.Marshal(d)
	if err != nil {
		return err
	}
	v := pageView(r, template.JS(b))
	for c := range classes {
		if d.shown[c] {
			v.Legend = append(v.Legend, pageKey{"k" + strconv.Itoa(int(c)), classNames[c]})
		}
	}
	return pageTemplate.Execute(w, v)
}

// unit is that of the page's times, in ns.
const unit = 100

// pageData is what the page's script draws. Times are in units since the first.
type pageData struct {
	Unit    int        `json:"unit"`
	Length  int64      `json:"length"`
	Classes []string   `json:"classes"` // short names
	Names   []string   `json:"names"`
	Ranks   []pageRank `json:"ranks"`
	Path    []int64    `json:"path"`  // rank, begin, end, ...; backwards
	Paths   [][]int64  `json:"paths"` // iteration, time of each part

	shown [classes]bool
}

type pageRank struct {
	Rank int    `json:"rank"`
	Host string `json:"host"`
	Rows []int  `json:"rows"` // of each track
	// Items are class, row, name, iteration, begin after the begin of the item
	// before, length, bytes; and so on.
	Items   []int64 `json:"items"`
	Periods []int64 `json:"periods"` // iteration, begin; and so on
}

// data returns what the page draws of a stretch of time, and what it leaves out.
func (tl *timeline) data(zero, end time.Duration) (d pageData, left string) {
	d = pageData{Unit: unit, Length: int64(end-zero) / unit, Ranks: []pageRank{}, Path: []int64{}}
	for c := range classes {
		d.Classes = append(d.Classes, c.short())
	}
	views := make([]view, len(tl.t.Ranks))
	all := 0
	for r := range views {
		views[r] = tl.view(r).within(zero, end)
		all += len(views[r].items)
	}
	if all > pageItems {
		part := float64(pageItems) / float64(all)
		d.Length = int64(part * float64(d.Length))
		left = fmt.Sprintf("the timeline shows only the first %.0f %% of the time, as there are too many events for a page: choose fewer with --iterations", math.Floor(100*part))
	}
	numbers := map[string]int64{}
	for r := range views {
		k := pageRank{Rank: tl.t.Ranks[r].Rank, Host: tl.t.Ranks[r].Host, Rows: views[r].rows[:], Items: []int64{}, Periods: []int64{}}
		before := int64(0)
		for _, it := range views[r].items {
			e := &tl.t.Ranks[r].Events[it.event]
			n, known := numbers[e.Name]
			if !known {
				n = int64(len(d.Names))
				numbers[e.Name] = n
				d.Names = append(d.Names, e.Name)
			}
			begin := int64(it.begin-zero) / unit
			if begin > d.Length {
				continue
			}
			k.Items = append(k.Items, int64(it.class), int64(it.row), n, int64(e.Iter), begin-before, int64(it.end-zero)/unit-begin, e.Bytes)
			before = begin
			d.shown[it.class] = true
		}
		for _, p := range views[r].periods {
			if p.end > zero && p.begin < end {
				k.Periods = append(k.Periods, int64(p.iter), int64(p.begin-zero)/unit)
			}
		}
		d.Ranks = append(d.Ranks, k)
	}
	d.Path = tl.pathData(zero, d.Length)
	return d, left
}

// pathData returns the critical path, as rank, begin, end.
func (tl *timeline) pathData(zero time.Duration, length int64) []int64 {
	all := map[int32]bool{}
	for r := range tl.t.Ranks {
		for _, p := range tl.periods(r) {
			all[p.iter] = true
		}
	}
	out := []int64{}
	for _, s := range tl.path(all) {
		begin, end := int64(s.begin-zero)/unit, int64(s.end-zero)/unit
		if end <= 0 || begin >= length {
			continue
		}
		begin, end = max(begin, 0), min(end, length)
		if n := len(out); n > 0 && out[n-3] == int64(s.rank) && out[n-2] == end {
			out[n-2] = begin
			continue
		}
		out = append(out, int64(s.rank), begin, end)
	}
	return out
}

// pageTexts is what the page's template shows.
type pageTexts struct {
	Title, Sub string
	Facts      [][2]string
	Notes      []string
	Total      string
	Parts      []pagePart
	Remarks    []string
	Tables     []pageTable
	Legend     []pageKey
	Data       template.JS
	Script     template.JS
}

type pagePart struct {
	Class, Name, Time, Share, Width, Note string
}

type pageKey struct{ Class, Name string }

type pageTable struct {
	ID, Title, Text string
	Names           []pageCell
	Rows            [][]pageCell
}

type pageCell struct {
	Text   string
	Number bool
}

func pageView(r *Report, data template.JS) pageTexts {
	v := pageTexts{Title: "Timeline", Sub: r.Title(), Notes: r.Notes, Data: data, Script: template.JS(script)}
	for _, key := range []string{"net", "design", "aggregate", "algorithm"} {
		if r.Meta[key] != "" {
			v.Facts = append(v.Facts, [2]string{key, r.Meta[key]})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.Meta)) {
		switch key {
		case "net", "design", "aggregate", "algorithm":
		default:
			v.Facts = append(v.Facts, [2]string{key, r.Meta[key]})
		}
	}
	v.Facts = append(v.Facts, [2]string{"clocks", r.ClockNote()})
	if len(r.Iterations) == 0 {
		return v
	}
	total := r.Path.Total()
	v.Total = ms(total) + " ms"
	for p, d := range r.Path {
		if d > 0 {
			part := pagePart{
				Class: "k" + strconv.Itoa(p), Name: Part(p).String(), Time: ms(d) + " ms", Share: share(d, total),
				Width: strconv.FormatFloat(100*float64(d)/float64(total), 'f', 3, 64),
			}
			if Part(p) == InSkew {
				part.Note = r.PathSkewNote()
			}
			v.Parts = append(v.Parts, part)
		}
	}
	for _, s := range []string{r.HiddenNote(), r.SlowestNote(), r.OrderNote()} {
		if s != "" {
			v.Remarks = append(v.Remarks, s)
		}
	}
	for _, name := range []string{"ranks", "layers", "buckets"} {
		if g := r.table(name).Grid(); len(g.Cells) > 0 {
			v.Tables = append(v.Tables, newPageTable(name, g))
		}
	}
	return v
}

var tableTexts = map[string]string{
	"ranks":   "Each rank’s own time, ms an iteration. Held up: how long all others together waited for it to begin a collective.",
	"layers":  "What a layer computes, and what the communication of its bucket costs, ms an iteration, mean over the ranks. A bucket of several layers is counted with the first.",
	"buckets": "In flight = hidden + behind (the rank waited, but for something else) + exposed + skew, ms an iteration, mean over the ranks.",
}

func newPageTable(name string, g report.Grid) pageTable {
	out := pageTable{ID: name, Title: map[string]string{"ranks": "Ranks", "layers": "Layers", "buckets": "Buckets"}[name], Text: tableTexts[name]}
	cells := func(texts []string) (row []pageCell) {
		for i, text := range texts {
			row = append(row, pageCell{text, !g.Left[i]})
		}
		return row
	}
	out.Names = cells(g.Headings)
	for _, row := range g.Cells {
		out.Rows = append(out.Rows, cells(row))
	}
	return out
}
