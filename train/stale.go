package train

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/kernels/vec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/syncer/ps"
	"github.com/scaffe/scaffe/trace"
)

// stale lets workers be some iterations apart (Consistency.SSP): stale synchronous parallel (Ho et
// al., NIPS 2013). The solver's loop stays in step on all ranks: it ends iteration t when all workers
// have ended their passes of it. These run on a goroutine and a net of their own, and may begin
// iteration t+S when the loop begins t. Gradients and parameters move between them and the
// servers alone (ps.Links), which apply each worker's as they arrive, and answer with parameters that
// have everybody's of S iterations before in them.
//
// Where all parameters must be current, for tests and snapshots and where training ends, workers meet:
// no iteration behind it is allowed before. Meetings that somebody asks for are put behind what has
// been allowed.
type stale struct {
	bound  int // S
	passes *passes
	links  *ps.Links
	moves  *exchange.Exchange // between this worker and the servers

	share  []float32        // by worker: its part of the batch
	fixed  []exchange.Range // BatchNorm's statistics
	serves map[int]*served  // by first element

	// Alike on all ranks:
	every []int // meetings, as periods of iterations
	last  int   // the last of them
	asked int   // for one more, 0: no
	until int   // iterations below it may begin

	resumed time.Time     // after a meeting
	pending solver.Action // asked for, at the next meeting
	inside  bool          // the loop is within an iteration
	outputs []float64     // of the iteration that the loop is at, where they are displayed
	clock   atomic.Int64  // iterations that this worker has begun
	behind  []int         // by rank: see Behind
	lag     []Lag         // by worker

	ctx    context.Context
	cancel context.CancelCauseFunc
}

// served is a pair that this rank serves.
type served struct {
	bucket string
	pushes int // that were applied
}

// Lag is how many iterations a worker was behind the foremost one: at most, and summed over the
// iterations.
type Lag struct {
	Most, Sum int
}

// Behind is how many iterations each rank is behind the foremost worker, when all have ended iteration
// Iter. By is for reading until the next.
type Behind struct {
	Iter int
	By   []int
}

// initStale makes what workers need that are some iterations apart. It is a collective.
func (w *Worker) initStale(ctx context.Context, c Config) error {
	if !w.runsAhead(c) {
		return nil
	}
	workers := w.team.Members()
	p := w.solver.Param()
	s := &stale{
		bound: c.Consistency.Staleness, share: make([]float32, len(workers)), serves: map[int]*served{}, last: math.MaxInt, until: w.solver.Iter(),
		behind: make([]int, w.comm.Size()), lag: make([]Lag, len(workers)),
	}
	w.stale = s
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	for _, n := range []int{int(p.GetTestInterval()), int(p.GetSnapshot()), c.Checkpoint.Every} {
		if n > 0 {
			s.every = append(s.every, n)
		}
	}
	if p.MaxIter != nil {
		s.last = int(p.GetMaxIter())
	}
	for _, f := range w.shards.fixed {
		s.fixed = append(s.fixed, f...)
	}
	number := slices.Index(workers, w.comm.Rank())
	if number >= 0 {
		s.share[number] = w.solver.Computes().BatchShare
	}
	if err := w.comm.Allreduce(ctx, mem.Of(s.share), mem.Of(s.share), mem.Float32, mem.Sum); err != nil {
		return err
	}
	for _, own := range w.exchange.Own() {
		s.serves[own.Off] = &served{own.Bucket.Name, w.solver.Iter() * len(workers)}
	}
	var err error
	if s.links, err = ps.NewLinks(ctx, w.team, w.roles.servers, s.bound, s.until, store{w}); err != nil {
		return err
	}
	// A rank that only serves computes nothing; there the exchange is the servers' ends alone.
	n := w.solver.Computes()
	data, diff := n.Packed()
	s.moves, err = w.newExchange(s.ctx, c, func(x *exchange.Config) {
		x.Data, x.Diff, x.Links = data, diff, s.links
		x.UpdateAtOnce, x.BeforeUpdates = false, nil
		x.OnSum = func(_ int, sum exchange.Sum) error { // it has been taken by its server
			clear(mem.Float32s(diff)[sum.Off:sum.End()])
			return nil
		}
	})
	if err != nil {
		return err
	}
	s.links.Open(s.ctx, s.cancel)
	if number < 0 {
		return nil
	}
	from, _ := w.solver.Net().Packed()
	copy(mem.Float32s(data), mem.Float32s(from))
	s.passes = newPasses(s.ctx, w.solver, newTimeline(w.sink, n.Layers()), s.bound+1, passCalls{
		starts: func(iter int) error {
			s.waited(iter, w.sink)
			s.clock.Store(int64(iter) + 1)
			s.links.Begin(iter)
			return s.moves.Start(iter)
		},
		before: func(_, layer int) error { return s.moves.BeforeForward(layer) },
		after:  w.pushes,
		passed: w.passed,
	}, s.cancel)
	return nil
}

