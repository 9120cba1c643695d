package trace

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/scaffe/scaffe/internal/units"
)

// ms is how tables show times.
func ms(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return strconv.FormatFloat(float64(d)/1e6, 'f', 3, 64)
}

// share is d as a part of all.
func share(d, all time.Duration) string {
	if all <= 0 {
		return "-"
	}
	return strconv.FormatFloat(100*float64(d)/float64(all), 'f', 1, 64) + " %"
}

// count returns a number with its noun.
func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// Title says in a line what was traced.
func (r *Report) Title() string {
	hosts := map[string]bool{}
	for i := range r.Ranks {
		hosts[r.Ranks[i].Host] = true
	}
	out := count(len(r.Ranks), "rank") + " on " + count(len(hosts), "node")
	switch n := len(r.Iterations); n {
	case 0:
	case 1:
		out += fmt.Sprintf(", iteration %d", r.Iterations[0].Iter)
	default:
		out += fmt.Sprintf(", iterations %d to %d", r.Iterations[0].Iter, r.Iterations[n-1].Iter)
	}
	return out
}

// ClockNote says how well the ranks' clocks agree.
func (r *Report) ClockNote() string {
	if len(r.Ranks) < 2 {
		return "one clock"
	}
	return fmt.Sprintf("clocks agree within ±%v of rank 0's", r.ClockBound.Round(100*time.Nanosecond))
}

// SlowestNote names the rank that computes longest, unless all do within a
// percent, and the one that holds others up; it is empty where there is one rank.
func (r *Report) SlowestNote() string {
	if len(r.Ranks) < 2 {
		return ""
	}
	slow := &r.Ranks[r.Slowest]
	var others time.Duration
	for i := range r.Ranks {
		if i != r.Slowest {
			others += r.Ranks[i].Times.Compute()
		}
	}
	others /= time.Duration(len(r.Ranks) - 1)
	out := fmt.Sprintf("Rank %d (%s) computes longest: %s ms an iteration, the others %s ms on average.",
		slow.Rank, slow.Host, ms(slow.Times.Compute()), ms(others))
	if slow.Times.Compute()-others < others/100 {
		out = fmt.Sprintf("All ranks compute equally long, %s ms an iteration.", ms(slow.Times.Compute()))
	}
	holds := slow
	for i := range r.Ranks {
		if r.Ranks[i].HeldUp > holds.HeldUp {
			holds = &r.Ranks[i]
		}
	}
	if holds.HeldUp > 0 {
		out += fmt.Sprintf(" Rank %d holds the others up most: together they wait %s ms an iteration for it to begin.", holds.Rank, ms(holds.HeldUp))
	}
	return out
}

// HiddenNote says how much of the communication is hidden.
func (r *Report) HiddenNote() string {
	c := r.Communication()
	if c.Flight == 0 {
		return ""
	}
	return fmt.Sprintf("Buckets are in flight for %s ms an iteration, added up; %s of it is hidden.", ms(c.Flight), share(c.Hidden, c.Flight))
}

// PathSkewNote says on which rank the path's skew was.
func (r *Report) PathSkewNote() string {
	worst := -1
	for i, d := range r.PathSkew {
		if d > 0 && (worst < 0 || d > r.PathSkew[worst]) {
			worst = i
		}
	}
	if worst < 0 {
		return ""
	}
	return fmt.Sprintf("%s of it on rank %d", share(r.PathSkew[worst], r.Path[InSkew]), r.Ranks[worst].Rank)
}

