package solver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/caffe/layers"
	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/mem"
)

// Callbacks let others join in an iteration. Any may be nil.
type Callbacks struct {
	// OnStart runs before the forward pass of iteration iter.
	OnStart func(iter int) error
	// OnLoss runs when this worker's part of the iteration's loss is known: after
	// the last forward pass, before its backward pass; on a GPU when all of that has been begun. The workers' parts add up
	// to the loss over the global batch.
	OnLoss func(iter int, part float64) error
	// OnGradientsReady runs after the backward pass, with the same part of the
	// loss. It returns what is to become of the gradients, and the loss over all
	// workers. Without it both are as in a worker alone.
	OnGradientsReady func(iter int, part float64) (g Gradients, globalLoss float32, err error)
	// OnNotFinite runs where the loss over all workers, or after the last update a parameter
	// on any of them, is NaN or infinite, on all of them. e is what this worker knows; what it
	// returns is the error.
	OnNotFinite func(e *NotFiniteError) error
	// OnParams runs before parameters are read outside of an iteration (a
	// test, the last display, the check of the last update): they must be current
	// when it returns.
	OnParams func(iter int) error
	// OnSnapshot runs before a snapshot, also on workers that do not write it:
	// parameters and history must be current on the one that does, or be there for History.
	OnSnapshot func(iter int) error
	// History runs on the worker that writes a snapshot, after OnSnapshot, and returns the history of all
	// parameters, each slice laid out as these are, where the worker itself remembers parts (Hold). It is
	// read for the snapshot alone.
	History func() [][]float32
	// Beside runs on the worker that writes a snapshot, after its model and before its
	// state: it writes what else is to lie there once there is a state, to files of which
	// stem is the beginning of the name.
	Beside func(stem string) error
	// Sum adds vectors over workers, elementwise, and gives all of them the
	// result. All workers call it at the same points.
	Sum func(v []float64) ([]float64, error)
	// Requested is asked after every iteration; all workers must get the same
	// answer.
	Requested func(iter int) (Action, error)
	// Interrupted is asked between the batches of a test and between the passes
	// of an iteration with iter_size above 1; all workers must get the same
	// answer. True leaves the test or the iteration unfinished and ends training,
	// with a snapshot of the last iteration that was finished.
	Interrupted func() (bool, error)
	// Share, with Options.Apart, is what this worker's outputs of the iteration count for among
	// all workers', 0 where they are of another iteration; without it, its part of the batch.
	Share func() float64
	// Outputs, with Options.Apart, returns what Solver.Outputs was when the passes of iteration iter
	// ended, for passes that have gone on since; nil where they have not.
	Outputs func(iter int) []float64
}

// ErrInterrupted says that a test was left unfinished, as Callbacks.Interrupted
// said.
var ErrInterrupted = errors.New("interrupted, as asked")

// Hooks are called in every pass of every training iteration. Any may be nil.
type Hooks struct {
	// BeforeForward and AfterBackward run around every layer; see net.Hooks.
	// With iter_size above 1 an AfterBackward finds the gradients of the
	// iteration complete in the LastPass only.
	BeforeForward, AfterBackward func(layer int) error
	// BeforeBackward runs between a pass's forward and its backward.
	BeforeBackward func() error
	// AfterReadAhead runs when a data layer has read, since began, the batch of the next pass, on a GPU, which is at this one.
	AfterReadAhead func(layer int, began time.Time)
}

// Gradients is what becomes of the gradients of an iteration.
type Gradients uint8

const (
	// Apply has the solver update the parameters with them.
	Apply Gradients = iota
	// Drop has it clear them: another worker updates.
	Drop
	// Taken leaves them to the callback, which may still be at work on them
	// when it returns. It sees to it that they are applied (Solver.Update) or
	// cleared before a layer's next backward pass.
	Taken
)

// Action is what an outsider (a signal) asks of a solver.
type Action struct {
	Snapshot bool // write a snapshot now
	Stop     bool // end training after this iteration
}

