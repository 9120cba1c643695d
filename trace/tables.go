package trace

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/units"
)

// tableNames are the tables of a report.
var tableNames = []string{"ranks", "layers", "buckets", "iterations"}

var tableTitles = map[string]string{
	"ranks":   "Ranks, ms an iteration:",
	"layers":  "Layers, ms an iteration, mean over the ranks (communication: that of the layer's bucket, once):",
	"buckets": "Buckets, ms an iteration, mean over the ranks:",
}

func (r *Report) table(name string) report.Rows {
	switch name {
	case "ranks":
		return r.rankTable()
	case "layers":
		return r.layerTable()
	case "buckets":
		return r.bucketTable()
	}
	return r.iterationTable()
}

// digits is how many digits of milliseconds tables show.
const digits = 3

// partColumns are the parts that time is made of. In text there are those
// alone that have any, unless all are asked for.
func partColumns[R any](times func(R) Times, sum Times, all bool) []report.Column[R] {
	columns := []report.Column[R]{
		{Name: "total_ms", Title: "total", Digits: digits, Dash: true, Value: func(r R) any { return times(r).Total() }},
	}
	for p := range Parts {
		columns = append(columns, report.Column[R]{
			Name: p.String() + "_ms", Title: p.String(), Digits: digits, Dash: true, Hidden: !all && sum[p] == 0,
			Value: func(r R) any { return times(r)[p] },
		})
	}
	return columns
}

func (r *Report) rankTable() *report.Table[RankReport] {
	type column = report.Column[RankReport]
	var sum Times
	anyOvertaken, anyLetGo := false, false
	for i := range r.Ranks {
		anyOvertaken, anyLetGo = anyOvertaken || r.Ranks[i].Overtaken > 0, anyLetGo || r.Ranks[i].LetGo > 0
		for p, d := range r.Ranks[i].Times {
			sum[p] += d
		}
	}
	return &report.Table[RankReport]{Rows: r.Ranks, Columns: slices.Concat([]column{
		{Name: "rank", Left: true, Value: func(k RankReport) any { return k.Rank }},
		{Name: "host", Left: true, Value: func(k RankReport) any { return k.Host }},
	}, partColumns(func(k RankReport) Times { return k.Times }, sum, false), []column{
		{Name: "held_up_ms", Title: "held up", Digits: digits, Dash: true, Value: func(k RankReport) any { return k.HeldUp }},
		{Name: "overtaken", Hidden: !anyOvertaken, Value: func(k RankReport) any { return k.Overtaken }},
		{Name: "let_go", Hidden: !anyLetGo, Value: func(k RankReport) any { return k.LetGo }},
	})}
}

// layerRow is a layer with the bucket of its parameters, if it has any.
type layerRow struct {
	LayerReport
	bucket *BucketReport
	first  bool // of its bucket's layers
}

// ditto stands where a line repeats the one of the bucket's first layer.
const ditto = "″"

