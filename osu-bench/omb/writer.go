package omb

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// writer writes rows on the one rank that speaks; on the others it writes to
// nothing.
type writer interface {
	begin(t Type, ran []selection) // what the first subject will run, by size
	rows(rows []Row)               // of one case, one for each subject
	failed(row Row)                // after rows: a validation failed, the program ends
}

func newWriter(r *runner, to io.Writer) writer {
	switch {
	case r.opts.Format == "json":
		return &jsonWriter{json.NewEncoder(to)}
	case r.opts.Format == "csv":
		return &csvWriter{to: csv.NewWriter(to)}
	case len(r.subjects) > 1:
		return &compareWriter{to: to, run: r}
	}
	return &ombWriter{to: to, program: r.program, opts: &r.opts}
}

// OMB's widths, as its configure script sets them.
const (
	sizeWidth       = 10
	fieldWidth      = 18
	iterationsWidth = 12
)

// ombWriter writes OMB's table, byte for byte but for one more comment above
// the header: which algorithm serves which sizes.
type ombWriter struct {
	to      io.Writer
	program Program
	opts    *Options
	begun   bool
}

func (w *ombWriter) begin(t Type, ran []selection) {
	if !w.begun {
		fmt.Fprintf(w.to, "\n%s\n", w.program.title())
		if w.program.is(nonblocking) {
			fmt.Fprintf(w.to, "# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n\n")
		}
	}
	w.begun = true
	if len(ran) > 0 {
		fmt.Fprintf(w.to, "# Algorithm: %s\n", ranges(ran))
	}
	fmt.Fprintf(w.to, "# Datatype: %s.\n", t.Name)
	fmt.Fprintf(w.to, "%-*s", sizeWidth, "# Size")
	for _, name := range w.columns() {
		if strings.HasPrefix(name, "P100 ") {
			name = " " + name // one wider than the field, in OMB too
		}
		fmt.Fprintf(w.to, "%*s", width(name), name)
	}
	fmt.Fprintln(w.to)
}

// selection is the algorithm that serves a size.
type selection struct {
	bytes     int
	algorithm string
}

// ranges returns the sizes that each algorithm serves, as in
// "binomial (1-8192), chain,chunk=256K (16384-1048576)"; where there is one
// algorithm for all, only that.
func ranges(ran []selection) string {
	var parts []string
	for first := 0; first < len(ran); {
		last := first
		for last+1 < len(ran) && ran[last+1].algorithm == ran[first].algorithm {
			last++
		}
		if first == 0 && last == len(ran)-1 {
			return ran[0].algorithm
		}
		sizes := strconv.Itoa(ran[first].bytes)
		if last > first {
			sizes += "-" + strconv.Itoa(ran[last].bytes)
		}
		parts = append(parts, fmt.Sprintf("%s (%s)", ran[first].algorithm, sizes))
		first = last + 1
	}
	return strings.Join(parts, ", ")
}

// columns are those after the size.
func (w *ombWriter) columns() []string {
	var names []string
	tail := "Lat(us)"
	switch {
	case w.program.is(bandwidth):
		names, tail = []string{"Bandwidth (MB/s)"}, "BW(MB/s)"
	case w.program.is(nonblocking) && w.opts.Full:
		names = []string{
			"Overall(us)", "Compute(us)", "Coll. Init(us)", "MPI_Test(us)", "MPI_Wait(us)",
			"Pure Comm.(us)", "Min Comm.(us)", "Max Comm.(us)", "Overlap(%)",
		}
	case w.program.is(nonblocking):
		names = []string{"Overall(us)", "Compute(us)", "Pure Comm.(us)", "Overlap(%)"}
	case w.opts.Full:
		names = []string{"Avg Latency(us)", "Min Latency(us)", "Max Latency(us)", "Iterations"}
	default:
		names = []string{"Avg Latency(us)"}
	}
	if w.opts.Validate {
		names = append(names, "Validation")
	}
	for _, p := range w.opts.Percentiles {
		names = append(names, fmt.Sprintf("P%d Tail %s", p, tail))
	}
	return names
}

func width(column string) int {
	if column == "Iterations" {
		return iterationsWidth
	}
	return fieldWidth
}

