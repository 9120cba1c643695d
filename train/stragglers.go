package train

import (
	"context"
	"slices"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/trace"
)

// stragglers leaves workers out of iterations for which they are late (Consistency.Drop; Poseidon,
// section 4.1). In every iteration the lowest server learns from each worker when its passes have
// ended, decides once who is in, and tells all ranks, before any gradient moves. So a worker is in the sums
// of all pairs or of none. Who is left out contributes zeros, and those who are in weigh their
// gradients by the samples of all over theirs.
type stragglers struct {
	passes  *passes // nil on a rank that only serves
	worker  int     // this rank's number among the workers, -1: none
	samples []int   // of each worker in an iteration
	scale   float32 // of what this worker has in the iteration that was decided last; 0: it was left out

	// Alike on all ranks:
	verdicts []uint8 // by worker
	begins   []bool  // by worker: it begins the next iteration
	left     []int   // by worker: of how many iterations it was left out
	lost     int     // samples of these
	late     []int   // the workers that are not in the iteration that was decided last

	decision *nbc.Request // brings verdicts
	judge    *judge       // at the lowest server
	tell     *nbc.Request // that this worker's passes have ended; nil where the judge is here
	told     []int64      // of which iteration
	comms    []*collectives.Comm

	ctx    context.Context
	cancel context.CancelCauseFunc
}

// Verdicts on a worker.
const (
	behind uint8 = iota // still at the passes of this iteration, or of one before
	in
	back // its passes have ended, too late, and it begins the next iteration
)

// Dropped is who was left out of an iteration, as ranks.
type Dropped struct {
	Iter int
	Late []int
}

// initStragglers makes what leaving workers out needs. It is a collective.
func (w *Worker) initStragglers(ctx context.Context, c Config) error {
	if !w.drops(c) {
		return nil
	}
	workers := w.team.Members()
	s := &stragglers{
		worker: slices.Index(workers, w.comm.Rank()), samples: make([]int, len(workers)), verdicts: make([]uint8, len(workers)),
		begins: slices.Repeat([]bool{true}, len(workers)), left: make([]int, len(workers)), told: make([]int64, 1),
	}
	w.stragglers = s
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	samples := make([]int64, len(workers))
	if s.worker >= 0 {
		samples[s.worker] = int64(w.LocalBatch() * int(w.solver.Param().GetIterSize()))
	}
	if err := w.comm.Allreduce(ctx, mem.Of(samples), mem.Of(samples), mem.Int64, mem.Sum); err != nil {
		return err
	}
	for i, n := range samples {
		s.samples[i] = int(n)
	}
	// Not the MPI library's, which would have to start in one order on all ranks.
	how := collectives.With(spec.Spec{Levels: []spec.Level{{Algorithm: "binomial"}}})
	lowest := w.roles.servers[0]
	if w.comm.Rank() == lowest {
		s.judge = newJudge(s.ctx, c.Consistency.Drop, len(workers))
	}
	var err error
	if s.decision, err = w.comm.BcastInit(mem.Of(s.verdicts), mem.Uint8, lowest, how); err != nil {
		return err
	}
	for i, rank := range workers {
		if rank == lowest {
			continue
		}
		color, key := -1, 1
		if w.comm.Rank() == rank || w.comm.Rank() == lowest {
			color = 0
		}
		if w.comm.Rank() == lowest {
			key = 0
		}
		pair, err := w.comm.Split(ctx, color, key)
		if err != nil {
			return err
		}
		if pair == nil {
			continue
		}
		s.comms = append(s.comms, pair)
		word := s.told
		if s.judge != nil {
			word = make([]int64, 1)
		}
		r, err := pair.BcastInit(mem.Of(word), mem.Int64, 1, how)
		if err != nil {
			return err
		}
		if s.judge != nil {
			s.judge.listen(i, r, word)
		} else {
			s.tell = r
		}
	}
	if s.worker >= 0 {
		s.passes = newPasses(s.ctx, w.solver, newTimeline(w.sink, w.solver.Computes().Layers()), 1, passCalls{ended: s.passesEnded}, s.cancel)
		s.passes.takesOffers(w.exchangeLayers())
	}
	return nil
}