func (r *Report) layerTable() *report.Table[layerRow] {
	type column = report.Column[layerRow]
	// communication is a column of what the layer's bucket costs, which only its
	// first layer has.
	communication := func(name, title string, of func(*BucketReport) any) column {
		return column{Name: name, Title: title, Digits: digits, Dash: true, Value: func(l layerRow) any {
			switch {
			case l.bucket == nil:
				return report.Shown{}
			case !l.first:
				return report.Shown{Text: ditto}
			}
			return of(l.bucket)
		}}
	}
	both := func(b *BucketReport) Communication {
		c := b.Push
		c.add(b.Pull)
		return c
	}
	t := &report.Table[layerRow]{Columns: []column{
		{Name: "layer", Left: true, Value: func(l layerRow) any { return l.Name }},
		{Name: "number", Hidden: true, Value: func(l layerRow) any { return l.Layer }},
		{Name: "bucket", Left: true, Value: func(l layerRow) any {
			if l.bucket == nil {
				return report.Shown{}
			}
			return l.bucket.Bucket
		}},
		{Name: "forward_ms", Title: "forward", Digits: digits, Dash: true, Value: func(l layerRow) any { return l.Forward }},
		{Name: "backward_ms", Title: "backward", Digits: digits, Dash: true, Value: func(l layerRow) any { return l.Backward }},
		{Name: "slowest_rank", Value: func(l layerRow) any { return r.Ranks[l.Slowest].Rank }},
		{Name: "slowest_ms", Title: "its time", Digits: digits, Dash: true, Value: func(l layerRow) any { return l.SlowestTime }},
		communication("push_ms", "push", func(b *BucketReport) any { return b.Push.Flight }),
		communication("pull_ms", "pull", func(b *BucketReport) any { return b.Pull.Flight }),
		communication("hidden_ms", "hidden", func(b *BucketReport) any { return both(b).Hidden }),
		communication("exposed_ms", "exposed", func(b *BucketReport) any { return both(b).Exposed }),
		communication("skew_ms", "skew", func(b *BucketReport) any { return both(b).Skew }),
	}}
	shown := map[int]bool{}
	for _, l := range r.Layers {
		row := layerRow{LayerReport: l}
		if l.Bucket >= 0 {
			row.bucket, row.first = &r.Buckets[l.Bucket], !shown[l.Bucket]
			shown[l.Bucket] = true
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// bucketRow is one direction of a bucket's communication.
type bucketRow struct {
	*BucketReport
	way string
	Communication
}

func (r *Report) bucketTable() *report.Table[bucketRow] {
	t := &report.Table[bucketRow]{Columns: []report.Column[bucketRow]{
		{Name: "bucket", Left: true, Value: func(b bucketRow) any { return b.Bucket }},
		{Name: "name", Hidden: true, Value: func(b bucketRow) any { return b.Name }},
		{Name: "way", Left: true, Value: func(b bucketRow) any { return b.way }},
		{Name: "bytes", Title: "size", Value: func(b bucketRow) any { return report.Shown{Value: b.Bytes, Text: size(b.Bytes)} }},
		{Name: "in_flight_ms", Title: "in flight", Digits: digits, Dash: true, Value: func(b bucketRow) any { return b.Flight }},
		{Name: "mb_per_second", Title: "MB/s", Value: func(b bucketRow) any { return report.Optional(b.Rate(b.Bytes), b.Flight > 0) }},
		{Name: "hidden_ms", Title: "hidden", Digits: digits, Dash: true, Value: func(b bucketRow) any { return b.Hidden }},
		{Name: "behind_ms", Title: "behind", Digits: digits, Dash: true, Value: func(b bucketRow) any { return b.Behind }},
		{Name: "exposed_ms", Title: "exposed", Digits: digits, Dash: true, Value: func(b bucketRow) any { return b.Exposed }},
		{Name: "skew_ms", Title: "skew", Digits: digits, Dash: true, Value: func(b bucketRow) any { return b.Skew }},
		{Name: "layers", Left: true, Value: func(b bucketRow) any { return report.Shown{Value: b.Layers, Text: layerList(b.Layers, 4)} }},
	}}
	for i := range r.Buckets {
		b := &r.Buckets[i]
		for _, row := range []bucketRow{{b, "push", b.Push}, {b, "pull", b.Pull}} {
			if row.Communication != (Communication{}) {
				t.Rows = append(t.Rows, row)
			}
		}
	}
	return t
}

func (r *Report) iterationTable() *report.Table[IterationReport] {
	return &report.Table[IterationReport]{Rows: r.Iterations, Columns: slices.Concat(
		[]report.Column[IterationReport]{{Name: "iteration", Left: true, Value: func(i IterationReport) any { return i.Iter }}},
		partColumns(func(i IterationReport) Times { return i.Path }, Times{}, true))}
}

// size returns bytes rounded for people.
func size(n int64) string {
	for _, u := range []struct {
		unit int64
		name string
	}{{1 << 30, "G"}, {1 << 20, "M"}, {1 << 10, "K"}} {
		if n >= u.unit && n%u.unit != 0 {
			return strconv.FormatFloat(float64(n)/float64(u.unit), 'f', 1, 64) + u.name
		}
		if n >= u.unit {
			break
		}
	}
	return units.FormatBytes(int(n))
}

// layerList names the first few layers.
func layerList(names []string, most int) string {
	if len(names) > most+1 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], " "), len(names)-most)
	}
	return strings.Join(names, " ")
}

// CSV writes one of the report's tables: ranks, layers, buckets or iterations.
// Times are in ms.
func (r *Report) CSV(w io.Writer, name string) error {
	if !slices.Contains(tableNames, name) {
		return fmt.Errorf("invalid --table %q: want %s", name, strings.Join(tableNames, ", "))
	}
	return r.table(name).Write(w, report.CSV)
}

// JSON writes the report as one object, with the tables of CSV under their
// names. Times are in ms.
func (r *Report) JSON(w io.Writer) error {
	var skews []float64
	for _, d := range r.PathSkew {
		skews = append(skews, report.Milliseconds(d))
	}
	head := []report.Field{
		{Name: "meta", Value: r.Meta},
		{Name: "clock_bound_ms", Value: r.ClockBound},
		{Name: "critical_path", Value: r.Path},
		{Name: "path_skew_by_rank_ms", Value: skews},
		{Name: "notes", Value: r.Notes},
	}
	if r.Slowest < len(r.Ranks) {
		head = append(head, report.Field{Name: "slowest_rank", Value: r.Ranks[r.Slowest].Rank})
	}
	var tables []report.Named
	for _, name := range tableNames {
		tables = append(tables, report.Named{Name: name, Rows: r.table(name)})
	}
	return report.WriteDocument(w, head, tables...)
}

// MarshalJSON writes times as {"total_ms": 1, "forward_ms": 0.5, ...}.
func (t Times) MarshalJSON() ([]byte, error) {
	m := map[string]float64{"total_ms": report.Milliseconds(t.Total())}
	for p, d := range t {
		m[Part(p).String()+"_ms"] = report.Milliseconds(d)
	}
	return json.Marshal(m)
}
