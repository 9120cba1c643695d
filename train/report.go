package train

import (
	"context"
	"slices"
	"time"

	"github.com/scaffe/scaffe/caffe/data"
	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/trace"
)

// Events are what training has to say.
type Events struct {
	// Solver are the solver's own events.
	Solver solver.Events
	// OnCheckpoint runs when a checkpoint has been written, some iterations after that of
	// which it is.
	OnCheckpoint func(Checkpointed)
	// OnDropped runs in every iteration that some workers were left out of.
	OnDropped func(Dropped)
	// OnBehind runs in every iteration at whose end workers are some iterations apart.
	OnBehind func(Behind)
	// OnProgress runs in every iteration, before the update.
	OnProgress func(Progress)
}

// Progress is how far training has come.
type Progress struct {
	solver.Iteration
	Summary
}

// Summary says what a run has done so far, and where this rank's time went.
type Summary struct {
	Iterations int
	// LeftOut is how often each worker was, by rank, for being late (Consistency.Drop).
	LeftOut []int
	// Behind is how many iterations the last worker is behind the foremost one (Consistency.SSP), Lag how
	// far each rank was.
	Behind  int
	Lag     []Lag
	Skipped int // of them without an update, for numbers that are not finite
	Images  int // over all ranks
	Total   time.Duration
	// Exposed is the time in which this rank did nothing but wait for the
	// others, Input that for its data layers, TestsAndSnapshots that of those. The
	// rest is computation.
	Exposed, Input, TestsAndSnapshots time.Duration
	// Collectives are the times of gradients and parameters, hidden ones too.
	Collectives trace.Totals
	// Readers is how well the training data kept up.
	Readers data.Stats
	// Order is what became of the order of urgency on this rank; at the end of a run, on all.
	Order nbc.Order
	// GPU is what rank 0 has taken of its GPU; nil: it computes on the CPU. At the end of a run, else nil.
	GPU *GPUUse
	// Ranks are the times of all ranks; at the end of a run, else empty.
	Ranks []RankTimes
	// Choice says what the schemes were chosen by, where that was the predicted iteration.
	Choice string
	// Buckets are what moved as one, in the order of the net, and what that cost; at the
	// end of a run of several ranks, on the root, else empty.
	Buckets []BucketCost
}

// RankTimes is where one rank's time went.
type RankTimes struct {
	Rank                                       int
	OnlyServes                                 bool
	Compute, Exposed, Input, TestsAndSnapshots time.Duration
	// Readers is how well its training data kept up: batches, waits and the
	// queue; how they were decoded is not gathered.
	Readers data.Stats
	// Order is what became of the order of urgency in what it sends and adds.
	Order nbc.Order
}

// Compute is the rest of the time: neither waiting nor reading, nor tests and
// snapshots.
func (s Summary) Compute() time.Duration {
	return s.Total - s.Exposed - s.Input - s.TestsAndSnapshots
}

// LeftOutOf is in how many iterations a rank was left out.
func (s Summary) LeftOutOf(rank int) int {
	if rank >= len(s.LeftOut) {
		return 0
	}
	return s.LeftOut[rank]
}

// LagOf is how far a rank was behind.
func (s Summary) LagOf(rank int) Lag {
	if rank >= len(s.Lag) {
		return Lag{}
	}
	return s.Lag[rank]
}

// Mean is the lag of an iteration, of n.
func (l Lag) Mean(n int) float64 { return float64(l.Sum) / float64(max(1, n)) }

// ImagesPerSecond is the rate over all ranks, tests included.
func (s Summary) ImagesPerSecond() float64 {
	if s.Total <= 0 {
		return 0
	}
	return float64(s.Images) / s.Total.Seconds()
}

// Share returns d's part of the total, in [0, 1].
func (s Summary) Share(d time.Duration) float64 {
	if s.Total <= 0 {
		return 0
	}
	return d.Seconds() / s.Total.Seconds()
}

// stragglerFactor is how much longer than the median rank a straggler computes.
const stragglerFactor = 1.25

// Straggler returns the rank that computed and read the longest, where that is
// markedly longer than the median of the ranks; the others waited for it.
func (s Summary) Straggler() (r RankTimes, times float64, ok bool) {
	byWork := slices.DeleteFunc(slices.Clone(s.Ranks), func(r RankTimes) bool { return r.OnlyServes })
	if len(byWork) < 2 {
		return r, 0, false
	}
	slices.SortFunc(byWork, func(a, b RankTimes) int { return int(a.work() - b.work()) })
	r = byWork[len(byWork)-1]
	median := byWork[(len(byWork)-1)/2].work()
	if median <= 0 {
		return r, 0, false
	}
	times = r.work().Seconds() / median.Seconds()
	return r, times, times >= stragglerFactor
}

// work is what a rank does while others may wait for it.
func (r RankTimes) work() time.Duration { return r.Compute + r.Input }

func (w *Worker) summary() Summary {
	perIteration := w.solver.Computes().GlobalBatch() * int(w.solver.Param().GetIterSize())
	t := w.meter.Totals()
	s := Summary{
		Iterations: w.done, Skipped: w.skipped, Images: w.done*perIteration - w.stragglers.samplesLost(), Total: time.Since(w.time.began),
		Exposed: t.Exposed() + t.Sync, Input: t.Input, TestsAndSnapshots: t.TestsAndSnapshots, Collectives: t,
		Order: w.comm.Order(), GPU: w.gpuUse(),
	}
	if w.stragglers != nil {
		s.LeftOut = make([]int, w.comm.Size())
		for i, n := range w.stragglers.left {
			s.LeftOut[w.roles.workers[i]] = n
		}
	}
	if w.stale != nil {
		s.Behind, s.Lag = slices.Max(w.stale.behind), make([]Lag, w.comm.Size())
		for i, lag := range w.stale.lag {
			s.Lag[w.roles.workers[i]] = lag
		}
	}
	for _, l := range w.solver.Computes().Layers() {
		if r, ok := l.Layer.(interface{ Stats() data.Stats }); ok {
			s.Readers.Add(r.Stats())
		}
	}
	return s
}

// ranks gathers the times of all ranks.
func (w *Worker) ranks(ctx context.Context, s Summary) ([]RankTimes, error) {
	r, o := s.Readers, s.Order
	mine := []int64{
		int64(s.Compute()), int64(s.Exposed), int64(s.Input), int64(s.TestsAndSnapshots),
		r.Loaders, r.Batches, r.Waits, int64(r.Starved), r.Found, r.Depth,
		o.Inversions, o.Sums, o.Patience, int64(o.Longest),
	}
	v := make([]int64, len(mine)*w.comm.Size())
	copy(v[len(mine)*w.comm.Rank():], mine)
	if err := w.comm.Allreduce(ctx, mem.Of(v), mem.Of(v), mem.Int64, mem.Sum); err != nil {
		return nil, err
	}
	rs := make([]RankTimes, w.comm.Size())
	for i := range rs {
		x := v[len(mine)*i:]
		rs[i] = RankTimes{
			Rank: i, OnlyServes: !w.team.Works(i), Compute: time.Duration(x[0]), Exposed: time.Duration(x[1]), Input: time.Duration(x[2]), TestsAndSnapshots: time.Duration(x[3]),
			Readers: data.Stats{Loaders: x[4], Batches: x[5], Waits: x[6], Starved: time.Duration(x[7]), Found: x[8], Depth: x[9]},
			Order:   nbc.Order{Inversions: x[10], Sums: x[11], Patience: x[12], Longest: time.Duration(x[13])},
		}
	}
	return rs, nil
}
