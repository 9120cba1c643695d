package replay

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/stats"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/internal/version"
	"github.com/scaffe/scaffe/nbc"
)

// Write writes the result: a row for each design or system, and what they have in
// common.
func (res *Result) Write(w io.Writer, f report.Format) error {
	t := report.Table[Row]{Head: res.head(), Above: res.comments(), Columns: columns(res.Systems), Rows: res.Rows}
	return t.Write(w, f)
}

func (res *Result) head() []report.Field {
	slow, one := res.Straggler.Factor > 0, !res.Systems
	return []report.Field{
		{Name: "profile", Value: res.Profile},
		{Name: "version", Value: version.String()},
		{Name: "net", Value: res.Net},
		{Name: "source", Value: strings.ReplaceAll(res.Source, "\n", "; ")}, // a row of CSV stays a line
		{Name: "ranks", Value: res.Ranks},
		{Name: "workers", Value: res.Workers},
		{Name: "nodes", Value: res.Nodes},
		{Name: "batch", Value: res.Batch},
		{Name: "parameters", Value: res.Elements},
		{Name: "bytes", Value: res.Bytes},
		{Name: "aggregate", Value: report.Optional(res.Scheme, one)},
		{Name: "algorithm", Value: res.Spec},
		{Name: "schemes", Value: report.Optional(res.Chosen, res.Chosen != "")},
		{Name: "bucket_bytes", Value: report.Optional(res.Bucket, one)},
		{Name: "buckets", Value: report.Optional(res.Buckets, one)},
		{Name: "last_bucket_bytes", Value: report.Optional(res.LastBytes, one)},
		{Name: "ratio", Value: report.Optional(res.Ratio, res.Ratio > 0)},
		{Name: "scale", Value: res.Scale},
		{Name: "jitter", Value: res.Jitter},
		{Name: "straggler", Value: report.Optional(res.Straggler.Rank, slow)},
		{Name: "straggler_factor", Value: report.Optional(res.Straggler.Factor, slow)},
		{Name: "checked", Value: res.Checked},
		{Name: "compute_ms", Value: res.Compute},
		{Name: "forward_ms", Value: res.Forward},
		{Name: "backward_ms", Value: res.Backward},
		{Name: "update_ms", Value: res.Update},
		{Name: "communication_ms", Value: res.Communication.Median},
		{Name: "communication_low_ms", Value: low(res.Communication)},
		{Name: "communication_high_ms", Value: high(res.Communication)},
		{Name: "tail_ms", Value: report.Optional(res.Tail.Median, one)},
		{Name: "tail_low_ms", Value: low(res.Tail)},
		{Name: "tail_high_ms", Value: high(res.Tail)},
		{Name: "target_ms", Value: report.Optional(res.Target, one)},
		{Name: "late_mean_ms", Value: res.LateMean},
		{Name: "late_max_ms", Value: res.LateMost},
	}
}

// low and high are the ends of a confidence interval, where there is one.
func low(i stats.Interval) any  { return report.Optional(i.Low, i.Certain) }
func high(i stats.Interval) any { return report.Optional(i.High, i.Certain) }

// precisely shows an interval about 1 to a thousandth.
func precisely(i stats.Interval) string {
	if !i.Certain {
		return i.String()
	}
	return fmt.Sprintf("%.3f-%.3f", i.Low, i.High)
}

