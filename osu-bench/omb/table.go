package omb

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

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

func (w *ombWriter) begin(t Type, ran []servedBy) {
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
	columns := w.columns()
	if w.program.is(barrier) {
		fmt.Fprint(w.to, "# ", columns[0])
		columns = columns[1:]
	} else {
		fmt.Fprintf(w.to, "# Datatype: %s.\n", t.Name)
		fmt.Fprintf(w.to, "%-*s", sizeWidth, "# Size")
	}
	for _, name := range columns {
		if strings.HasPrefix(name, "P100 ") {
			name = " " + name // one wider than the field, in OMB too
		}
		fmt.Fprintf(w.to, "%*s", width(name), name)
	}
	fmt.Fprintln(w.to)
}

// servedBy is the algorithm that serves a size.
type servedBy struct {
	bytes     int
	algorithm string
}

// ranges returns the sizes that each algorithm serves, as in
// "binomial (1-8192), chain,chunk=256K (16384-1048576)"; where there is one
// algorithm for all, only that.
func ranges(ran []servedBy) string {
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
		values := w.values(row)
		if w.program.is(barrier) { // as wide as the header
			fmt.Fprintf(w.to, "%*.2f", fieldWidth-1, values[0])
			values = values[1:]
		} else {
			fmt.Fprintf(w.to, "%-*d", sizeWidth, row.Size)
		}
		for _, v := range values {
			fmt.Fprintf(w.to, "%*.2f", fieldWidth, v)
		}
		if w.opts.Full && w.program.is(blocking|barrier|local) {
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
