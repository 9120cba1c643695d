package replay

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/stats"
	"github.com/scaffe/scaffe/internal/units"
)

// Slack is what the target allows above the larger of computation and
// communication.
const Slack = 1.08

// Result is what a replay came to. Times are in milliseconds.
type Result struct {
	Profile, Net, Source string
	Batch                int // of one rank
	Elements, Bytes      int // of all parameters
	Ranks, Nodes         int
	Scheme, Spec         string
	Bucket               int // least size of a bucket, bytes
	Buckets              int
	LastBytes            int // of the bucket that is pushed last
	Ratio                float64
	Jitter               float64
	Straggler            Straggler
	Checked              bool // every sum and every parameter was as it must be
	// Scale is what the profile's times were multiplied by.
	Scale float64
	// Compute is forward, backward and update of the slowest rank.
	Compute, Forward, Backward, Update float64
	// Communication is that of an iteration without computation, Tail that of
	// the bucket that is pushed last.
	Communication, Tail stats.Interval
	// Target is Slack × max(Compute, Communication) + Tail.
	Target float64
	Rows   []Row
	// LateMean and LateMost are how long after their time waits for computation
	// ended, on the rank where that was most. Milliseconds mean that the ranks
	// lack cores, and the results say little of a cluster.
	LateMean, LateMost float64
}

// Row is what one design came to.
type Row struct {
	Design     string
	Iterations int
	// Iteration is the slowest rank's time.
	Iteration stats.Interval
	// Exposed is the iteration less the computation, Hidden the part of the
	// communication alone that is not exposed, in [0, 1].
	Exposed, Hidden float64
	// WaitPush and WaitPull are how long the computing goroutine did nothing
	// but wait for gradients and parameters: medians of the ranks' largest.
	WaitPush, WaitPull float64
	// OverMax is the iteration over the larger of computation and
	// communication, OverBasic that over SC-B's (0 where that did not run).
	OverMax, OverBasic float64
	Met                bool    // the iteration is within the target
	Rate               float64 // samples per second, of all ranks
}

// computation fills in what is computed.
func (res *Result) computation(c Config, scale float64) {
	slowest := max(c.Straggler.Factor, 1)
	res.Scale = scale
	res.Forward, res.Backward = ms(c.Profile.Forward())*scale*slowest, ms(c.Profile.Backward())*scale*slowest
	res.Update = ms(c.Profile.Update) * scale * slowest
	res.Compute = res.Forward + res.Backward + res.Update
}

// judge fills in what follows from the times.
func (res *Result) judge() {
	larger := max(res.Compute, res.Communication.Median)
	res.Target = Slack*larger + res.Tail.Median
	basic := 0.0
	for _, r := range res.Rows {
		if r.Design == exchange.SCB.String() {
			basic = r.Iteration.Median
		}
	}
	for i := range res.Rows {
		r := &res.Rows[i]
		t := r.Iteration.Median
		r.Exposed = max(0, t-res.Compute)
		if res.Communication.Median > 0 {
			r.Hidden = min(max(1-r.Exposed/res.Communication.Median, 0), 1)
		}
		r.OverMax = t / larger
		if basic > 0 {
			r.OverBasic = t / basic
		}
		r.Met = t <= res.Target
		r.Rate = float64(res.Batch*res.Ranks) / t * 1e3
	}
}

// Formats are what Write writes.
var Formats = []string{"text", "json", "csv"}

// Write writes the result as text (a table), json (one object) or csv (a row a
// design, with all that it depends on).
func (res *Result) Write(w io.Writer, format string) error {
	switch format {
	case "text":
		return res.writeText(w)
	case "json":
		return json.NewEncoder(w).Encode(res)
	case "csv":
		return res.writeCSV(w)
	}
	return fmt.Errorf("format %q is unknown: use text, json or csv", format)
}