func (w *ombWriter) rows(rows []Row) {
	for i := range rows {
		row := &rows[i]
		fmt.Fprintf(w.to, "%-*d", sizeWidth, row.Size)
		for _, v := range w.values(row) {
			fmt.Fprintf(w.to, "%*.2f", fieldWidth, v)
		}
		if w.opts.Full && w.program.is(blocking|local) {
			fmt.Fprintf(w.to, "%*d", iterationsWidth, row.Iterations)
		}
		if row.validated {
			fmt.Fprintf(w.to, "%*s", fieldWidth, row.validation())
		}
		for _, p := range row.Percentiles {
			fmt.Fprintf(w.to, "%*.2f", fieldWidth, p.Value)
		}
		fmt.Fprintln(w.to)
	}
}

// values are those of the columns but the last ones.
func (w *ombWriter) values(row *Row) []float64 {
	o := row.Overlap
	switch {
	case w.program.is(bandwidth):
		return []float64{row.Bandwidth}
	case o != nil && w.opts.Full:
		return []float64{o.Overall, o.Compute, o.Begin, o.Test, o.Wait, o.Pure, o.MinComm, o.MaxComm, o.Percent}
	case o != nil:
		return []float64{o.Overall, o.Compute, o.Pure, o.Percent}
	case w.opts.Full:
		return []float64{row.Avg, row.Min, row.Max}
	}
	return []float64{row.Avg}
}

func (w *ombWriter) failed(row Row) { failedLine(w.to, row) }

func failedLine(to io.Writer, row Row) {
	fmt.Fprintf(to, "DATA VALIDATION ERROR: %s exited with status 1 on message size %d.\n", row.Program, row.Size)
}

// compareWriter writes one line a size with a group of columns for each
// algorithm. No column holds a space.
type compareWriter struct {
	to    io.Writer
	run   *runner
	begun bool
}

// column is one of a group: its name, its width and its value.
type column struct {
	name  string
	width int
	value func(row *Row) string
}

func (w *compareWriter) columns(first bool) []column {
	p, o := w.run.program, &w.run.opts
	cs := []column{
		{"time(us)", 12, func(r *Row) string { return fixed(r.Time.Median) }},
		{"95%", 22, func(r *Row) string { return r.Time.String() }},
	}
	if p.is(nonblocking) {
		cs = append(cs,
			column{"pure(us)", 12, func(r *Row) string { return fixed(r.Overlap.Pure) }},
			column{"overlap(%)", 12, func(r *Row) string { return fixed(r.Overlap.Percent) }})
	} else {
		cs = append(cs,
			column{"algbw(GB/s)", 13, func(r *Row) string { return fixed(r.Algbw) }},
			column{"busbw(GB/s)", 13, func(r *Row) string { return fixed(r.Busbw) }})
	}
	if !first {
		cs = append(cs, column{"ratio", 8, (*Row).ratio})
	}
	if o.Validate {
		cs = append(cs, column{"valid", 7, (*Row).validation})
	}
	return cs
}

// ratio is the time over the first algorithm's, or the word that says that
// they cannot be told apart.
func (row *Row) ratio() string {
	if row.Verdict == Same {
		return string(Same)
	}
	return strconv.FormatFloat(row.Ratio, 'f', 3, 64)
}

func fixed(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }

func (w *compareWriter) begin(t Type, _ []selection) {
	if !w.begun {
		fmt.Fprintf(w.to, "\n%s\n# %s\n", w.run.program.title(), w.run.describe())
		fmt.Fprintf(w.to, "# time: the slowest rank of each iteration, median over iterations, with its 95%% confidence interval\n")
		fmt.Fprintf(w.to, "# ratio: time over that of %s; %q where the intervals overlap\n", w.run.subjects[0].label(), Same)
	}
	w.begun = true
	fmt.Fprintf(w.to, "# Datatype: %s.\n%-*s", t.Name, sizeWidth, "#")
	for i, s := range w.run.subjects {
		total := 0
		for _, c := range w.columns(i == 0) {
			total += c.width
		}
		fmt.Fprintf(w.to, "  %-*s", total-2+ranWidth(s), s.label())
	}
	fmt.Fprintf(w.to, "\n%-*s", sizeWidth, "# Size")
	for i, s := range w.run.subjects {
		for _, c := range w.columns(i == 0) {
			fmt.Fprintf(w.to, "%*s", c.width, c.name)
		}
		if n := ranWidth(s); n > 0 {
			fmt.Fprintf(w.to, "%*s", n, "ran")
		}
	}
	fmt.Fprintln(w.to)
}

// ranWidth is the width of the column with the spec that ran, where the name
// of the group does not say it: 0 for none.
func ranWidth(s subject) int {
	if l := s.label(); l == "tuned" || l == "best" {
		return 24
	}
	return 0
}

