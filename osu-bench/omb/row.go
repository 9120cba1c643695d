package omb

import (
	"gonum.org/v1/gonum/stat"

	"github.com/scaffe/scaffe/schedule"
)

// Row is one result. Times are in microseconds.
type Row struct {
	Program    string
	Asked      string // the algorithm as the command line has it
	Algorithm  string // the spec that ran
	Size       int    // bytes
	Datatype   string
	Ranks      int
	Nodes      int
	MPI        string // the library and its version
	Machine    string // processor and cores
	Buffers    string
	Barrier    string // whose, before every timed call
	Inputs     string // kept or written
	Iterations int

	// OMB's columns: each rank's mean over the iterations, then the mean, the
	// least and the largest of the ranks.
	Avg, Min, Max float64
	Overlap       *Overlap // of the non-blocking programs
	Percentiles   []Percentile

	// Time is the largest of the ranks in each iteration, its median over the
	// iterations.
	Time Interval
	// Algbw is Size over that time in GB/s, Busbw what that means for each
	// rank's link: Algbw times 2(n-1)/n for an allreduce, times (n-1)/n for a
	// reduce-scatter, times n-1 for an allgather, an alltoall, a gather or a scatter,
	// times 1 for others.
	// For the bandwidth test Size counts once for every message of a window.
	Algbw, Busbw float64
	Predicted    float64 // by the cost model, of scaffe's specs; 0: nothing
	Ratio        float64 // Time over that of the first algorithm of its size
	Verdict      Verdict
	Bandwidth    float64 // MB/s, of the bandwidth test

	Wrong     int // elements
	validated bool
}

// Overlap is what a non-blocking program measured in addition to Avg, which is the
// overall time.
type Overlap struct {
	Overall, Compute, Begin, Test, Wait, Pure, MinComm, MaxComm float64
	Percent                                                     float64
}

// Percentile is one of -z.
type Percentile struct {
	P     int
	Value float64
}

// perSecond returns bytes over microseconds in GB/s.
func perSecond(bytes int, us float64) float64 {
	if us <= 0 {
		return 0
	}
	return float64(bytes) / us / 1e3
}

// rate fills in the bandwidths. slowest holds the times of all iterations.
func (row *Row) rate(c *testCase, slowest []float64) {
	bytes := c.bytes
	if c.program.is(bandwidth) {
		bytes *= c.opts.Window
		row.Bandwidth = perSecond(bytes, stat.Mean(slowest, nil)) * 1e3
	}
	row.Algbw = perSecond(bytes, row.Time.Median)
	row.Busbw = row.Algbw * busFactor(c.program, c.size)
}

// busFactor is nccl-tests': how many times over its links each rank must carry
// the buffer in any algorithm. Of an allgather, a gather or a scatter the size is each rank's, of an alltoall each block's, and all but its own
// come to it, or to the root, or from there.
func busFactor(p Program, n int) float64 {
	if p.multiplies() {
		return float64(n - 1)
	}
	if p.is(collective) && p.verb == schedule.Allreduce {
		return 2 * float64(n-1) / float64(n)
	}
	if p.scatters() {
		return float64(n-1) / float64(n)
	}
	return 1
}

// judge compares all rows of a case with the first.
func judge(rows []Row) {
	for i := range rows {
		rows[i].Ratio = rows[i].Time.Median / rows[0].Time.Median
		rows[i].Verdict = compare(rows[i].Time, rows[0].Time)
		if i == 0 {
			rows[i].Verdict = First
		}
	}
}

// validation is OMB's column.
func (row *Row) validation() string {
	switch {
	case !row.validated:
		return ""
	case row.Wrong > 0:
		return "Fail"
	}
	return "Pass"
}
