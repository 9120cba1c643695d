package train

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/trace"
)

// What is summed over the ranks in every iteration, besides the gradients.
const (
	sumLoss = iota // each rank's part of the loss over the global batch
	sumStop        // how many ranks were asked to stop
	sumSnapshot
	sumWriting // how many ranks are writing a checkpoint
	sums
)

// attach joins the worker to its solver's hooks and callbacks.
func (w *Worker) attach() {
	w.solver.Hooks = solver.Hooks{BeforeForward: w.beforeForward, BeforeBackward: w.beforeBackward, AfterBackward: w.afterBackward, AfterReadAhead: w.time.readAhead}
	if !w.Works() || w.stragglers != nil { // there are no passes here to tell of
		w.solver.Hooks = solver.Hooks{BeforeForward: w.current, AfterBackward: w.afterNothing}
	}
	if w.stale != nil { // gradients and parameters move beside the loop
		w.solver.Hooks = solver.Hooks{}
	}
	w.solver.Callbacks = solver.Callbacks{
		OnStart:          w.start,
		OnLoss:           w.lossKnown,
		OnGradientsReady: w.gradientsReady,
		OnNotFinite:      w.notFinite,
		OnParams:         w.paramsNeeded,
		OnSnapshot:       w.snapshot,
		Beside:           w.writeChoice,
		Sum:              w.sum,
		Requested:        w.requested,
		Interrupted:      w.interrupted,
	}
	if w.shards != nil {
		w.solver.Callbacks.History = w.takeHistory
	}
	if w.stragglers != nil && w.Works() {
		w.solver.Callbacks.Share = w.share
	}
	if w.stale != nil {
		w.solver.Callbacks.Share = w.shareAtRest
		w.solver.Callbacks.Outputs = func(int) []float64 { return w.stale.outputs }
	}
	told := w.events.Solver
	w.solver.Events = solver.Events{
		OnDisplay: told.OnDisplay,
		OnSkip:    w.onSkip,
		OnTest: func(t solver.Test) {
			w.time.resumes(trace.Test, t.Name)
			if told.OnTest != nil {
				told.OnTest(t)
			}
		},
		OnSnapshot: func(s solver.Snapshot) {
			w.time.resumes(trace.Snapshot, "")
			if told.OnSnapshot != nil {
				told.OnSnapshot(s)
			}
		},
		OnIteration: func(i solver.Iteration) {
			w.done++
			if told.OnIteration != nil {
				told.OnIteration(i)
			}
			if w.events.OnProgress != nil {
				w.events.OnProgress(Progress{Iteration: i, Summary: w.summary()})
			}
		},
	}
}

// start begins an iteration.
func (w *Worker) start(iter int) error {
	if w.time.iteration.IsZero() { // the first of the run
		w.rec.SetWarmUp(iter + 1)
	}
	w.time.start(iter)
	w.enter()
	w.inPlace.begin(iter)
	if w.stale != nil {
		w.stale.allow(iter)
		return nil
	}
	if err := w.exchange.Start(iter); err != nil || w.stragglers == nil {
		return err
	}
	w.stragglers.begin(iter)
	return nil
}

// current makes the parameters of a layer current where no pass waits for them, and hands them to
// passes that run elsewhere.
func (w *Worker) current(layer int) error {
	if err := w.exchange.BeforeForward(layer); err != nil || w.stragglers == nil || w.solver.Pass() > 0 {
		return err
	}
	data, _ := w.solver.Net().Packed()
	w.stragglers.offer(layer, data)
	return nil
}

// beforeForward waits for the parameters of the layer that comes next.
func (w *Worker) beforeForward(layer int) error {
	w.time.forwardEnds()
	if err := w.exchange.BeforeForward(layer); err != nil {
		return err
	}
	w.takeUp(layer)
	w.takeOver(layer)
	w.time.forwardBegins(layer)
	return nil
}

// beforeBackward ends the forward pass.
func (w *Worker) beforeBackward() error {
	w.time.forwardEnds()
	w.time.backwardBegins()
	return nil
}

// lossKnown starts to sum the loss, and with it what outsiders ask for.
func (w *Worker) lossKnown(iter int, part float64) error {
	var err error
	switch {
	case w.stragglers != nil:
		part, err = w.decide(iter)
	case w.stale != nil:
		part, err = w.stale.part()
	}
	if err != nil {
		return err
	}
	v := w.loss.buf
	v[sumLoss] = part
	snapshot, stop := w.interrupts.take()
	v[sumStop], v[sumSnapshot], v[sumWriting] = one(stop), one(snapshot), w.busyWriting()
	if s := w.stale; s != nil {
		clear(v[sums:])
		if s.passes != nil {
			v[sums+slices.Index(w.roles.workers, w.comm.Rank())] = float64(s.clock.Load())
		}
	}
	err = w.loss.sum.Start()
	w.inPlace.lossKnown(iter)
	w.time.backwardBegins()
	return err
}

