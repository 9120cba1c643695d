package replay

import (
	"time"

	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/stats"
	"github.com/scaffe/scaffe/nbc"
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
	Workers              int    // of the ranks, how many compute
	Scheme, Spec         string // as asked for
	// Chosen is a scheme for every layer, as --scheme takes it, and Choices are the audit's
	// lines; both are empty where one scheme was asked for that serves all layers.
	Chosen    string
	Choices   []string
	Bucket    int // least size of a bucket, bytes
	Buckets   int
	LastBytes int // of the bucket that is pushed last
	Ratio     float64
	Jitter    float64
	Straggler Straggler
	Checked   bool // every sum and every parameter was as it must be
	// Scale is what the profile's times were multiplied by.
	Scale float64
	// Systems says that a row is one system's. Then what is said of schemes, buckets, the tail and
	// the target is missing, and Communication is that of ps under WFBP.
	Systems bool
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

// Span is a part of the time.
type Span struct{ Begin, End time.Time }

// Row is what one design, or one system, came to.
type Row struct {
	System  string // "": the row is one design's
	Design  string
	Schemes string // of a system: a scheme for every layer, as --scheme takes it
	// Nodes and Ranks are those that ran, or that Predicted is of: then Iterations is 0, and
	// nothing was measured.
	Nodes, Ranks int
	// Predicted is what the cost model says that the iteration of a system takes, in ms.
	Predicted  float64
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
	// OverFirst is, of a system that was measured, the iteration over the first system's: of each turn's median over that of
	// the same turn, the median.
	OverFirst stats.Interval
	Met       bool    // the iteration is within the target
	Rate      float64 // samples per second, of all ranks
	// Stall is the part of the iteration in which the profile's computation does not run, in [0, 1];
	// Speedup is Rate over that of one rank, which waits for nobody.
	Stall, Speedup float64
	// NodeBytes is what the messages of each node's ranks hold in an iteration, both ways, by the
	// engine's count.
	NodeBytes []float64
	// Products is how much longer the slowest rank computes because it rebuilds gradients
	// from factors: no part of Compute.
	Products float64
	// Late is how long after their time waits for computation ended on average, on the rank where
	// that was most.
	Late float64
	// Carrying is for how long the cores of a machine are busy with carrying an iteration's messages to the network
	// and from it, by what the cost model has measured of that, those of its nodes' ranks with each other counted
	// as well; 0 where that was not measured, since every rank has a core. Where it is much of the iteration,
	// the cores and not the network may be what limits.
	Carrying float64
	// Turns is when the measured iterations of each turn began and ended, by rank 0's clock; the one that warms up
	// before them does not count.
	Turns []Span
	// Order is what became of the order of urgency on all ranks, in all turns but those that warm up.
	Order nbc.Order
}

// computation fills in what is computed.
func (res *Result) computation(c Config, scale float64) {
	slowest := max(c.Straggler.Factor, 1)
	res.Scale = scale
	res.Forward, res.Backward = report.Milliseconds(c.Profile.Forward())*scale*slowest, report.Milliseconds(c.Profile.Backward())*scale*slowest
	res.Update = report.Milliseconds(c.Profile.Update) * scale * slowest
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
		t, workers := r.Iteration.Median, res.Workers
		if r.Iterations == 0 {
			t, workers = r.Predicted, r.Ranks
		}
		r.Exposed = max(0, t-res.Compute)
		if res.Communication.Median > 0 {
			r.Hidden = min(max(1-r.Exposed/res.Communication.Median, 0), 1)
		}
		r.OverMax = t / larger
		if basic > 0 {
			r.OverBasic = t / basic
		}
		r.Met = t <= res.Target
		r.Rate = float64(res.Batch*workers) / t * 1e3
		r.Stall = max(0, 1-res.Compute/t)
		r.Speedup = float64(workers) * res.Compute / max(res.Straggler.Factor, 1) / t
	}
}