// columns are the same for designs and systems; in text, each has what is of use there.
func columns(systems bool) []report.Column[Row] {
	type column = report.Column[Row]
	return []column{
		{Name: "system", Left: true, Hidden: !systems, Value: func(r Row) any { return report.Optional(r.System, systems) }},
		{Name: "system_schemes", Hidden: true, Value: func(r Row) any { return report.Optional(r.Schemes, systems) }},
		{Name: "design", Left: true, Value: func(r Row) any { return r.Design }},
		{Name: "row_nodes", Title: "nodes", Hidden: !systems, Value: func(r Row) any { return r.Nodes }},
		{Name: "iterations", Value: func(r Row) any { return r.Iterations }},
		{Name: "iteration_ms", Digits: 2, Value: func(r Row) any { return report.Optional(r.Iteration.Median, r.measured()) }},
		{Title: "95 %", Value: func(r Row) any { return report.Optional(r.Iteration, r.measured()) }},
		{Name: "iteration_low_ms", Hidden: true, Value: func(r Row) any { return low(r.Iteration) }},
		{Name: "iteration_high_ms", Hidden: true, Value: func(r Row) any { return high(r.Iteration) }},
		{Name: "over_first", Title: "× first", Digits: 3, Hidden: !systems, Value: func(r Row) any { return report.Optional(r.OverFirst.Median, systems && r.measured()) }},
		{Title: "95 %", Hidden: !systems, Value: func(r Row) any { return report.Optional(precisely(r.OverFirst), systems && r.measured()) }},
		{Name: "over_first_low", Hidden: true, Value: func(r Row) any { return low(r.OverFirst) }},
		{Name: "over_first_high", Hidden: true, Value: func(r Row) any { return high(r.OverFirst) }},
		{Name: "predicted_ms", Digits: 2, Hidden: !systems, Value: func(r Row) any { return report.Optional(r.Predicted, systems) }},
		{Name: "exposed_ms", Digits: 2, Value: func(r Row) any { return r.Exposed }},
		{Name: "hidden", Title: "hidden %", Hidden: systems, Value: func(r Row) any {
			return report.Shown{Value: report.Optional(r.Hidden, !systems), Text: fmt.Sprintf("%.0f", 100*r.Hidden)}
		}},
		{Name: "wait_push_ms", Title: "wait push", Digits: 2, Value: func(r Row) any { return report.Optional(r.WaitPush, r.measured()) }},
		{Name: "wait_pull_ms", Title: "wait pull", Digits: 2, Value: func(r Row) any { return report.Optional(r.WaitPull, r.measured()) }},
		{Name: "over_max", Title: "× max", Digits: 3, Hidden: systems, Value: func(r Row) any { return report.Optional(r.OverMax, !systems) }},
		{Name: "over_basic", Title: "× SC-B", Digits: 3, Hidden: systems, Value: func(r Row) any { return report.Optional(r.OverBasic, r.OverBasic > 0) }},
		{Name: "target_met", Title: "target", Hidden: systems, Value: func(r Row) any {
			return report.Shown{Value: report.Optional(r.Met, !systems), Text: map[bool]string{true: "met", false: "missed"}[r.Met]}
		}},
		{Name: "stall", Title: "stall %", Hidden: !systems, Value: func(r Row) any {
			return report.Shown{Value: r.Stall, Text: fmt.Sprintf("%.1f", 100*r.Stall)}
		}},
		{Name: "speedup", Title: "speed-up", Digits: 2, Hidden: !systems, Value: func(r Row) any { return r.Speedup }},
		{Name: "node_bytes_least", Title: "MB per node: least", Hidden: !systems, Value: func(r Row) any { return megabytes(r.NodeBytes, slices.Min) }},
		{Name: "node_bytes_most", Title: "most", Hidden: !systems, Value: func(r Row) any { return megabytes(r.NodeBytes, slices.Max) }},
		{Name: "node_bytes", Hidden: true, Value: func(r Row) any { return r.nodes() }},
		{Name: "products_ms", Title: "products ms", Digits: 2, Hidden: !systems, Dash: true, Value: func(r Row) any { return report.Optional(r.Products, r.measured()) }},
		{Name: "waits_late_ms", Title: "late ms", Digits: 3, Hidden: !systems, Value: func(r Row) any { return report.Optional(r.Late, r.measured()) }},
		{Name: "carrying_ms", Title: "carrying ms", Digits: 1, Hidden: !systems, Dash: true, Value: func(r Row) any { return report.Optional(r.Carrying, r.Carrying > 0) }},
		{Name: "inversions", Hidden: true, Value: func(r Row) any { return report.Optional(r.Order.Inversions, r.measured()) }},
		{Name: "sum_inversions", Hidden: true, Value: func(r Row) any { return report.Optional(r.Order.Sums, r.measured()) }},
		{Name: "let_go_by_patience", Hidden: true, Value: func(r Row) any { return report.Optional(r.Order.Patience, r.measured()) }},
		{Name: "longest_wait_ms", Hidden: true, Value: func(r Row) any { return report.Optional(report.Milliseconds(r.Order.Longest), r.measured()) }},
		{Name: "turns_unix_ms", Hidden: true, Value: func(r Row) any { return r.turns() }},
		{Name: "images_per_second", Title: "images/s", Value: func(r Row) any {
			return report.Shown{Value: r.Rate, Text: fmt.Sprintf("%.4g", r.Rate)}
		}},
	}
}

// measured reports whether the row is of ranks that ran.
func (r *Row) measured() bool { return r.Iterations > 0 }

// megabytes shows one of the nodes' bytes, where these have been counted.
func megabytes(nodes []float64, which func([]float64) float64) any {
	if len(nodes) == 0 {
		return report.Optional(0.0, false)
	}
	bytes := which(nodes)
	return report.Shown{Value: bytes, Text: fmt.Sprintf("%.2f", bytes/1e6)}
}

// nodes is the bytes of each node in text.
func (r *Row) nodes() (all []string) {
	for _, bytes := range r.NodeBytes {
		all = append(all, fmt.Sprintf("%.0f", bytes))
	}
	return all
}