func (w *compareWriter) rows(rows []Row) {
	var line strings.Builder
	fmt.Fprintf(&line, "%-*d", sizeWidth, rows[0].Size)
	for i := range rows {
		for _, c := range w.columns(i == 0) {
			fmt.Fprintf(&line, "%*s", c.width, c.value(&rows[i]))
		}
		if n := ranWidth(w.run.subjects[i]); n > 0 {
			fmt.Fprintf(&line, " %*s", n-1, rows[i].Algorithm)
		}
	}
	fmt.Fprintln(w.to, line.String())
}

func (w *compareWriter) failed(row Row) { failedLine(w.to, row) }

// where says what a row's numbers depend on beside itself.
func (r *runner) where() (nodes int, library, barrier string) {
	library, barrier = "none", "scaffe"
	if r.mpi != nil {
		library = r.mpi.info
	}
	if r.meetsMPI {
		barrier = "mpi"
	}
	return r.comm.Layout().Nodes, library, barrier
}

// describe is where in a line.
func (r *runner) describe() string {
	nodes, library, barrier := r.where()
	return fmt.Sprintf("ranks: %d, nodes: %d, MPI: %s, buffers: %s, barrier: %s", r.comm.Size(), nodes, library, r.opts.Buffers, barrier)
}

// fields are the names and values of a row, in order, for json and csv. A
// name is there whether the program has it or not; its value may be nil.
func (row *Row) fields() (names []string, values []any) {
	add := func(name string, v any) {
		if f, is := v.(float64); is && (math.IsNaN(f) || math.IsInf(f, 0)) {
			v = nil
		}
		names, values = append(names, name), append(values, v)
	}
	add("program", row.Program)
	add("size", row.Size)
	add("datatype", row.Datatype)
	add("asked", row.Asked)
	add("algorithm", row.Algorithm)
	add("ranks", row.Ranks)
	add("nodes", row.Nodes)
	add("mpi", row.MPI)
	add("buffers", row.Buffers)
	add("barrier", row.Barrier)
	add("iterations", row.Iterations)
	add("time_us", row.Time.Median)
	low, high := any(nil), any(nil)
	if row.Time.Certain {
		low, high = row.Time.Low, row.Time.High
	}
	add("time_low_us", low)
	add("time_high_us", high)
	add("ratio", row.Ratio)
	add("verdict", string(row.Verdict))
	add("algbw_gbs", row.Algbw)
	add("busbw_gbs", row.Busbw)
	add("avg_us", row.Avg)
	add("min_us", row.Min)
	add("max_us", row.Max)
	o := row.Overlap
	for i, name := range []string{
		"compute_us", "init_us", "test_us", "wait_us", "pure_us", "min_comm_us", "max_comm_us", "overlap_percent",
	} {
		if o == nil {
			add(name, nil)
			continue
		}
		add(name, []float64{o.Compute, o.Begin, o.Test, o.Wait, o.Pure, o.MinComm, o.MaxComm, o.Percent}[i])
	}
	if row.Bandwidth > 0 {
		add("bandwidth_mbs", row.Bandwidth)
	} else {
		add("bandwidth_mbs", nil)
	}
	for _, p := range row.Percentiles {
		add(fmt.Sprintf("p%d", p.P), p.Value)
	}
	if row.validated {
		add("wrong", row.Wrong)
	} else {
		add("wrong", nil)
	}
	return names, values
}

// jsonWriter writes an object a row.
type jsonWriter struct{ to *json.Encoder }

func (w *jsonWriter) begin(Type, []selection) {}

func (w *jsonWriter) rows(rows []Row) {
	for i := range rows {
		names, values := rows[i].fields()
		object := map[string]any{}
		for j, v := range values {
			if v != nil {
				object[names[j]] = v
			}
		}
		_ = w.to.Encode(object) // a reader that is gone is no reason to stop
	}
}

func (w *jsonWriter) failed(Row) {}

// csvWriter writes a line a row, below one of names.
type csvWriter struct {
	to    *csv.Writer
	begun bool
}

func (w *csvWriter) begin(Type, []selection) {}

func (w *csvWriter) rows(rows []Row) {
	for i := range rows {
		names, values := rows[i].fields()
		if !w.begun {
			_ = w.to.Write(names)
		}
		w.begun = true
		line := make([]string, len(values))
		for j, v := range values {
			if v != nil {
				line[j] = fmt.Sprint(v)
			}
		}
		_ = w.to.Write(line)
	}
	w.to.Flush()
}

func (w *csvWriter) failed(Row) {}