func one(asked bool) float64 {
	if asked {
		return 1
	}
	return 0
}

// afterBackward hands the layer's gradients over in the last pass of the
// iteration, when they are complete.
func (w *Worker) afterBackward(layer int) error {
	w.time.backwardEnds(layer)
	w.exchange.AfterPass(layer, w.solver.Pass())
	if w.staging != nil && w.solver.LastPass() {
		w.bringDown(layer)
	} else if w.solver.LastPass() {
		w.leave(layer)
		w.offerStatistics(layer)
		if err := w.exchange.AfterBackward(layer); err != nil {
			return err
		}
	}
	w.time.backwardBegins()
	return nil
}

// afterNothing says that a layer's gradients are complete where no pass has just computed them: on
// a rank that only serves, or with passes that run elsewhere.
func (w *Worker) afterNothing(layer int) error {
	if !w.solver.LastPass() {
		return nil
	}
	w.offerStatistics(layer)
	return w.exchange.AfterBackward(layer)
}

// gradientsReady ends the iteration's passes. By then, or soon after, the
// gradients are used: by use, wherever the design puts it.
func (w *Worker) gradientsReady(iter int, _ float64) (solver.Gradients, float32, error) {
	ctx := w.ctx
	if err := w.handOver(); err != nil {
		return 0, 0, err
	}
	if w.stale != nil {
		ctx = w.stale.ctx
	} else if err := w.exchange.Finish(); err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	err := w.loss.sum.Wait(ctx)
	switch s := w.stale; {
	case s == nil || s.passes == nil:
		w.time.tell(trace.Sync, "loss", begin)
	case s.until <= iter+1: // else the passes go on meanwhile
		s.waited(iter, w.sink)
	}
	if err != nil {
		if cause := context.Cause(ctx); w.stale != nil && cause != nil { // what went wrong beside the loop
			err = cause
		}
		return 0, 0, err
	}
	v := w.loss.buf
	if w.stale != nil {
		w.lags(iter)
	}
	w.asked = solver.Action{Stop: v[sumStop] > 0, Snapshot: v[sumStop]+v[sumSnapshot] > 0}
	w.othersWrite = v[sumWriting] > 0
	return solver.Taken, float32(v[sumLoss]), nil
}

// notFinite has the rank speak whose numbers went wrong.
func (w *Worker) notFinite(e *solver.NotFiniteError) error {
	var mine error
	if e.Layer != "" {
		mine = e
	}
	if err := w.comm.Agree(w.ctx, mine); err != nil {
		return err
	}
	return e // the losses are finite one by one
}

// beforeUpdates decides on the update of all buckets at once, when it must. Unless there
// are shards, either all sums are this rank's own to update by, or none.
func (w *Worker) beforeUpdates(iter int, own []exchange.Sum) error {
	w.skip = nil
	if err := w.loss.sum.Wait(w.ctx); err != nil {
		return err
	}
	for _, s := range own {
		w.takeStatistics(s)
	}
	if w.skipLoss = !solver.Finite(w.loss.buf[sumLoss]); w.skipLoss || w.shards == nil && len(own) == 0 {
		return nil
	}
	w.update = w.solver.Update(iter)
	if w.skipNotFinite {
		if err := w.check(own); err != nil {
			return err
		}
		if w.skip != nil {
			w.onSkip(solver.Skip{Iter: iter, Err: w.skip})
			return nil
		}
	}
	if !w.solver.Clips() || w.sparse() { // which has clipped before it sent
		return nil
	}
	if w.shards == nil {
		w.update = w.update.Clip()
		return nil
	}
	var err error
	w.update, err = w.clipShards(w.update, own)
	return err
}

// check sets skip if a gradient is not finite; the error is another one.
func (w *Worker) check(own []exchange.Sum) error {
	if w.shards == nil {
		w.skip = w.update.Check(0, w.solver.Net().PackedCount())
		return nil
	}
	err := w.checkShards(w.update, own)
	if bad := (*solver.NotFiniteError)(nil); errors.As(err, &bad) {
		w.skip, err = err, nil
	}
	return err
}