// turns is when each turn began and ended, in milliseconds since 1970.
func (r *Row) turns() (all []string) {
	for _, t := range r.Turns {
		all = append(all, fmt.Sprintf("%.3f-%.3f", float64(t.Begin.UnixMicro())/1e3, float64(t.End.UnixMicro())/1e3))
	}
	return all
}

// comments say, above the table, what the numbers depend on and mean.
func (res *Result) comments() []string {
	lines := []string{fmt.Sprintf("%s: %s, %d parameters (%.1f MB), batch %d; %d ranks on %d nodes",
		res.Profile, res.Net, res.Elements, float64(res.Bytes)/1e6, res.Batch, res.Ranks, res.Nodes)}
	if res.Workers < res.Ranks {
		lines[0] += fmt.Sprintf(", of which %d work", res.Workers)
	}
	for s := range strings.Lines(res.Source) {
		lines = append(lines, "times: "+strings.TrimSpace(s))
	}
	compute := fmt.Sprintf("compute %.2f ms: forward %.2f, backward %.2f, update %.2f", res.Compute, res.Forward, res.Backward, res.Update)
	if res.Scale != 1 {
		compute += fmt.Sprintf("; the profile's times × %.4g", res.Scale)
	}
	if res.Jitter > 0 {
		compute += fmt.Sprintf("; jitter ±%g %%", 100*res.Jitter)
	}
	if res.Straggler.Factor > 0 {
		compute += fmt.Sprintf("; rank %d takes %g times as long as the others", res.Straggler.Rank, res.Straggler.Factor)
	}
	lines = append(lines, compute)
	if res.Systems {
		lines = append(lines, res.ofSystems()...)
		return commented(append(lines, res.closing()...))
	}
	if ms := res.Rows[0].Products; ms > 0 {
		lines = append(lines, fmt.Sprintf("products %.2f ms, beside compute: gradients rebuilt from all ranks' factors, less what the own would have taken", ms))
	}
	for _, s := range res.Choices {
		if s != "" {
			lines = append(lines, strings.TrimPrefix(s, "# "))
		}
	}
	aggregate := res.Scheme
	if res.Chosen != "" {
		aggregate += ": " + res.Chosen
	}
	lines = append(lines,
		fmt.Sprintf("aggregate %s, algorithm %s, %d buckets of at least %s", aggregate, res.Spec, res.Buckets, units.FormatBytes(res.Bucket)),
		fmt.Sprintf("communication alone %.2f ms (%v), %.3g × compute; tail %.2f ms (%v), the bucket of %d bytes that is pushed last",
			res.Communication.Median, res.Communication, res.Communication.Median/max(res.Compute, 1e-9), res.Tail.Median, res.Tail, res.LastBytes),
		"iteration: the slowest rank's, median with its 95 % confidence interval; exposed: iteration less compute",
		fmt.Sprintf("target: %g × max(compute, communication) + tail = %.2f ms", Slack, res.Target))
	return commented(append(lines, res.closing()...))
}

// ofSystems says what the systems' rows mean.
func (res *Result) ofSystems() (lines []string) {
	for _, r := range res.Rows {
		where := ""
		if !r.measured() {
			where = fmt.Sprintf(" predicted on %d nodes", r.Nodes)
		}
		lines = append(lines, fmt.Sprintf("%s%s: %s, %s", r.System, where, r.Design, r.Schemes))
	}
	return append(lines,
		fmt.Sprintf("communication alone of ps under WFBP %.2f ms (%v), %.3g × compute; algorithm %s",
			res.Communication.Median, res.Communication, res.Communication.Median/max(res.Compute, 1e-9), res.Spec),
		"iteration: the slowest rank's, median with its 95 % confidence interval; predicted: by the cost model; exposed: iteration less compute",
		fmt.Sprintf("× first: the iteration over that of %s, turn by turn: the median with its 95 %% confidence interval, for which there must be six turns", res.Rows[0].System),
		"stall: exposed over iteration; speed-up: over one rank, which waits for nobody; products: what rebuilding gradients from factors computes more, no part of compute",
		"MB per node: payload of messages in and out in an iteration, by the engine's count; carrying: for how long that keeps the machine's cores busy, as measured of a stream")
}

// closing is how far the rows can be trusted.
func (res *Result) closing() []string {
	var order nbc.Order
	for _, r := range res.Rows {
		order = order.Add(r.Order)
	}
	lines := []string{fmt.Sprintf("order: %v", order), fmt.Sprintf("waits for computation ended %.3f ms late on average, %.3f ms at most", res.LateMean, res.LateMost)}
	if res.Checked {
		lines = append(lines, "every sum and every parameter is right on every rank")
	}
	return lines
}

func commented(lines []string) []string {
	for i := range lines {
		lines[i] = "# " + lines[i]
	}
	return lines
}
