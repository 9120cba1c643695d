package campaign

import (
	"fmt"

	"github.com/scaffe/scaffe/internal/report"
)

// FigureRow is what one system came to on so many nodes, or where there are no Iterations what the cost model
// predicts for them. Times are in milliseconds, as they were in the
// lab, with sizes multiplied by SizeScale, at Rate.
type FigureRow struct {
	Figure, Profile string
	Gbit            float64 // the paper's bandwidth, Gbit/s; with a Ratio, where the paper's GPUs would have that
	Ratio           float64 // of communication alone to computation; 0: there is a bandwidth instead
	Nodes, PerNode  int     // ranks of a node
	System, Schemes string
	Apart           bool // half of the nodes serve, the others work; otherwise all do both
	Slice           int  // elements; 0: the system's own
	SizeScale       float64
	Rate            int // of the lab's links, Mbit/s
	Iterations      int
	Iteration       float64
	Low, High       float64 // its 95 % interval; 0: not known
	Predicted       float64 // what the cost model says of Iteration
	Compute         float64
	Products        float64 // no part of Compute
	Stall, Speedup  float64
	// At the paper's scale: images a second of all nodes, and what the node with the least and that
	// with the most sends and receives in an iteration, in Gbit.
	Images              float64
	GbitLeast, GbitMost float64
	Late                float64
	// Carrying is for how long the machine's cores are busy with carrying an iteration's bytes.
	Carrying float64
	// With a Ratio, in how many Intervals of the measured iterations the first node's port was watched, the part of its rate at which it
	// sent, and the part of that time in which it sent and received at under 5 % of it.
	Intervals                 int
	Sends                     float64
	SendsQuiet, ReceivesQuiet float64
	MPI, Version              string

	// Of a row that has just been measured, in no column: when its turns began and ended, in milliseconds since 1970, and
	// the Intervals in them.
	Turns [][2]float64
	Port  []Interval
}

// figureColumns are the columns of the file, in the order in which parseFigure reads them.
var figureColumns = []report.Column[FigureRow]{
	{Name: "figure", Hidden: true, Value: func(r FigureRow) any { return r.Figure }},
	{Name: "profile", Left: true, Value: func(r FigureRow) any { return r.Profile }},
	{Name: "gbit", Title: "Gbit/s", Value: func(r FigureRow) any { return shortest(r.Gbit) }},
	{Name: "ratio", Dash: true, Value: func(r FigureRow) any { return report.Optional(shortest(r.Ratio), r.Ratio > 0) }},
	{Name: "nodes", Value: func(r FigureRow) any { return r.Nodes }},
	{Name: "ranks_per_node", Title: "× ranks", Value: func(r FigureRow) any { return r.PerNode }},
	{Name: "kind", Left: true, Value: func(r FigureRow) any { return r.kind() }},
	{Name: "system", Left: true, Value: func(r FigureRow) any { return r.System }},
	{Name: "schemes", Hidden: true, Value: func(r FigureRow) any { return r.Schemes }},
	{Name: "servers", Left: true, Value: func(r FigureRow) any { return r.servers() }},
	{Name: "slice", Dash: true, Value: func(r FigureRow) any { return report.Optional(r.Slice, r.Slice > 0) }},
	{Name: "size_scale", Value: func(r FigureRow) any { return shortest(r.SizeScale) }},
	{Name: "rate_mbit", Title: "lab Mbit/s", Value: func(r FigureRow) any { return r.Rate }},
	{Name: "iterations", Hidden: true, Value: func(r FigureRow) any { return r.Iterations }},
	{Name: "iteration_ms", Digits: 1, Value: func(r FigureRow) any { return report.Optional(r.Iteration, r.measured()) }},
	{Name: "iteration_low_ms", Digits: 1, Value: func(r FigureRow) any { return report.Optional(r.Low, r.Low > 0) }},
	{Name: "iteration_high_ms", Digits: 1, Value: func(r FigureRow) any { return report.Optional(r.High, r.High > 0) }},
	{Name: "predicted_ms", Digits: 1, Value: func(r FigureRow) any { return r.Predicted }},
	{Name: "compute_ms", Digits: 1, Value: func(r FigureRow) any { return r.Compute }},
	{Name: "products_ms", Digits: 1, Value: func(r FigureRow) any { return r.Products }},
	{Name: "stall", Digits: 3, Value: func(r FigureRow) any { return r.Stall }},
	{Name: "speedup", Title: "speed-up", Digits: 2, Value: func(r FigureRow) any { return r.Speedup }},
	{Name: "images_per_second", Title: "images/s", Digits: 1, Value: func(r FigureRow) any { return r.Images }},
	{Name: "node_gbit_least", Title: "node Gbit: least", Digits: 2, Value: func(r FigureRow) any { return report.Optional(r.GbitLeast, r.measured()) }},
	{Name: "node_gbit_most", Title: "most", Digits: 2, Value: func(r FigureRow) any { return report.Optional(r.GbitMost, r.measured()) }},
	{Name: "waits_late_ms", Title: "late ms", Digits: 2, Value: func(r FigureRow) any { return report.Optional(r.Late, r.measured()) }},
	{Name: "carrying_ms", Title: "carrying ms", Digits: 1, Dash: true, Value: func(r FigureRow) any { return report.Optional(r.Carrying, r.Carrying > 0) }},
	{Name: "port_intervals", Title: "intervals", Dash: true, Value: func(r FigureRow) any { return report.Optional(r.Intervals, r.Intervals > 0) }},
	{Name: "port_sends", Title: "port sends", Digits: 3, Dash: true, Value: func(r FigureRow) any { return report.Optional(r.Sends, r.Intervals > 0) }},
	{Name: "port_sends_under_5", Title: "< 5 %", Digits: 3, Dash: true, Value: func(r FigureRow) any { return report.Optional(r.SendsQuiet, r.Intervals > 0) }},
	{Name: "port_receives_under_5", Title: "receives < 5 %", Digits: 3, Dash: true, Value: func(r FigureRow) any { return report.Optional(r.ReceivesQuiet, r.Intervals > 0) }},
	{Name: "mpi", Hidden: true, Value: func(r FigureRow) any { return r.MPI }},
	{Name: "version", Hidden: true, Value: func(r FigureRow) any { return r.Version }},
}

