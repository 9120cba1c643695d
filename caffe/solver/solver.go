package solver

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/proto"
)

// Solver trains one worker's net. It is not safe for concurrent use.
type Solver struct {
	// Callbacks, Hooks and Events may be set until the first Step.
	Callbacks Callbacks
	Hooks     Hooks
	Events    Events

	file  *proto.SolverFile
	param *proto.SolverParameter
	opts  Options
	rate  Rate
	rule  *Rule

	net      *net.Net
	computes *net.Net // that runs the training passes; net, unless they are run apart
	tests    []*testNet
	history  [][]float32 // Rule.Histories packed buffers, made at first use
	gpu      onGPU       // instead, where updates are made there

	historyOnce sync.Once
	holds       bool   // the history is of parts
	held        []held // these

	squares []float64 // sums of gradients' squares, made at first use

	iter     int
	pass     int // of the iteration's iter_size
	written  int // the iteration of the last snapshot, -1: none
	smooth   smoother
	finished bool // stopped by Requested or Interrupted
}

// New reads the nets that f names and builds them, for iteration 0. It fails
// early where training would fail late: on a field that means nothing, or a
// snapshot directory that cannot be written.
func New(f *proto.SolverFile, o Options) (*Solver, error) {
	if o.Idle {
		o.GPU = nil
	}
	s := &Solver{file: f, param: f.Solver, opts: o, written: -1}
	if o.Apart && o.GPU != nil {
		return nil, errors.New("passes that run apart from the solver's iterations run on the host: they cannot have a GPU")
	}
	if err := s.build(); err != nil {
		return nil, errors.Join(s.at(err), s.Close())
	}
	return s, nil
}

// at puts the place of the field that err is about before it.
func (s *Solver) at(err error) error {
	var fe *FieldError
	if !errors.As(err, &fe) {
		return err
	}
	if where := s.file.FieldPos(fe.Field).String(); where != "" {
		return fmt.Errorf("%s: %w", where, err)
	}
	return err
}

func (s *Solver) build() (err error) {
	if s.rate, err = NewRate(s.param); err != nil {
		return err
	}
	if s.rule, err = NewRule(s.param); err != nil {
		return err
	}
	if err := s.checkFields(); err != nil {
		return err
	}
	if err := s.checkSnapshots(); err != nil {
		return err
	}
	s.smooth.window = int(s.param.GetAverageLoss())
	if s.opts.Data.Seed == 0 {
		s.opts.Data.Seed = s.Seed()
	}
	train, err := s.file.TrainNet()
	if err != nil {
		return err
	}
	memory := net.AvailableMemory()
	if s.opts.Memory > 0 {
		memory = net.NewMemory(s.opts.Memory)
	}
	if err := s.buildTraining(train, memory); err != nil {
		return err
	}
	if err := s.checkSizes(); err != nil {
		return err
	}
	if err := s.buildTests(memory); err != nil {
		return err
	}
	return s.Weights(splitComma(s.param.GetWeights())...)
}

// buildTraining builds the training net, or both where passes are run apart: then the one that
// has the solver's parameters reads no data.
func (s *Solver) buildTraining(file *proto.NetFile, memory *net.Memory) (err error) {
	s.gpu.Device = s.opts.GPU
	o := net.Options{Phase: proto.Phase_TRAIN, Data: s.opts.Data, Seed: s.Seed(), Rewrite: s.opts.Rewrite, MadeAs: s.opts.MadeAs, Memory: memory, GPU: s.opts.GPU, AllocOn: s.opts.AllocOn}
	if s.computes, err = net.New(file, o); err != nil {
		return err
	}
	if g := s.computes.GlobalBatch(); s.opts.Idle {
		s.computes.BatchShare = 0
	} else if g > 0 {
		s.computes.BatchShare = float32(s.computes.LocalBatch()) / float32(g)
	}
	if s.net = s.computes; s.opts.Apart {
		if _, _, err := s.computes.Pack(nil); err != nil {
			return err
		}
		o.MadeAs = net.WithoutData(s.computes.DataShapes())
		if s.net, err = net.New(file, o); err != nil {
			return err
		}
		s.net.BatchShare = 0
	}
	_, _, err = s.net.Pack(s.opts.Alloc)
	return err
}

// splitComma takes lists of paths apart that are joined by commas.
func splitComma(lists []string) []string {
	var paths []string
	for _, l := range lists {
		for p := range strings.SplitSeq(l, ",") {
			if p = strings.TrimSpace(p); p != "" {
				paths = append(paths, p)
			}
		}
	}
	return paths
}

// checkFields refuses what rate and rule have not refused.
func (s *Solver) checkFields() error {
	p := s.param
	for field, v := range map[string]int32{"iter_size": p.GetIterSize(), "average_loss": p.GetAverageLoss()} {
		if v < 1 {
			return fieldError(field, "%s is %d: it must be at least 1", field, v)
		}
	}
	if p.GetSnapshotFormat() == proto.SolverParameter_HDF5 {
		return fieldError("snapshot_format", "snapshot_format HDF5 is not supported: use BINARYPROTO")
	}
	if o := s.opts.Data.Part; o.Of < 0 || o.Index < 0 || o.Index >= max(o.Of, 1) {
		return fmt.Errorf("part %d of %d does not exist", o.Index, o.Of)
	}
	return nil
}

// Seed returns random_seed, or 1 where the solver file has none.
func (s *Solver) Seed() uint64 {
	if seed := s.param.GetRandomSeed(); seed >= 0 {
		return uint64(seed)
	}
	return 1
}

// Net returns the training net, packed.
func (s *Solver) Net() *net.Net { return s.net }

// Computes returns the net that runs the training passes: Net, or with Options.Apart another one,
// packed too, with parameters of its own.
func (s *Solver) Computes() *net.Net { return s.computes }

// Param returns the solver's message. The caller must not change it.
func (s *Solver) Param() *proto.SolverParameter { return s.param }

// Rule returns the update.
func (s *Solver) Rule() *Rule { return s.rule }

// Rate returns the learning rate of the iteration that comes next.
func (s *Solver) Rate() float32 { return s.rate(s.iter) }

// Iter returns the number of iterations done, which is the number of the next.
func (s *Solver) Iter() int { return s.iter }

// SetIter makes iter the next iteration and puts the data to its first batch,
// as Restore does; for workers that get parameters from elsewhere.
func (s *Solver) SetIter(iter int) error {
	if err := s.computes.SeekBatch(int64(iter) * int64(s.param.GetIterSize())); err != nil {
		return err
	}
	s.iter = iter
	s.smooth.reset()
	return nil
}

// Close gives back what the nets hold.
func (s *Solver) Close() error {
	var errs []error
	if s.net != nil {
		errs = append(errs, s.net.Close())
	}
	if s.computes != nil && s.computes != s.net {
		errs = append(errs, s.computes.Close())
	}
	for _, t := range s.tests {
		errs = append(errs, t.net.Close())
	}
	return errors.Join(errs...)
}