// pushes hands a layer's gradients over when they are complete.
func (w *Worker) pushes(pass, layer int) error {
	w.stale.moves.AfterPass(layer, pass)
	if pass < w.stale.passes.size-1 || w.skipNotFinite { // there all gradients are looked at first
		return nil
	}
	return w.hand(layer)
}

// hand gives a layer's gradients to the servers, and the lowest worker's statistics.
func (w *Worker) hand(layer int) error {
	w.offerStatistics(layer)
	return w.stale.moves.AfterBackward(layer)
}

// passed ends the passes of an iteration. An iteration whose numbers are not finite is pushed as NaNs
// where that is to be left out: servers drop them, whole.
func (w *Worker) passed(iter int, part float64) (r result, err error) {
	s := w.stale
	bad := !solver.Finite(part)
	if bad && !w.skipNotFinite {
		e := w.solver.NotFinite(iter, float32(part))
		e.Layer, e.Top, _ = s.passes.net.NotFinite()
		return r, e
	}
	if w.skipNotFinite {
		_, diff := s.passes.net.Packed()
		gradients := mem.Float32s(diff)
		if bad = bad || vec.FirstNotFinite(gradients) >= 0; bad {
			part = math.NaN()
			for i := range gradients {
				gradients[i] = float32(math.NaN())
			}
		}
		for layer := s.passes.net.LayerCount() - 1; layer >= 0; layer-- {
			if err := w.hand(layer); err != nil {
				return r, err
			}
		}
	}
	r.loss = part
	if every := int(w.solver.Param().GetDisplay()); every > 0 && iter%every == 0 {
		r.outputs = w.solver.Outputs(float64(s.passes.net.BatchShare))
	}
	return r, s.moves.Finish()
}

// store is what this rank serves to workers that are apart.
type store struct{ w *Worker }

// Apply updates a part by the gradients of one worker.
func (t store) Apply(worker, iter int, r exchange.Range, gradients mem.Buffer) error {
	w, s := t.w, t.w.stale
	begin := time.Now()
	data, diff := w.solver.Net().Packed()
	values, sums := mem.Float32s(data)[r.Off:r.End()], mem.Float32s(diff)[r.Off:r.End()]
	copy(sums, mem.Float32s(gradients))
	if w.skipNotFinite && vec.FirstNotFinite(sums) >= 0 {
		clear(sums)
		return nil
	}
	if worker == lowest {
		for _, f := range s.fixed {
			if lo, hi := max(r.Off, f.Off), min(r.End(), f.End()); lo < hi {
				copy(values[lo-r.Off:], sums[lo-r.Off:hi-r.Off])
			}
		}
	}
	pair := s.serves[r.Off]
	pair.pushes++
	if err := w.solver.Update(iter).Of(s.share[worker], pair.pushes-1).Apply(r.Off, r.End()); err != nil {
		return err
	}
	w.sink.Add(trace.Event{Kind: trace.Update, Name: pair.bucket, Iter: int32(iter), Begin: begin, End: time.Now()})
	return nil
}