func (res *Result) writeText(to io.Writer) error {
	fmt.Fprintf(to, "# %s: %s, %d parameters (%.1f MB), batch %d; %d ranks on %d nodes\n",
		res.Profile, res.Net, res.Elements, float64(res.Bytes)/1e6, res.Batch, res.Ranks, res.Nodes)
	for s := range strings.Lines(res.Source) {
		fmt.Fprintf(to, "# times: %s\n", strings.TrimSpace(s))
	}
	fmt.Fprintf(to, "# compute %.2f ms: forward %.2f, backward %.2f, update %.2f", res.Compute, res.Forward, res.Backward, res.Update)
	if res.Scale != 1 {
		fmt.Fprintf(to, "; the profile's times × %.4g", res.Scale)
	}
	if res.Jitter > 0 {
		fmt.Fprintf(to, "; jitter ±%g %%", 100*res.Jitter)
	}
	if res.Straggler.Factor > 0 {
		fmt.Fprintf(to, "; rank %d takes %g times as long as the others", res.Straggler.Rank, res.Straggler.Factor)
	}
	fmt.Fprintf(to, "\n# aggregate %s, algorithm %s, %d buckets of at least %s\n", res.Scheme, res.Spec, res.Buckets, units.FormatBytes(res.Bucket))
	fmt.Fprintf(to, "# communication alone %.2f ms (%v), %.3g × compute; tail %.2f ms (%v), the bucket of %d bytes that is pushed last\n",
		res.Communication.Median, res.Communication, res.Communication.Median/max(res.Compute, 1e-9), res.Tail.Median, res.Tail, res.LastBytes)
	fmt.Fprintf(to, "# iteration: the slowest rank's, median with its 95 %% confidence interval; exposed: iteration less compute\n")
	fmt.Fprintf(to, "# target: %g × max(compute, communication) + tail = %.2f ms\n", Slack, res.Target)
	fmt.Fprintf(to, "# waits for computation ended %.3f ms late in the mean, %.3f ms at most\n", res.LateMean, res.LateMost)
	if res.Checked {
		fmt.Fprintf(to, "# every sum and every parameter is right on every rank\n")
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "iterations\titeration ms\t95 %\texposed ms\thidden %\twait push\twait pull\t× max\t× SC-B\ttarget\timages/s\t  design\n")
	for _, r := range res.Rows {
		met, basic := "missed", "-"
		if r.Met {
			met = "met"
		}
		if r.OverBasic > 0 {
			basic = fmt.Sprintf("%.3f", r.OverBasic)
		}
		fmt.Fprintf(w, "%d\t%.2f\t%v\t%.2f\t%.0f\t%.2f\t%.2f\t%.3f\t%s\t%s\t%.4g\t  %s\n", r.Iterations, r.Iteration.Median, r.Iteration,
			r.Exposed, 100*r.Hidden, r.WaitPush, r.WaitPull, r.OverMax, basic, met, r.Rate, r.Design)
	}
	return w.Flush()
}

// column is one of the csv's.
type column struct {
	name string
	of   func(*Result, *Row) any
}

var columns = []column{
	{"profile", func(s *Result, _ *Row) any { return s.Profile }},
	{"net", func(s *Result, _ *Row) any { return s.Net }},
	{"ranks", func(s *Result, _ *Row) any { return s.Ranks }},
	{"nodes", func(s *Result, _ *Row) any { return s.Nodes }},
	{"batch", func(s *Result, _ *Row) any { return s.Batch }},
	{"bytes", func(s *Result, _ *Row) any { return s.Bytes }},
	{"aggregate", func(s *Result, _ *Row) any { return s.Scheme }},
	{"algorithm", func(s *Result, _ *Row) any { return s.Spec }},
	{"bucket_bytes", func(s *Result, _ *Row) any { return s.Bucket }},
	{"buckets", func(s *Result, _ *Row) any { return s.Buckets }},
	{"ratio", func(s *Result, _ *Row) any { return s.Ratio }},
	{"scale", func(s *Result, _ *Row) any { return s.Scale }},
	{"compute_ms", func(s *Result, _ *Row) any { return s.Compute }},
	{"forward_ms", func(s *Result, _ *Row) any { return s.Forward }},
	{"backward_ms", func(s *Result, _ *Row) any { return s.Backward }},
	{"update_ms", func(s *Result, _ *Row) any { return s.Update }},
	{"communication_ms", func(s *Result, _ *Row) any { return s.Communication.Median }},
	{"tail_ms", func(s *Result, _ *Row) any { return s.Tail.Median }},
	{"target_ms", func(s *Result, _ *Row) any { return s.Target }},
	{"design", func(_ *Result, r *Row) any { return r.Design }},
	{"iterations", func(_ *Result, r *Row) any { return r.Iterations }},
	{"iteration_ms", func(_ *Result, r *Row) any { return r.Iteration.Median }},
	{"low_ms", func(_ *Result, r *Row) any { return r.Iteration.Low }},
	{"high_ms", func(_ *Result, r *Row) any { return r.Iteration.High }},
	{"exposed_ms", func(_ *Result, r *Row) any { return r.Exposed }},
	{"hidden", func(_ *Result, r *Row) any { return r.Hidden }},
	{"wait_push_ms", func(_ *Result, r *Row) any { return r.WaitPush }},
	{"wait_pull_ms", func(_ *Result, r *Row) any { return r.WaitPull }},
	{"over_max", func(_ *Result, r *Row) any { return r.OverMax }},
	{"over_basic", func(_ *Result, r *Row) any { return r.OverBasic }},
	{"target_met", func(_ *Result, r *Row) any { return r.Met }},
	{"late_ms", func(s *Result, _ *Row) any { return s.LateMean }},
	{"images_per_second", func(_ *Result, r *Row) any { return r.Rate }},
}

func (res *Result) writeCSV(to io.Writer) error {
	w := csv.NewWriter(to)
	var names []string
	for _, c := range columns {
		names = append(names, c.name)
	}
	_ = w.Write(names) // Error tells
	for i := range res.Rows {
		var cells []string
		for _, c := range columns {
			cell := c.of(res, &res.Rows[i])
			if f, ok := cell.(float64); ok {
				cell = strconv.FormatFloat(math.Round(f*1e6)/1e6, 'f', -1, 64)
			}
			cells = append(cells, fmt.Sprint(cell))
		}
		_ = w.Write(cells)
	}
	w.Flush()
	return w.Error()
}