// Text returns the report as tables to be read.
func (r *Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s; %s\n", r.Title(), r.ClockNote())
	for _, k := range slices.Sorted(maps.Keys(r.Meta)) {
		fmt.Fprintf(&b, "%s: %s\n", k, r.Meta[k])
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	if len(r.Iterations) == 0 {
		return b.String()
	}
	total := r.Path.Total()
	fmt.Fprintf(&b, "\nAn iteration takes %s ms. Its critical path, ms:\n\n", ms(total))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for p, d := range r.Path {
		if d == 0 {
			continue
		}
		bar := strings.Repeat("█", int(0.5+40*float64(d)/float64(total)))
		note := ""
		if n := r.PathSkewNote(); Part(p) == InSkew && n != "" {
			note = "  " + n
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t  %s%s\n", Part(p), ms(d), share(d, total), bar, note)
	}
	_ = w.Flush() // to a strings.Builder
	for _, n := range []string{r.HiddenNote(), r.SlowestNote()} {
		if n != "" {
			fmt.Fprintf(&b, "\n%s\n", n)
		}
	}
	for _, name := range tableNames {
		if t := r.table(name); len(t.rows) > 0 && name != "iterations" {
			fmt.Fprintf(&b, "\n%s\n\n%s", t.title, t)
		}
	}
	return b.String()
}

// ditto stands where a line repeats the one of the bucket's first layer.
const ditto = "″"

// tableNames are the tables of a report.
var tableNames = []string{"ranks", "layers", "buckets", "iterations"}

// table is one of a report's tables: what is shown, and what machines read.
type table struct {
	title string
	left  int // how many columns at the left are words
	names []string
	rows  [][]string
}

// String returns the table with its columns below each other.
func (t table) String() string {
	widths := make([]int, len(t.names))
	for _, row := range append([][]string{t.names}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	var b strings.Builder
	for _, row := range append([][]string{t.names}, t.rows...) {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-len([]rune(cell)))
			if i < t.left || t.names[i] == "layers" {
				line.WriteString("  " + cell + pad)
			} else {
				line.WriteString("  " + pad + cell)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

func (r *Report) table(name string) table {
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

func (r *Report) rankTable() table {
	t := table{title: "Ranks, ms an iteration:", left: 2, names: []string{"rank", "host", "total"}}
	var sum Times
	for i := range r.Ranks {
		for p, d := range r.Ranks[i].Times {
			sum[p] += d
		}
	}
	used := usedParts(sum)
	for _, p := range used {
		t.names = append(t.names, p.String())
	}
	t.names = append(t.names, "held up")
	for i := range r.Ranks {
		x := &r.Ranks[i]
		row := []string{strconv.Itoa(x.Rank), x.Host, ms(x.Times.Total())}
		for _, p := range used {
			row = append(row, ms(x.Times[p]))
		}
		t.rows = append(t.rows, append(row, ms(x.HeldUp)))
	}
	return t
}

// usedParts returns the parts that have any time.
func usedParts(sum Times) []Part {
	var used []Part
	for p := range Parts {
		if sum[p] > 0 {
			used = append(used, p)
		}
	}
	return used
}

func (r *Report) layerTable() table {
	t := table{
		title: "Layers, ms an iteration, mean over the ranks (communication: that of the layer's bucket, once):", left: 2,
		names: []string{"layer", "bucket", "forward", "backward", "slowest rank", "its time", "push", "pull", "hidden", "exposed", "skew"},
	}
	shown := map[int]bool{}
	for _, l := range r.Layers {
		row := []string{l.Name, "", ms(l.Forward), ms(l.Backward), strconv.Itoa(r.Ranks[l.Slowest].Rank), ms(l.SlowestTime)}
		switch {
		case l.Bucket < 0:
			row = append(row, "", "", "", "", "")
		case shown[l.Bucket]:
			row[1] = strconv.Itoa(r.Buckets[l.Bucket].Bucket)
			row = append(row, ditto, ditto, ditto, ditto, ditto)
		default:
			shown[l.Bucket] = true
			b := &r.Buckets[l.Bucket]
			both := b.Push
			both.add(b.Pull)
			row[1] = strconv.Itoa(b.Bucket)
			row = append(row, ms(b.Push.Flight), ms(b.Pull.Flight), ms(both.Hidden), ms(both.Exposed), ms(both.Skew))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

func (r *Report) bucketTable() table {
	t := table{title: "Buckets, ms an iteration, mean over the ranks:", left: 2}
	t.names = []string{"bucket", "way", "size", "in flight", "MB/s", "hidden", "behind", "exposed", "skew", "layers"}
	for i := range r.Buckets {
		b := &r.Buckets[i]
		for _, way := range []struct {
			name string
			c    Communication
		}{{"push", b.Push}, {"pull", b.Pull}} {
			c := way.c
			if c == (Communication{}) {
				continue
			}
			rate := "-"
			if c.Flight > 0 {
				rate = strconv.FormatFloat(c.Rate(b.Bytes), 'f', 0, 64)
			}
			t.rows = append(t.rows, []string{
				strconv.Itoa(b.Bucket), way.name, size(b.Bytes), ms(c.Flight), rate,
				ms(c.Hidden), ms(c.Behind), ms(c.Exposed), ms(c.Skew), layerList(b.Layers, 4),
			})
		}
	}
	return t
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

func (r *Report) iterationTable() table {
	t := table{title: "Iterations, the critical path, ms:", left: 1, names: []string{"iteration", "total"}}
	for p := range Parts {
		t.names = append(t.names, p.String())
	}
	for i := range r.Iterations {
		it := &r.Iterations[i]
		row := []string{strconv.Itoa(it.Iter), ms(it.Path.Total())}
		for _, d := range it.Path {
			row = append(row, ms(d))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// CSV writes one of the report's tables: ranks, layers, buckets or iterations.
// Times are in ms.
func (r *Report) CSV(w io.Writer, name string) error {
	for _, known := range tableNames {
		if name != known {
			continue
		}
		t := r.table(name)
		c := csv.NewWriter(w)
		if err := c.Write(t.names); err != nil {
			return err
		}
		for _, row := range t.rows {
			for i := range row {
				switch row[i] {
				case "-":
					row[i] = "0"
				case ditto:
					row[i] = ""
				}
			}
			if err := c.Write(row); err != nil {
				return err
			}
		}
		c.Flush()
		return c.Error()
	}
	return fmt.Errorf("there is no table %q: the tables are %s", name, strings.Join(tableNames, ", "))
}

// MarshalJSON writes times as {"forward_ns": 1, ...}, those that are not 0.
func (t Times) MarshalJSON() ([]byte, error) {
	m := map[string]int64{"total_ns": int64(t.Total())}
	for p, d := range t {
		if d != 0 {
			m[Part(p).String()+"_ns"] = int64(d)
		}
	}
	return json.Marshal(m)
}