// measured reports whether the row's ranks ran.
func (r *FigureRow) measured() bool { return r.Iterations > 0 }

// kind marks rows that are predicted.
func (r *FigureRow) kind() string {
	if r.measured() {
		return "measured"
	}
	return "predicted"
}

// The words for Apart.
const apart, beside = "apart", "beside"

func (r *FigureRow) servers() string {
	if r.Apart {
		return apart
	}
	return beside
}

// shortest shows a number with as many digits as it has.
func shortest(x float64) report.Shown { return report.Shown{Value: x, Text: fmt.Sprint(x)} }

// writeFigure writes rows to a file, which appears whole.
func writeFigure(path string, rows []FigureRow) error { return writeRows(path, figureColumns, rows) }

// readFigure reads what writeFigure has written; a file that is not there has no rows.
func readFigure(path string) ([]FigureRow, error) { return readRows(path, figureColumns, parseFigure) }

// parseFigure reads a row.
func parseFigure(c *cells) (r FigureRow) {
	r.Figure, r.Profile, r.Gbit, r.Ratio, r.Nodes, r.PerNode = c.text(), c.text(), c.number(), c.number(), c.whole(), c.whole()
	c.text() // as Iterations says
	r.System, r.Schemes, r.Apart, r.Slice = c.text(), c.text(), c.text() == apart, c.whole()
	r.SizeScale, r.Rate, r.Iterations, r.Iteration, r.Low, r.High = c.number(), c.whole(), c.whole(), c.number(), c.number(), c.number()
	r.Predicted, r.Compute, r.Products, r.Stall, r.Speedup, r.Images = c.number(), c.number(), c.number(), c.number(), c.number(), c.number()
	r.GbitLeast, r.GbitMost, r.Late, r.Carrying, r.Intervals = c.number(), c.number(), c.number(), c.number(), c.whole()
	r.Sends, r.SendsQuiet, r.ReceivesQuiet, r.MPI, r.Version = c.number(), c.number(), c.number(), c.text(), c.text()
	return r
}
