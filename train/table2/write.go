package table2

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/scaffe/scaffe/collectives"
)

// Formats are those that Write knows.
var Formats = []string{"text", "csv", "json"}

// CheckFormat refuses a format that Write does not know.
func CheckFormat(format string) error {
	if !slices.Contains(Formats, format) {
		return fmt.Errorf("format %q is unknown: use %s", format, strings.Join(Formats, ", "))
	}
	return nil
}

// Write writes the report. Speedups are relative to the first row; that of an
// aggregation which nobody waits for is infinite: null in JSON.
func (r *Report) Write(w io.Writer, format string) error {
	if err := CheckFormat(format); err != nil {
		return err
	}
	switch format {
	case "csv":
		return r.csv(w)
	case "json":
		return r.json(w)
	}
	return r.text(w)
}

// speedups are a row's, relative to the first.
func (r *Report) speedups(x Result) (aggregation, overall float64) {
	ratio := func(a, b time.Duration) float64 {
		if a == b {
			return 1
		}
		return float64(a) / float64(b)
	}
	first := r.Results[0]
	return ratio(first.Aggregation, x.Aggregation), ratio(first.Total, x.Total)
}

func (r *Report) text(out io.Writer) error {
	fmt.Fprintf(out, "net %q: %d parameters, %v, global batch %d, aggregate %v\n", r.Net, r.Parameters, r.Layout, r.GlobalBatch, r.Aggregate)
	fmt.Fprintf(out, "ms an iteration on the slowest rank; medians of %d rounds with %d iterations in all\n\n", r.Rounds, r.Iterations)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "algorithm\tdesign\taggregation\texposed\tin flight\ttotal\tspeedup for aggregation\toverall speedup\t")
	for _, x := range r.Results {
		aggregation, overall := r.speedups(x)
		fmt.Fprintf(w, "%s\t%v\t%s\t%s\t%s\t%s\t%s\t%s\t\n", x.Algorithm, x.Design,
			ms(x.Aggregation), ms(x.Exposed), ms(x.InFlight), ms(x.Total), times(aggregation), times(overall))
	}
	return w.Flush()
}

// ms writes milliseconds.
func ms(d time.Duration) string { return strconv.FormatFloat(d.Seconds()*1e3, 'f', 2, 64) }

// millis is milliseconds, to the nanosecond.
func millis(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// times writes a speedup, which is no more precise than what it is made of.
func times(x float64) string {
	if x >= 1000 {
		return "hidden"
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}

func (r *Report) csv(out io.Writer) error {
	w := csv.NewWriter(out)
	rows := [][]string{{
		"algorithm", "design", "aggregate", "ranks", "nodes", "buckets", "least_bucket",
		"aggregation_ms", "exposed_ms", "in_flight_ms", "total_ms", "aggregation_speedup", "overall_speedup",
	}}
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
	millis := func(d time.Duration) string { return number(millis(d)) }
	for _, x := range r.Results {
		aggregation, overall := r.speedups(x)
		rows = append(rows, []string{
			x.Algorithm, x.Design.String(), r.Aggregate.String(), strconv.Itoa(r.Layout.Ranks), strconv.Itoa(r.Layout.Nodes),
			strconv.Itoa(x.Buckets), strconv.Itoa(x.LeastBucket),
			millis(x.Aggregation), millis(x.Exposed), millis(x.InFlight), millis(x.Total), number(aggregation), number(overall),
		})
	}
	return w.WriteAll(rows)
}

func (r *Report) json(out io.Writer) error {
	type row struct {
		Algorithm          string   `json:"algorithm"`
		Spec               string   `json:"spec"`
		Design             string   `json:"design"`
		Buckets            int      `json:"buckets"`
		LeastBucket        int      `json:"least_bucket"`
		Aggregation        float64  `json:"aggregation_ms"`
		Exposed            float64  `json:"exposed_ms"`
		InFlight           float64  `json:"in_flight_ms"`
		Total              float64  `json:"total_ms"`
		AggregationSpeedup *float64 `json:"aggregation_speedup"`
		OverallSpeedup     *float64 `json:"overall_speedup"`
	}
	number := func(x float64) *float64 {
		if math.IsInf(x, 0) || math.IsNaN(x) {
			return nil
		}
		return &x
	}
	var rows []row
	for _, x := range r.Results {
		aggregation, overall := r.speedups(x)
		rows = append(rows, row{
			x.Algorithm, specName(x.Spec), x.Design.String(), x.Buckets, x.LeastBucket,
			millis(x.Aggregation), millis(x.Exposed), millis(x.InFlight), millis(x.Total),
			number(aggregation), number(overall),
		})
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(map[string]any{
		"net": r.Net, "parameters": r.Parameters, "global_batch": r.GlobalBatch, "ranks": r.Layout.Ranks, "nodes": r.Layout.Nodes,
		"aggregate": r.Aggregate.String(), "warmup": r.Warmup, "iterations": r.Iterations, "rounds": r.Rounds, "rows": rows,
	})
}

// specName is the canonical text of a spec.
func specName(s collectives.Spec) string {
	if len(s.Levels) == 0 {
		return Tuned
	}
	return s.String()
}
