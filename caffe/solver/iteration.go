package solver

import (
	"context"
	"errors"
	"fmt"

	"github.com/scaffe/scaffe/caffe/net"
)

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
