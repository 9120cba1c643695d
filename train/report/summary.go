package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/scaffe/scaffe/train"
)

// rowsInFull is how many ranks the summary lists one by one.
const rowsInFull = 16

// writeSummary writes where the time of the ranks went.
func writeSummary(out io.Writer, s train.Summary) {
	if s.Iterations == 0 {
		return
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	// The note after the last tab is not aligned.
	fmt.Fprintln(w, "rank\tcompute\texposed communication\tinput\tqueue\twaited for\tstarved\t")
	slow, times, straggles := s.Straggler()
	for _, x := range summaryRows(s.Ranks) {
		r := x.RankTimes
		note := ""
		if straggles && r.Rank == slow.Rank {
			note = fmt.Sprintf("  straggler: %.1f × the median rank", times)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d of %d\t%s\t%s\n", x.name, each(r.Compute, s), each(r.Exposed, s), each(r.Input, s),
			queue(r), r.Readers.Waits, r.Readers.Batches, milliseconds(r.Readers.Starved), note)
	}
	_ = w.Flush() // a summary that nobody reads is no failure
	fmt.Fprintln(out, "compute, exposed communication, input: ms an iteration; queue: how many batches the net found decoded,\n"+
		"of how many at most; waited for: batches that were not in time; starved: ms in all")
	m := s.Moves
	if len(s.Ranks) > 1 {
		fmt.Fprintf(out, "collectives of rank 0: gradients %s ms, parameters %s ms in flight an iteration; %.0f %% hidden\n",
			each(m.Push, s), each(m.Pull, s), 100*m.Hidden())
	}
	if s.Skipped > 0 {
		fmt.Fprintf(out, "skipped: %d updates, for numbers that were not finite\n", s.Skipped)
	}
}

// summaryRow is a rank of the summary.
type summaryRow struct {
	name string
	train.RankTimes
}

// summaryRows are all ranks or, where they are many, the ones that computed
// and read the shortest, the median, and the longest.
func summaryRows(all []train.RankTimes) []summaryRow {
	var rows []summaryRow
	if len(all) <= rowsInFull {
		for _, r := range all {
			rows = append(rows, summaryRow{strconv.Itoa(r.Rank), r})
		}
		return rows
	}
	byWork := slices.Clone(all)
	slices.SortStableFunc(byWork, func(a, b train.RankTimes) int { return cmp.Compare(a.Compute+a.Input, b.Compute+b.Input) })
	for _, x := range []struct {
		what string
		i    int
	}{{"fastest", 0}, {"median", (len(byWork) - 1) / 2}, {"slowest", len(byWork) - 1}} {
		rows = append(rows, summaryRow{fmt.Sprintf("%s: %d", x.what, byWork[x.i].Rank), byWork[x.i]})
	}
	return rows
}

// queue is how full a rank's queues were.
func queue(r train.RankTimes) string {
	if r.Readers.Loaders == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f of %.0f", r.Readers.MeanQueued(), r.Readers.MeanDepth())
}

// each is a time of all iterations, for one.
func each(d time.Duration, s train.Summary) string {
	return milliseconds(d / time.Duration(s.Iterations))
}

// milliseconds writes a time with about three digits.
func milliseconds(d time.Duration) string {
	ms := d.Seconds() * 1e3
	digits := 2
	for x := 10.0; ms >= x && digits > 0; x *= 10 {
		digits--
	}
	return strings.TrimPrefix(strconv.FormatFloat(ms, 'f', digits, 64), "-")
}
