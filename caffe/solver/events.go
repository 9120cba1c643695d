package solver

import (
	"fmt"
	"slices"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/mem"
)

// Events are what a solver has to say. Any may be nil.
type Events struct {
	// OnIteration runs in every iteration, before the update.
	OnIteration func(Iteration)
	// OnDisplay runs every display iterations.
	OnDisplay func(Display)
	// OnTest runs after every test of a test net.
	OnTest func(Test)
	// OnSnapshot runs when a snapshot is safely written.
	OnSnapshot func(Snapshot)
	// OnSkip runs when the update of an iteration is left out; see
	// Options.SkipNotFinite.
	OnSkip func(Skip)
}

// Iteration is one iteration.
type Iteration struct {
	Iter int
	Loss float32 // over all workers, not smoothed
	Rate float32 // the learning rate of its update
}

// Skip is an iteration without an update.
type Skip struct {
	Iter int
	Err  error // a *NotFiniteError, or what Callbacks.OnNotFinite made of it
}

// Display is what Caffe logs every display iterations.
type Display struct {
	Iter    int
	Loss    float32 // over all workers, the mean of the last average_loss
	Rate    float32
	Outputs []Score // of the last batch
}

// Test is the result of testing one test net.
type Test struct {
	Iter    int
	Net     int    // number of the test net
	Name    string // the net's name
	Batches int    // test_iter
	Scores  []Score
	// Loss is the mean loss if test_compute_loss is set.
	Loss    float64
	HasLoss bool
}

// Snapshot is a snapshot that was written.
type Snapshot struct {
	Iter         int
	Model, State string // paths
}

// Score is one element of an output blob of a net, or its mean.
type Score struct {
	Name       string
	Value      float64
	LossWeight float32 // its weight in the loss, 0 if it is none
}

// String gives the score as Caffe logs it: "loss = 0.5 (* 1 = 0.5 loss)".
func (s Score) String() string {
	if s.LossWeight == 0 {
		return fmt.Sprintf("%s = %.6g", s.Name, s.Value)
	}
	return fmt.Sprintf("%s = %.6g (* %.6g = %.6g loss)", s.Name, s.Value, s.LossWeight, s.Value*float64(s.LossWeight))
}

func (e *Events) iteration(i Iteration) {
	if e.OnIteration != nil {
		e.OnIteration(i)
	}
}

func (e *Events) skip(s Skip) {
	if e.OnSkip != nil {
		e.OnSkip(s)
	}
}

// scores lists the elements of a net's outputs, with the values 0.
func scores(n *net.Net) []Score {
	var out []Score
	for _, o := range n.Output() {
		for range o.Blob.Count() {
			out = append(out, Score{Name: o.Name, LossWeight: o.LossWeight})
		}
	}
	return out
}

// addOutputs adds the elements of a net's outputs to sums, times share where
// they are not sums over the batch.
func addOutputs(sums []float64, n *net.Net, share float64) {
	k := 0
	for _, o := range n.Output() {
		scale := share
		if o.Sum {
			scale = 1
		}
		for _, x := range o.Blob.HostData() {
			if k < len(sums) {
				sums[k] += scale * float64(x)
			}
			k++
		}
	}
}

// sum adds a vector over all workers.
func (s *Solver) sum(v []float64) ([]float64, error) {
	if s.Callbacks.Sum == nil {
		return v, nil
	}
	out, err := s.Callbacks.Sum(v)
	if err == nil && len(out) != len(v) {
		err = fmt.Errorf("the sum of vectors of %d has %d elements: the workers disagree about their nets", len(v), len(out))
	}
	return out, err
}

// share is what this worker's outputs count for.
func (s *Solver) share() float64 {
	if s.Callbacks.Share != nil {
		return s.Callbacks.Share()
	}
	return float64(s.computes.BatchShare)
}

// Outputs returns the elements of the outputs that the last pass had, times what they count for among all
// workers', such as this worker's part of the batch: then they add up to those over the global batch.
func (s *Solver) Outputs(share float64) []float64 {
	sums := make([]float64, len(scores(s.net)))
	if !s.opts.Idle && share > 0 {
		addOutputs(sums, s.computes, share)
	}
	return sums
}

// display says how training goes. All workers take part in the sum of the
// outputs, whether or not they listen.
func (s *Solver) display() error {
	out := scores(s.net)
	var own []float64
	if s.Callbacks.Outputs != nil {
		own = s.Callbacks.Outputs(s.iter)
	}
	if own == nil {
		own = s.Outputs(s.share())
	}
	sums, err := s.sum(own)
	if err != nil {
		return err
	}
	for i := range out {
		out[i].Value = sums[i]
	}
	if s.Events.OnDisplay != nil {
		s.Events.OnDisplay(Display{Iter: s.iter, Loss: s.smooth.value, Rate: s.Rate(), Outputs: out})
	}
	return nil
}

// lossAfter finds the loss after the last update, which needs one more forward
// pass. The statistics that it gathers are returned and not kept: the last
// snapshot comes before them, as in Caffe.
func (s *Solver) lossAfter() (statistics [][]float32, err error) {
	if s.opts.Apart {
		if err := s.computeHere(); err != nil {
			return nil, err
		}
	}
	kept := s.computes.Statistics()
	for _, v := range kept {
		statistics = append(statistics, slices.Clone(v))
	}
	if !s.opts.Idle {
		if _, err := s.computes.Forward(); err != nil {
			return nil, fmt.Errorf("after iteration %d: %w", s.iter, err)
		}
	}
	for i, v := range s.computes.Statistics() {
		for k := range v {
			v[k], statistics[i][k] = statistics[i][k], v[k]
		}
	}
	sums, err := s.sum([]float64{s.computes.Loss().Of(s.computes.BatchShare)})
	if err != nil {
		return nil, err
	}
	switch notFinite := s.checkLoss(float32(sums[0])); {
	case notFinite == nil:
		s.smooth.add(float32(sums[0]))
	case !s.opts.SkipNotFinite:
		return nil, notFinite
	}
	return statistics, nil
}

// computeHere puts the net that computes apart to where the solver is.
func (s *Solver) computeHere() error {
	s.net.ToHost()
	from, _ := s.net.Packed()
	to, _ := s.computes.Packed()
	copy(mem.Float32s(to), mem.Float32s(from))
	return s.computes.SeekBatch(int64(s.iter) * int64(s.param.GetIterSize()))
}
