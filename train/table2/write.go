package table2

import (
	"fmt"
	"io"
	"time"

	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/version"
)

// Write writes the report. Speedups are relative to the first row; that of an
// aggregation that no rank waits for is infinite: "hidden" in text, missing
// elsewhere.
func (r *Report) Write(w io.Writer, f report.Format) error {
	t := report.Table[Result]{
		Head: []report.Field{
			{Name: "net", Value: r.Net},
			{Name: "version", Value: version.String()},
			{Name: "parameters", Value: r.Parameters},
			{Name: "global_batch", Value: r.GlobalBatch},
			{Name: "ranks", Value: r.Layout.Ranks},
			{Name: "nodes", Value: r.Layout.Nodes},
			{Name: "aggregate", Value: r.Aggregate},
			{Name: "warmup", Value: r.Warmup},
			{Name: "iterations", Value: r.Iterations},
			{Name: "rounds", Value: r.Rounds},
		},
		Above: []string{
			fmt.Sprintf("net %q: %d parameters, %v, global batch %d, aggregate %v", r.Net, r.Parameters, r.Layout, r.GlobalBatch, r.Aggregate),
			fmt.Sprintf("ms per iteration on the slowest rank; medians of %d rounds with %d iterations in all", r.Rounds, r.Iterations),
			"",
		},
		Columns: r.columns(),
		Rows:    r.Results,
	}
	return t.Write(w, f)
}

func (r *Report) columns() []report.Column[Result] {
	type column = report.Column[Result]
	aggregation := func(x Result) float64 { return speedup(r.Results[0].Aggregation, x.Aggregation) }
	overall := func(x Result) float64 { return speedup(r.Results[0].Total, x.Total) }
	return []column{
		{Name: "algorithm", Left: true, Value: func(x Result) any { return x.Algorithm }},
		{Name: "spec", Hidden: true, Value: func(x Result) any { return x.Spec.Name() }},
		{Name: "design", Left: true, Value: func(x Result) any { return x.Design.String() }},
		{Name: "buckets", Hidden: true, Value: func(x Result) any { return x.Buckets }},
		{Name: "least_bucket_bytes", Hidden: true, Value: func(x Result) any { return x.LeastBucket }},
		{Name: "aggregation_ms", Title: "aggregation", Digits: 2, Value: func(x Result) any { return x.Aggregation }},
		{Name: "exposed_ms", Title: "exposed", Digits: 2, Value: func(x Result) any { return x.Exposed }},
		{Name: "in_flight_ms", Title: "in flight", Digits: 2, Value: func(x Result) any { return x.InFlight }},
		{Name: "total_ms", Title: "total", Digits: 2, Value: func(x Result) any { return x.Total }},
		{Name: "aggregation_speedup", Title: "speedup for aggregation", Value: func(x Result) any { return times(aggregation(x)) }},
		{Name: "overall_speedup", Value: func(x Result) any { return times(overall(x)) }},
	}
}

func speedup(first, x time.Duration) float64 {
	if first == x {
		return 1
	}
	return float64(first) / float64(x)
}

// times is a speedup; large ones are no more precise than what they are made
// of.
func times(x float64) report.Shown {
	if x >= 1000 {
		return report.Shown{Value: x, Text: "hidden"}
	}
	return report.Shown{Value: x, Text: fmt.Sprintf("%.2f", x)}
}