// Options says how one worker takes part.
type Options struct {
	// Data is passed to the training net's data layers. Its Seed, if 0, is
	// the solver's random_seed. Its Part divides tests too, by whole batches: this
	// worker runs those whose number is Index modulo Of.
	Data layers.DataOptions
	// Alloc gives the memory of the packed parameters and gradients; see
	// net.Pack.
	Alloc func(bytes int) (mem.Buffer, error)
	// Memory is how many bytes all nets together may take, as net.Memory counts;
	// 0 means what is available to the process.
	Memory int64
	// Writer writes snapshots.
	Writer proto.Writer
	// NoSnapshots is set where another worker writes the snapshots.
	NoSnapshots bool
	// SkipNotFinite leaves out the update of an iteration whose loss or
	// gradients are NaN or infinite, instead of ending with that error.
	SkipNotFinite bool
	// InsteadOfClipping is what a *NotFiniteError advises where clip_gradients cannot be had; "" where it can.
	InsteadOfClipping string
	// Rewrite and MadeAs are passed to the nets; see net.Options.
	Rewrite func(*proto.LayerParameter) error
	MadeAs  func(*proto.LayerParameter) (*proto.LayerParameter, error)
	// Idle is set for a worker that computes nothing, such as one that only serves
	// parameters: it runs no pass, and no batch of a test. Hooks and callbacks are called as
	// if it did, where the others call theirs. Data.Part is that of some other worker.
	Idle bool
	// Apart is set where the caller runs the training passes itself, on a net of their own
	// (Solver.Computes), while this solver's iterations go on. Hooks and callbacks are called as
	// with Idle; batches of tests are run. Whenever OnParams returns, no pass may be under way.
	Apart bool
	// GPU, unless nil, is where the nets compute and updates are made; see package caffe/net. It cannot be had with Apart, and means
	// nothing with Idle.
	GPU *gpu.Device
	// AllocOn is passed to the training net; see net.Options.
	AllocOn func(bytes int) (mem.Buffer, error)
}

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

// Solve trains from Iter to max_iter, writes the last snapshot and runs the
// last test, as Caffe does. Parameters that the last update has made NaN or
// infinite are an error, a *NotFiniteError, and not written; so is the loss with
// them, which is known where display shows it.
func (s *Solver) Solve(ctx context.Context) error {
	if s.param.MaxIter == nil {
		return s.at(fieldError("max_iter", "max_iter is missing: set the number of iterations"))
	}
	if err := s.Step(ctx, int(s.param.GetMaxIter())-s.iter); err != nil {
		return err
	}
	if err := s.checkResult(); err != nil {
		return err
	}
	display := due(s.iter, s.param.GetDisplay()) && !s.finished
	var statistics [][]float32 // of lossAfter
	if display {
		var err error
		if statistics, err = s.lossAfter(); err != nil {
			return err
		}
	}
	if s.param.GetSnapshotAfterTrain() && s.written != s.iter {
		if err := s.Snapshot(); err != nil {
			return err
		}
	}
	if s.finished {
		return nil
	}
	if display {
		for i, v := range s.net.Statistics() {
			copy(v, statistics[i])
		}
		if err := s.display(); err != nil {
			return err
		}
	}
	if due(s.iter, s.param.GetTestInterval()) {
		if err := s.TestAll(); !errors.Is(err, ErrInterrupted) {
			return err
		}
	}
	return nil
}

// due reports whether something that happens every so many iterations happens
// at iter; never for 0.
func due(iter int, every int32) bool { return every > 0 && iter%int(every) == 0 }