// Read says what its parameters are.
func (t store) Read(r exchange.Range, parameters mem.Buffer) {
	data, _ := t.w.solver.Net().Packed()
	copy(mem.Float32s(parameters), mem.Float32s(data)[r.Off:r.End()])
}

// allow has workers begin what they may when the loop begins an iteration.
func (s *stale) allow(iter int) {
	s.inside = true
	if s.until <= iter {
		s.resumed = time.Now()
	}
	limit := min(iter+s.bound+1, max(s.last, iter+1))
	for _, n := range s.every {
		limit = min(limit, iter+n-iter%n)
	}
	if s.asked > iter {
		limit = min(limit, s.asked)
	}
	for ; s.until < limit; s.until++ {
		s.links.Allow(s.until)
		if s.passes != nil {
			s.passes.begin <- s.until
		}
	}
}

// meets reports whether no worker has gone beyond the end of iteration iter-1; else all will meet as
// soon as may be.
func (s *stale) meets(iter int) bool {
	if s == nil || s.until <= iter {
		return true
	}
	if s.asked <= iter {
		s.asked = s.until
	}
	return false
}

// part is this worker's part of the loss in the iteration that the loop is at.
func (s *stale) part() (float64, error) {
	s.outputs = nil
	if s.passes == nil {
		return 0, nil
	}
	select {
	case r := <-s.passes.done:
		s.outputs = r.outputs
		return r.loss, nil
	case <-s.ctx.Done():
		return 0, context.Cause(s.ctx)
	}
}

// waited tells of this worker's wait for others: since its last passes have ended, or workers have
// gone on from a meeting. At a meeting it is the loop that tells.
func (s *stale) waited(iter int, sink trace.Sink) {
	since, resting := s.passes.restingSince()
	if since.Before(s.resumed) {
		since = s.resumed
	}
	if end := time.Now(); resting && end.After(since) {
		sink.Add(trace.Event{Kind: trace.Sync, Name: "others", Iter: int32(iter), Begin: since, End: end})
	}
}

// asks puts an action off until workers meet.
func (s *stale) asks(iter int, a solver.Action) solver.Action {
	s.pending.Stop, s.pending.Snapshot = s.pending.Stop || a.Stop, s.pending.Snapshot || a.Snapshot
	if s.pending == (solver.Action{}) || !s.meets(iter) {
		return solver.Action{}
	}
	a, s.pending = s.pending, solver.Action{}
	return a
}

// rest waits, at a meeting, until all that was pushed is in the parameters where they are served, and
// this worker has them.
func (s *stale) rest() error {
	if s == nil {
		return nil
	}
	if s.passes != nil {
		if err := s.moves.Current(); err != nil {
			return err
		}
	}
	return s.links.Rest()
}

// meet has what is served brought to every rank when x is made current next: nothing is under way then
// but that.
func (s *stale) meet(x *exchange.Exchange) error {
	if s == nil {
		return nil
	}
	if err := s.rest(); err != nil {
		return err
	}
	x.Outdated()
	return nil
}

// lags takes note of how far workers are apart.
func (w *Worker) lags(iter int) {
	s := w.stale
	clocks := w.loss.buf[sums:]
	foremost, some := slices.Max(clocks), false
	for i, at := range clocks {
		n := int(foremost - at)
		s.behind[w.roles.workers[i]] = n
		s.lag[i].Sum += n
		s.lag[i].Most = max(s.lag[i].Most, n)
		some = some || n > 0
	}
	if some && w.events.OnBehind != nil {
		w.events.OnBehind(Behind{iter, s.behind})
	}
}

func (s *stale) close() {
	if s == nil {
		return
	}
	s.cancel(context.Canceled)
	s.passes.close()
	if s.moves != nil {
		s.moves.Close()
	}
	if s.links != nil {
		s.links.Close()
	}
}
