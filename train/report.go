package train

import (
	"time"

	"github.com/scaffe/scaffe/caffe/solver"
)

// Events are what training has to say.
type Events struct {
	// Solver are the solver's own events.
	Solver solver.Events
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
	Images     int // over all ranks
	Total      time.Duration
	// Communication is the time in which this rank did nothing but wait for
	// the others, Input that for its data layers. The rest is computation.
	Communication, Input time.Duration
}

// Compute is the time spent neither waiting nor reading.
func (s Summary) Compute() time.Duration { return s.Total - s.Communication - s.Input }

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

func (w *Worker) summary() Summary {
	perIteration := w.solver.Net().GlobalBatch() * int(w.solver.Param().GetIterSize())
	return Summary{
		Iterations: w.done, Images: w.done * perIteration, Total: time.Since(w.watch.began),
		Communication: w.watch.communication, Input: w.watch.inputTime,
	}
}

// stopwatch adds up where one rank's time goes.
type stopwatch struct {
	began                    time.Time
	communication, inputTime time.Duration
	input                    []bool // by layer: it reads data
	last                     int    // the layer whose forward runs
	since                    time.Time
}

func (s *stopwatch) start() { s.began, s.last = time.Now(), len(s.input)-1 }

// communicate starts to measure a wait for other ranks and returns what stops.
func (s *stopwatch) communicate() func() {
	t := time.Now()
	return func() { s.communication += time.Since(t) }
}

// layer says that a layer's forward comes next.
func (s *stopwatch) layer(i int) {
	now := time.Now()
	if s.input[s.last] && i == s.last+1 {
		s.inputTime += now.Sub(s.since)
	}
	s.last, s.since = i, now
}
