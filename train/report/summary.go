package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/train"
)

// rowsInFull is how many ranks the summary lists one by one.
const rowsInFull = 16

// writeSummary writes what a run came to, and where the time of the ranks went.
func writeSummary(out io.Writer, s train.Summary) error {
	_, err := fmt.Fprintf(out, "%d iterations, %d images in %.1f s: %s\n", s.Iterations, s.Images, s.Total.Seconds(), rates(s))
	if err != nil || s.Iterations == 0 {
		return err
	}
	t := report.Table[summaryRow]{
		Above:   []string{""},
		Columns: summaryColumns(s),
		Rows:    summaryRows(s.Ranks),
		Below: []string{
			"compute, exposed communication, input: ms per iteration; queue: how many batches the net found decoded,",
			"of how many at most; waited for: batches that were not in time; starved: ms in all",
		},
	}
	if m := s.Collectives; len(s.Ranks) > 1 {
		t.Below = append(t.Below, fmt.Sprintf("collectives of rank 0: gradients %s ms, parameters %s ms in flight per iteration; %.0f %% hidden",
			each(m.Push, s), each(m.Pull, s), 100*m.Hidden()))
	}
	if len(s.Ranks) > 1 {
		t.Below = append(t.Below, fmt.Sprintf("order: %v", s.Order))
	}
	if s.Skipped > 0 {
		t.Below = append(t.Below, fmt.Sprintf("skipped: %d updates, for numbers that were not finite", s.Skipped))
	}
	if g := s.GPU; g != nil {
		n := int64(s.Iterations)
		t.Below = append(t.Below, fmt.Sprintf("%s: %.1f MB of its memory, %.1f MB pinned; an iteration: %.3f MB up, %.3f MB down, waits %.1f for the loss and what goes with it, %.1f others (in all, with tests and snapshots: %d)",
			g.Name, float64(g.Memory)/1e6, float64(g.Pinned)/1e6, float64(g.Up/n)/1e6, float64(g.Down/n)/1e6, float64(g.Fetches)/float64(n), float64(g.Inside)/float64(n), g.Waits))
	}
	for rank, n := range s.LeftOut {
		if n > 0 {
			t.Below = append(t.Below, fmt.Sprintf("left out for being late: rank %d, of %d of %d iterations", rank, n, s.Iterations))
		}
	}
	for rank, lag := range s.Lag {
		if lag.Most > 0 {
			t.Below = append(t.Below, fmt.Sprintf("behind the foremost worker: rank %d, by %.1f iterations, %d at most", rank, lag.Mean(s.Iterations), lag.Most))
		}
	}
	if err := t.Write(out, report.Text); err != nil || len(s.Buckets) == 0 {
		return err
	}
	b := bucketTable(s.Buckets)
	b.Above = []string{""}
	b.Below = []string{
		"an iteration: MB in and out of the busiest rank, by the scheme's formula and by the engine's count; ms in flight,",
		"as predicted of each bucket alone, and beside all else on the rank where it took the least and the most",
	}
	if s.Choice != "" {
		b.Below = append(b.Below, "schemes "+s.Choice)
	}
	return b.Write(out, report.Text)
}

// bucketTable is what the buckets cost, for people and programs.
func bucketTable(buckets []train.BucketCost) *report.Table[train.BucketCost] {
	megabytes := func(bytes float64) report.Shown {
		return report.Shown{Value: bytes, Text: fmt.Sprintf("%.4g", bytes/1e6)}
	}
	return &report.Table[train.BucketCost]{Rows: buckets, Columns: []report.Column[train.BucketCost]{
		{Name: "name", Title: "bucket", Left: true, Value: func(b train.BucketCost) any { return b.Name }},
		{Name: "scheme", Left: true, Value: func(b train.BucketCost) any { return b.Scheme }},
		{Name: "predicted_bytes", Title: "predicted MB", Value: func(b train.BucketCost) any { return megabytes(b.PredictedBytes) }},
		{Name: "payload_bytes", Title: "MB", Value: func(b train.BucketCost) any {
			return report.Optional(megabytes(float64(b.Payload)), b.Payload > 0)
		}},
		{Name: "predicted_ms", Title: "predicted ms", Digits: 3, Value: func(b train.BucketCost) any { return b.Predicted }},
		{Name: "least_ms", Title: "least ms", Digits: 3, Value: func(b train.BucketCost) any { return b.Least }},
		{Name: "most_ms", Title: "most ms", Digits: 3, Value: func(b train.BucketCost) any { return b.Most }},
	}}
}

func summaryColumns(s train.Summary) []report.Column[summaryRow] {
	slow, times, straggles := s.Straggler()
	return []report.Column[summaryRow]{
		{Title: "rank", Value: func(r summaryRow) any { return r.name }},
		{Title: "compute", Value: func(r summaryRow) any { return each(r.Compute, s) }},
		{Title: "exposed communication", Value: func(r summaryRow) any { return each(r.Exposed, s) }},
		{Title: "input", Value: func(r summaryRow) any { return each(r.Input, s) }},
		{Title: "queue", Value: func(r summaryRow) any { return queue(r.RankTimes) }},
		{Title: "waited for", Value: func(r summaryRow) any { return fmt.Sprintf("%d of %d", r.Readers.Waits, r.Readers.Batches) }},
		{Title: "starved", Value: func(r summaryRow) any { return milliseconds(r.Readers.Starved) }},
		{Left: true, Value: func(r summaryRow) any {
			if r.OnlyServes {
				return "only serves"
			}
			if !straggles || r.Rank != slow.Rank {
				return ""
			}
			return fmt.Sprintf("straggler: %.1f × the median rank", times)
		}},
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
	byWork := slices.DeleteFunc(slices.Clone(all), func(r train.RankTimes) bool { return r.OnlyServes })
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
