package trace

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/svg"
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

// Title says in a line what was traced.
func (r *Report) Title() string {
	hosts := map[string]bool{}
	for i := range r.Ranks {
		hosts[r.Ranks[i].Host] = true
	}
	out := svg.Count(len(r.Ranks), "rank") + " on " + svg.Count(len(hosts), "node")
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

// OrderNote says what did not go in the order of urgency; it is empty where all did.
func (r *Report) OrderNote() string {
	overtaken, letGo := 0, 0
	for i := range r.Ranks {
		overtaken, letGo = overtaken+r.Ranks[i].Overtaken, letGo+r.Ranks[i].LetGo
	}
	if overtaken+letGo == 0 {
		return ""
	}
	e := &r.HeldBack
	return fmt.Sprintf("Out of order in all: %d overtaken by something less urgent, %d let go by patience; the longest was %s, %v on rank %d in iteration %d after %s ms.",
		overtaken, letGo, e.Name, e.Kind, r.HeldBackRank, e.Iter, strconv.FormatFloat(float64(e.End-e.Begin)/1e6, 'f', 3, 64))
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
	for _, n := range []string{r.HiddenNote(), r.SlowestNote(), r.OrderNote()} {
		if n != "" {
			fmt.Fprintf(&b, "\n%s\n", n)
		}
	}
	for _, name := range tableNames {
		if name == "iterations" {
			continue
		}
		var lines strings.Builder
		if t := r.table(name); len(t.Grid().Cells) > 0 {
			_ = t.Write(&lines, report.Text) // to a strings.Builder
			fmt.Fprintf(&b, "\n%s\n\n", tableTitles[name])
			for l := range strings.Lines(lines.String()) {
				b.WriteString("  " + l)
			}
		}
	}
	return b.String()
}
