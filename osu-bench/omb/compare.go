package omb

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/scaffe/scaffe/collectives/spec"
)

// compareWriter writes one line a size with a group of columns for each
// algorithm. No column holds a space.
type compareWriter struct {
	to    io.Writer
	run   *runner
	begun bool
}

// groupColumn is a column of a group: its name, its width and its value.
type groupColumn struct {
	name  string
	width int
	value func(row *Row) string
}

func (w *compareWriter) columns(first bool) []groupColumn {
	p, o := w.run.program, &w.run.opts
	cs := []groupColumn{
		{"time(us)", 12, func(r *Row) string { return fixed(r.Time.Median) }},
		{"95%", 22, func(r *Row) string { return r.Time.String() }},
	}
	switch {
	case p.is(nonblocking):
		cs = append(cs,
			groupColumn{"pure(us)", 12, func(r *Row) string { return fixed(r.Overlap.Pure) }},
			groupColumn{"overlap(%)", 12, func(r *Row) string { return fixed(r.Overlap.Percent) }})
	case p.is(withData):
		cs = append(cs,
			groupColumn{"algbw(GB/s)", 13, func(r *Row) string { return fixed(r.Algbw) }},
			groupColumn{"busbw(GB/s)", 13, func(r *Row) string { return fixed(r.Busbw) }})
	}
	if !first {
		cs = append(cs, groupColumn{"ratio", 8, (*Row).ratio})
	}
	if o.Validate {
		cs = append(cs, groupColumn{"valid", 7, (*Row).validation})
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

func (w *compareWriter) begin(t Type, _ []servedBy) {
	if !w.begun {
		fmt.Fprintf(w.to, "\n%s\n# %s\n", w.run.program.title(), w.run.describe())
		fmt.Fprintf(w.to, "# time: the slowest rank of each iteration, median over iterations, with its 95%% confidence interval\n")
		fmt.Fprintf(w.to, "# ratio: time over that of %s; %q where the intervals overlap\n", w.run.subjects[0].label(), Same)
	}
	w.begun = true
	if w.run.program.is(withData) {
		fmt.Fprintf(w.to, "# Datatype: %s.\n", t.Name)
	}
	fmt.Fprintf(w.to, "%-*s", sizeWidth, "#")
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
	if l := s.label(); l == spec.Tuned || l == "best" {
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