// Step runs n iterations, or fewer if Requested or Interrupted says stop or ctx
// ends, the latter with ctx's error.
func (s *Solver) Step(ctx context.Context, n int) error {
	for stop := s.iter + n; s.iter < stop && !s.finished; {
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("stopped before iteration %d: %w", s.iter, err)
		}
		err := s.iterate()
		if errors.Is(err, ErrInterrupted) {
			return s.leave()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// leave ends training in an iteration that is left unfinished: a run that is
// resumed from the snapshot does it again from the start.
func (s *Solver) leave() error {
	s.finished = true
	if s.written == s.iter {
		return nil
	}
	return s.Snapshot()
}

// interrupted returns ErrInterrupted where the test or iteration under way is to
// be left unfinished.
func (s *Solver) interrupted() error {
	if s.Callbacks.Interrupted == nil {
		return nil
	}
	stop, err := s.Callbacks.Interrupted()
	if err == nil && stop {
		err = ErrInterrupted
	}
	return err
}

// iterate runs one iteration; see the package comment.
func (s *Solver) iterate() error {
	if due(s.iter, s.param.GetTestInterval()) && (s.iter > 0 || s.param.GetTestInitialization()) {
		if err := s.TestAll(); err != nil {
			return err
		}
	}
	if err := call(s.Callbacks.OnStart, s.iter); err != nil {
		return err
	}
	part, err := s.forwardBackward()
	if err != nil {
		return err
	}
	gradients, loss := Apply, float32(part)
	if s.Callbacks.OnGradientsReady != nil {
		if gradients, loss, err = s.Callbacks.OnGradientsReady(s.iter, part); err != nil {
			return err
		}
	}
	if err := s.finish(gradients, loss); err != nil {
		return err
	}
	s.iter++
	return s.afterIteration()
}

// finish reports the iteration and makes its update.
func (s *Solver) finish(gradients Gradients, loss float32) error {
	notFinite := s.checkLoss(loss)
	if notFinite != nil && !s.opts.SkipNotFinite {
		return notFinite
	}
	if notFinite == nil {
		s.smooth.add(loss)
	}
	s.Events.iteration(Iteration{Iter: s.iter, Loss: loss, Rate: s.Rate()})
	if due(s.iter, s.param.GetDisplay()) {
		if err := s.display(); err != nil {
			return err
		}
	}
	if gradients == Apply && notFinite == nil {
		notFinite = s.ApplyUpdate()
	}
	if notFinite == nil && gradients != Drop {
		return nil
	}
	if gradients != Taken {
		s.ClearGradients(0, s.net.PackedCount())
	}
	if notFinite != nil && s.opts.SkipNotFinite {
		s.Events.skip(Skip{Iter: s.iter, Err: notFinite})
		return nil
	}
	return notFinite
}

func call(f func(int) error, iter int) error {
	if f == nil {
		return nil
	}
	return f(iter)
}

// forwardBackward runs the passes of one iteration and returns this worker's
// part of their mean loss.
func (s *Solver) forwardBackward() (float64, error) {
	size := int(s.param.GetIterSize())
	s.net.Hooks = net.Hooks{BeforeForward: s.Hooks.BeforeForward, AfterBackward: s.Hooks.AfterBackward}
	defer func() { s.net.Hooks = net.Hooks{} }()
	var sum net.Loss
	part := func() float64 {
		n := float32(size)
		return net.Loss{Mean: sum.Mean / n, Sum: sum.Sum / n}.Of(s.net.BatchShare)
	}
	for s.pass = range size {
		if s.pass > 0 {
			if err := s.interrupted(); err != nil {
				s.fork()
				s.ClearGradients(0, s.net.PackedCount())
				return 0, err
			}
		}
		lossKnown := func() error {
			loss := s.net.Loss()
			sum.Mean, sum.Sum = sum.Mean+loss.Mean, sum.Sum+loss.Sum
			if err := s.net.Err(); err != nil || !s.LastPass() || s.Callbacks.OnLoss == nil {
				return err
			}
			return s.Callbacks.OnLoss(s.iter, part())
		}
		onGPU := s.net.GPU() != nil
		err := s.forward()
		if err == nil && s.Hooks.BeforeBackward != nil {
			err = s.Hooks.BeforeBackward()
		}
		if err == nil && !onGPU {
			err = lossKnown()
		}
		if err == nil {
			err = s.backward()
		}
		if err == nil && onGPU { // which has all of the pass to do before anybody waits
			if err = s.awaitPass(); err == nil {
				err = lossKnown()
			}
			if err == nil {
				s.net.ReadAhead(s.Hooks.AfterReadAhead)
			}
		}
		if err != nil {
			return 0, InIteration(s.iter, err)
		}
	}
	return part(), nil
}

// InIteration returns err with the iteration that it is of, unless it says so itself.
func InIteration(iter int, err error) error {
	if said := (*iterationError)(nil); errors.As(err, &said) {
		return err
	}
	if bad := (*NotFiniteError)(nil); errors.As(err, &bad) {
		return err
	}
	return &iterationError{iter, err}
}

type iterationError struct {
	iter int
	err  error
}

func (e *iterationError) Error() string { return fmt.Sprintf("iteration %d: %v", e.iter, e.err) }
func (e *iterationError) Unwrap() error { return e.err }

// forward is the forward pass of an iteration.
func (s *Solver) forward() error {
	if !s.opts.Idle && !s.opts.Apart {
		err := s.net.BeginForward()
		s.askForFound()
		return err
	}
	for layer := range s.net.LayerCount() {
		if err := call(s.Hooks.BeforeForward, layer); err != nil {
			return err
		}
	}
	return nil
}

// backward is its backward pass.
func (s *Solver) backward() error {
	if !s.opts.Idle && !s.opts.Apart {
		if err := s.net.Backward(); err != nil || !s.LastPass() {
			return err
		}
		s.lookForNotFinite()
		return s.net.Err()
	}
	for layer := s.net.LayerCount() - 1; layer >= 0; layer-- {
		if err := call(s.Hooks.AfterBackward, layer); err != nil {
			return err
		}
	}
	return nil
}

// Pass tells a hook which pass of its iteration this is, counted from 0.
func (s *Solver) Pass() int { return s.pass }

// LastPass reports, to a hook, whether this pass is the last of its iteration.
func (s *Solver) LastPass() bool { return s.pass == int(s.param.GetIterSize())-1 }

// afterIteration writes a snapshot if one is due or asked for.
func (s *Solver) afterIteration() error {
	var a Action
	if s.Callbacks.Requested != nil {
		var err error
		if a, err = s.Callbacks.Requested(s.iter); err != nil {
			return err
		}
	}
	s.finished = a.Stop
	if a.Snapshot || due(s.iter, s.param.GetSnapshot()) {
		return s.Snapshot()
	}
	return nil
}