// onSum updates parameters by the sum of their gradients, or drops these
// where another rank has the sum. A loss that is not finite ends training
// soon, or is to be skipped: no update then.
func (w *Worker) onSum(iter int, s exchange.Sum) error {
	update := w.update
	spoiled := w.skipLoss || w.skip != nil
	if !w.updateAtOnce && s.Updates {
		if err := w.inPlace.awaitLoss(iter); err != nil {
			return err
		}
		if err := w.loss.sum.Wait(w.ctx); err != nil {
			return err
		}
		if spoiled = !solver.Finite(w.loss.buf[sumLoss]); !spoiled {
			update = w.solver.Update(iter)
		}
	}
	begin := time.Now()
	if !w.updateAtOnce {
		w.takeStatistics(s)
	}
	if spoiled || !s.Updates {
		w.solver.ClearGradients(s.Off, s.End())
		return nil
	}
	if s.Bucket.Scheme == exchange.DGC {
		update = update.Corrected()
	}
	if err := update.Apply(s.Off, s.End()); err != nil {
		return err
	}
	w.sink.Add(trace.Event{Kind: trace.Update, Name: s.Bucket.Name, Iter: int32(iter), Begin: begin, End: time.Now()})
	return nil
}

// onSkip passes on that an iteration had no update.
func (w *Worker) onSkip(s solver.Skip) {
	w.skipped++
	if w.events.Solver.OnSkip != nil {
		w.events.Solver.OnSkip(s)
	}
}

// requested says what all ranks have agreed on in this iteration, at whose end a checkpoint
// may be due.
func (w *Worker) requested(iter int) (solver.Action, error) {
	w.time.end()
	w.exit()
	if w.stale != nil {
		w.stale.inside, w.stale.outputs = false, nil
		w.asked = w.stale.asks(iter, w.asked)
	}
	return w.asked, w.checkpoint(iter)
}

// interrupted reports whether a test, or an iteration between two passes, is to be left unfinished.
func (w *Worker) interrupted() (bool, error) {
	if w.stale != nil && w.stale.inside { // others may have pushed what they have of it
		return false, nil
	}
	return w.interrupts.stop()
}

// shareAtRest is what this worker's outputs count for where the last pass is the loop's: elsewhere
// they are told of by its passes.
func (w *Worker) shareAtRest() float64 {
	if w.stale.passes == nil || w.stale.inside {
		return 0
	}
	return float64(w.solver.Computes().BatchShare)
}

// share is what this worker's outputs count for in the iteration that was decided last.
func (w *Worker) share() float64 {
	return float64(w.stragglers.scale) * float64(w.solver.Computes().BatchShare)
}

// paramsNeeded makes all parameters current on this rank, for a test.
func (w *Worker) paramsNeeded(int) error {
	err := w.stale.meet(w.exchange)
	if err == nil {
		err = w.exchange.Current()
	}
	if err == nil && w.stragglers != nil && w.Works() {
		w.stragglers.passes.rest()
	}
	if err == nil && w.gpu != nil {
		err = w.paramsOnHost()
	}
	if err == nil && w.schemes.any(exchange.Scheme.Replicated) {
		if err = w.statistics(); err == nil {
			w.statisticsToGPU()
			err = w.sameReplicas()
		}
	}
	w.time.pauses()
	return err
}

// snapshot makes the parameters and the history current at the root, where the workers'
// parameters are if that is one.
func (w *Worker) snapshot(int) error {
	err := w.stale.meet(w.exchange)
	if err == nil {
		err = w.exchange.Updated()
	}
	if err == nil && w.gpu != nil {
		err = w.paramsOnHost()
	}
	if err == nil {
		err = w.sameReplicas()
	}
	if err == nil && w.shards != nil {
		w.shards.whole, err = w.gatherHistory(w.ctx)
	}
	if err == nil && !w.team.Works(root) {
		err = w.gatherParameters(w.ctx)
	}
	w.time.pauses()
	return err
}

// statistics brings what the lowest worker's layers have gathered, and no solver
// learns (BatchNorm's means), to the other workers. With the scheme reduce every
// broadcast brings it.
func (w *Worker) statistics() error {
	if !w.Works() {
		return nil
	}
	data, _ := w.solver.Net().Packed()
	for _, p := range w.solver.Net().Learnable() {
		if p.LRMult != 0 {
			continue
		}
		at, size := mem.Float32.Bytes(p.Offset), mem.Float32.Bytes(p.Blob.Count())
		if err := w.team.Workers().Bcast(w.ctx, data.Slice(at, size), mem.Float32, lowest); err != nil {
			return err
		}
	}
	return nil
}

// sum adds v over the ranks.
func (w *Worker) sum(v []float64) ([]float64, error) {
	defer w.time.waits("scores")()
	out := make([]float64, len(v))
	return out, w.comm.Allreduce(w.ctx, mem.Of(v), mem.Of(out), mem.Float64, mem.Sum)
}
