package train

import (
	"context"
	"errors"
	"time"

	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/trace"
)

// root is the rank that reads and writes snapshots and tells what happens, whether it works or
// only serves.
const root = 0

// lowest is the worker, by its number among them, that updates by the scheme Reduce, and whose
// statistics are kept.
const lowest = 0

// Worker is this rank's part in training.
type Worker struct {
	comm       *collectives.Comm // of all ranks
	team       *syncer.Team
	solver     *solver.Solver
	gpu        *gpu.Device // nil: the CPU
	device     Device
	waits      waits
	served     bool     // collectives on GPUs' memory are, on all ranks
	inPlace    *inPlace // nil unless several ranks have GPUs, and gradients are reduced there
	staging    *staging // nil unless they go through the host
	events     Events
	exchange   *exchange.Exchange
	schemes    schemes
	files      atomicfile.FS // of what lies beside snapshots
	roles      struct{ workers, servers []int }
	moves      pieces
	setups     []*Setup
	rec        *trace.Recorder
	meter      trace.Meter
	sink       trace.Sink // both
	time       timeline
	done       int // iterations of this run
	skipped    int // of them without an update
	asked      solver.Action
	interrupts interrupts
	loss       struct {
		buf []float64 // by sumLoss and so on
		sum *nbc.Request
	}

	// Where all buckets are updated at once:
	updateAtOnce  bool
	skipNotFinite bool
	update        solver.Update
	skipLoss      bool      // the loss is not finite
	skip          error     // a gradient is not
	squares       []float64 // by block of this rank's gradients; see clipOwn

	restored    restored     // at the root, if it goes on from a checkpoint
	notes       []string     // see Notes
	checkpoints *checkpoints // nil without
	othersWrite bool         // some rank is writing its part of one

	stragglers *stragglers // nil unless workers may be left out of iterations
	stale      *stale      // nil unless they may be some iterations apart

	shards *shards // nil unless ranks update a part of the parameters each

	ctx context.Context
}

// pieces is in what pieces parameters move, and in what order: Config's fields of these names.
type pieces struct {
	pair   int
	slice  coordinator.Slice
	may    coordinator.Slice
	credit int
	place  coordinator.Placement
	pull   coordinator.Pull
	sparse *coordinator.Sparse
}

// pieces are those that c asks for.
func (c *Config) pieces() pieces {
	return pieces{c.Pair, c.Slice, c.MaySlice, c.Credit, c.Placement, c.Pull, c.Sparse}
}

// New builds this rank's solver and joins it to the others'. It is a
// collective: where it fails on one rank, it fails on all, with the same
// error.
func New(ctx context.Context, comm *collectives.Comm, c Config) (*Worker, error) {
	// All ranks look before any of them allocates.
	if available, err := mem.Available(); err == nil && c.Options.Memory == 0 {
		c.Options.Memory = max(1, available/int64(max(1, comm.Layout().PPN)))
	}
	if err := comm.Barrier(ctx); err != nil {
		return nil, err
	}
	w := &Worker{comm: comm, device: c.Device, interrupts: interrupts{requests: c.Requests}, files: c.Options.Writer.FS, moves: c.pieces(), rec: c.Trace, skipNotFinite: c.Options.SkipNotFinite, ctx: ctx}
	err := w.divide(ctx, c)
	if err == nil {
		err = comm.Agree(ctx, w.findCheckpoint(&c))
	}
	if err == nil {
		err = w.sameDevice(ctx)
	}
	if err == nil {
		err = w.build(ctx, c)
	}
	if err == nil {
		err = w.join(ctx, c)
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// Solver returns this rank's solver.
func (w *Worker) Solver() *solver.Solver { return w.solver }

// Exchange returns what moves parameters and gradients.
func (w *Worker) Exchange() *exchange.Exchange { return w.exchange }

// Notes are lines that whoever started the run should read; the root's alone.
func (w *Worker) Notes() []string { return w.notes }

// Totals says where this rank's time has gone so far.
func (w *Worker) Totals() trace.Totals { return w.meter.Totals() }

// Run trains to the solver's max_iter, or until Config.Requests says stop.
// Where it fails on one rank, that rank returns the error and must tell the
// others (package launch does). It is a collective.
func (w *Worker) Run(ctx context.Context) (Summary, error) {
	w.ctx, w.interrupts.ctx = ctx, ctx
	if w.stragglers != nil {
		defer context.AfterFunc(ctx, func() { w.stragglers.cancel(context.Cause(ctx)) })()
	}
	if w.stale != nil {
		defer context.AfterFunc(ctx, func() { w.stale.cancel(context.Cause(ctx)) })()
	}
	predicted, err := w.predict()
	w.time.began = time.Now()
	if err == nil {
		err = w.solver.Solve(ctx)
	}
	if err == nil {
		err = w.exchange.Current() // nothing is left under way
	}
	if err == nil {
		err = w.stragglers.finish()
	}
	if err == nil {
		err = w.stale.rest()
	}
	if err == nil {
		err = w.interrupts.settle()
	}
	if err == nil {
		err = w.lastCheckpoint()
	}
	w.time.rests()
	s := w.summary()
	if err == nil {
		s.Ranks, err = w.ranks(ctx, s)
		s.Order = nbc.Order{}
		for _, r := range s.Ranks {
			s.Order = s.Order.Add(r.Order)
		}
	}
	if err == nil {
		s.Buckets, err = w.costs(ctx, predicted)
		if a := w.schemes.audit; a != nil && a.Iterations != nil {
			s.Choice = a.Iterations.Text()
		}
	}
	return s, err
}

// Step runs n iterations, for callers that measure; updates of the last one may
// still be under way when it returns. Waits for other ranks
// end with New's context. It is a collective.
func (w *Worker) Step(ctx context.Context, n int) error {
	if w.time.began.IsZero() {
		w.time.began = time.Now()
	}
	return w.solver.Step(ctx, n)
}

// Close ends requests and nets; the parameters' memory stays until the process
// ends. It may be called twice.
func (w *Worker) Close() error {
	w.stale.close()
	w.inPlace.close()
	for _, s := range w.setups {
		s.exchange.Close()
	}
	w.setups = nil
	if w.loss.sum != nil {
		w.loss.sum.Close()
	}
	w.interrupts.close()
	w.stragglers.close()
	w.checkpoints.close()
	w.team.Close()
	var err error
	if w.solver != nil {
		err = w.solver.Close()
		w.solver = nil
	}
	if w.gpu != nil && w.comm.Size() == 1 { // after a failure, peers may still write to its pinned memory
		err = errors.Join(err, w.gpu.Close())
	}
	w.gpu = nil
	return err
}
