package omb

import (
	"fmt"
	"io"
	"slices"

	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/version"
)

// streamWriter writes rows for programs: an object or a line of CSV for each.
type streamWriter struct{ *report.Stream[*Row] }

func newStreamWriter(to io.Writer, f report.Format, percentiles []int) *streamWriter {
	return &streamWriter{report.NewStream(to, f, columns(percentiles))}
}

func (w *streamWriter) begin(Type, []servedBy) {}

func (w *streamWriter) rows(rows []Row) {
	for i := range rows {
		_ = w.Write(&rows[i]) // a lost result is reported at the end of the program
	}
}

func (w *streamWriter) failed(Row) {}

// columns are those of csv and json: all that OMB's table has and more, in
// every program alike. What a program does not measure is missing.
func columns(percentiles []int) []report.Column[*Row] {
	all := slices.Concat(identity, times, overlaps)
	for i, p := range percentiles {
		all = append(all, column{Name: fmt.Sprintf("p%d", p), Value: func(r *Row) any { return r.Percentiles[i].Value }})
	}
	return append(all, column{Name: "wrong", Value: func(r *Row) any { return report.Optional(r.Wrong, r.validated) }})
}

type column = report.Column[*Row]

// scaffe is the version of this program.
var scaffe = version.String()

// identity is what was measured, and where.
var identity = []column{
	{Name: "program", Value: func(r *Row) any { return r.Program }},
	{Name: "version", Value: func(*Row) any { return scaffe }},
	{Name: "size", Value: func(r *Row) any { return r.Size }},
	{Name: "datatype", Value: func(r *Row) any { return r.Datatype }},
	{Name: "asked", Value: func(r *Row) any { return r.Asked }},
	{Name: "algorithm", Value: func(r *Row) any { return r.Algorithm }},
	{Name: "ranks", Value: func(r *Row) any { return r.Ranks }},
	{Name: "nodes", Value: func(r *Row) any { return r.Nodes }},
	{Name: "mpi", Value: func(r *Row) any { return r.MPI }},
	{Name: "machine", Value: func(r *Row) any { return r.Machine }},
	{Name: "buffers", Value: func(r *Row) any { return r.Buffers }},
	{Name: "barrier", Value: func(r *Row) any { return r.Barrier }},
	{Name: "inputs", Value: func(r *Row) any { return r.Inputs }},
	{Name: "iterations", Value: func(r *Row) any { return r.Iterations }},
}

// times are in microseconds, OMB's unit.
var times = []column{
	{Name: "time_us", Value: func(r *Row) any { return r.Time.Median }},
	{Name: "time_low_us", Value: func(r *Row) any { return report.Optional(r.Time.Low, r.Time.Certain) }},
	{Name: "time_high_us", Value: func(r *Row) any { return report.Optional(r.Time.High, r.Time.Certain) }},
	{Name: "predicted_us", Value: func(r *Row) any { return report.Optional(r.Predicted, r.Predicted > 0) }},
	{Name: "ratio", Value: func(r *Row) any { return r.Ratio }},
	{Name: "verdict", Value: func(r *Row) any { return string(r.Verdict) }},
	{Name: "algbw_gbs", Value: func(r *Row) any { return r.Algbw }},
	{Name: "busbw_gbs", Value: func(r *Row) any { return r.Busbw }},
	{Name: "avg_us", Value: func(r *Row) any { return r.Avg }},
	{Name: "min_us", Value: func(r *Row) any { return r.Min }},
	{Name: "max_us", Value: func(r *Row) any { return r.Max }},
	{Name: "bandwidth_mbs", Value: func(r *Row) any { return report.Optional(r.Bandwidth, r.Bandwidth > 0) }},
}

var overlaps = []column{
	{Name: "compute_us", Value: overlapped(func(o *Overlap) float64 { return o.Compute })},
	{Name: "init_us", Value: overlapped(func(o *Overlap) float64 { return o.Begin })},
	{Name: "test_us", Value: overlapped(func(o *Overlap) float64 { return o.Test })},
	{Name: "wait_us", Value: overlapped(func(o *Overlap) float64 { return o.Wait })},
	{Name: "pure_us", Value: overlapped(func(o *Overlap) float64 { return o.Pure })},
	{Name: "min_comm_us", Value: overlapped(func(o *Overlap) float64 { return o.MinComm })},
	{Name: "max_comm_us", Value: overlapped(func(o *Overlap) float64 { return o.MaxComm })},
	{Name: "overlap_percent", Value: overlapped(func(o *Overlap) float64 { return o.Percent })},
}

// overlapped returns a value that only the non-blocking programs have.
func overlapped(of func(*Overlap) float64) func(*Row) any {
	return func(r *Row) any {
		if r.Overlap == nil {
			return nil
		}
		return of(r.Overlap)
	}
}