// passesEnded tells the judge, on the passes' goroutine.
func (s *stragglers) passesEnded(iter int) error {
	if s.judge != nil {
		s.judge.arrivals <- arrival{worker: s.worker, iter: iter}
		return nil
	}
	s.told[0] = int64(iter)
	if err := s.tell.Start(); err != nil {
		return err
	}
	return s.tell.Wait(s.ctx)
}

// begin starts this worker's passes, unless it is behind.
func (s *stragglers) begin(iter int) {
	if s.worker >= 0 && s.begins[s.worker] {
		s.passes.start(iter)
	}
}

// offer gives the passes a layer's parameters, in the iteration that they began.
func (s *stragglers) offer(layer int, data mem.Buffer) {
	if s.worker >= 0 && s.begins[s.worker] {
		s.passes.offer(layer, data)
	}
}

// settle waits until it is decided who is in an iteration.
func (s *stragglers) settle(iter int, sink trace.Sink) error {
	begin := time.Now()
	var err error
	if s.judge != nil {
		err = s.judge.decide(iter, s.begins, s.verdicts)
	}
	if err == nil {
		err = s.decision.Start()
	}
	if err == nil {
		err = s.decision.Wait(s.ctx)
	}
	if cause := context.Cause(s.ctx); cause != nil { // the passes have failed
		err = cause
	}
	if err != nil {
		return err
	}
	s.waited(iter, sink, begin)
	all, those := 0, 0
	s.late = s.late[:0]
	for i, v := range s.verdicts {
		s.begins[i] = v != behind
		all += s.samples[i]
		if v == in {
			those += s.samples[i]
			continue
		}
		s.left[i]++
		s.lost += s.samples[i]
		s.late = append(s.late, i)
	}
	s.scale = 0
	if s.worker >= 0 && s.verdicts[s.worker] == in {
		s.scale = float32(float64(all) / float64(those))
	}
	return nil
}

// waited tells of the wait for others: since this worker's own passes ended, if they have.
func (s *stragglers) waited(iter int, sink trace.Sink, begin time.Time) {
	end := time.Now()
	if s.worker >= 0 {
		since, resting := s.passes.restingSince()
		if !resting {
			return
		}
		if since.After(begin) {
			begin = since
		}
	}
	if end.After(begin) {
		sink.Add(trace.Event{Kind: trace.Sync, Name: "who is in", Iter: int32(iter), Begin: begin, End: end})
	}
}

// finish waits until nobody is at a pass any more, and the judge knows. It is a collective.
func (s *stragglers) finish() error {
	if s == nil {
		return nil
	}
	if s.worker >= 0 {
		s.passes.rest()
	}
	if s.judge != nil {
		return s.judge.finish(s.begins)
	}
	return context.Cause(s.ctx)
}

func (s *stragglers) close() {
	if s == nil {
		return
	}
	s.cancel(context.Canceled)
	s.passes.close()
	s.judge.close()
	for _, r := range []*nbc.Request{s.decision, s.tell} {
		if r != nil {
			r.Close()
		}
	}
	for _, c := range s.comms {
		c.Close()
	}
}

// decide settles who is in an iteration, and brings this worker's gradients, if it is, to where they
// are summed. It returns this worker's part of the loss.
func (w *Worker) decide(iter int) (float64, error) {
	s := w.stragglers
	if err := s.settle(iter, w.sink); err != nil {
		return 0, err
	}
	if len(s.late) > 0 && w.events.OnDropped != nil {
		d := Dropped{Iter: iter}
		for _, worker := range s.late {
			d.Late = append(d.Late, w.roles.workers[worker])
		}
		w.events.OnDropped(d)
	}
	if s.scale == 0 {
		return 0, nil
	}
	_, diff := w.solver.Net().Packed()
	part, err := s.passes.take(diff, s.scale)
	if err == nil {
		w.keepStatistics()
	}
	return part, err
}

// keepStatistics brings what the passes of the lowest worker have gathered, and no solver learns, to
// the net whose parameters are exchanged.
func (w *Worker) keepStatistics() {
	if !w.isLowest() {
		return
	}
	to, _ := w.solver.Net().Packed()
	from, _ := w.solver.Computes().Packed()
	for _, ranges := range w.shards.fixed {
		for _, r := range ranges {
			copy(mem.Float32s(to)[r.Off:r.End()], mem.Float32s(from)[r.Off:r.End()])
		}
	}
}

// samplesLost is how many samples were in no update.
func (s *stragglers) samplesLost() int {
	if s == nil {
		return 0
	}
	return s.lost
}
