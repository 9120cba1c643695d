package train

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/scaffe/scaffe/caffe/data"
	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/trace"
	"github.com/scaffe/scaffe/train/checkpoint"
)

// root is the rank that reads and writes snapshots and tells what happens, whether it works or
// only serves.
const root = 0

// lowest is the worker, by its number among them, that updates by the scheme Reduce, and whose
// statistics are kept.
const lowest = 0

// Scaling says what a rank's batch is.
type Scaling uint8

const (
	// Strong scaling divides the net's batch_size by the ranks: the global
	// batch stays what the prototxt says.
	Strong Scaling = iota
	// Weak scaling keeps batch_size on every rank.
	Weak
)

// ParseScaling reads "strong" or "weak".
func ParseScaling(s string) (Scaling, error) {
	switch s {
	case "strong":
		return Strong, nil
	case "weak":
		return Weak, nil
	}
	return 0, fmt.Errorf("unknown scaling %q: want strong (batch_size divided by the ranks) or weak (batch_size per rank)", s)
}

// Config says what to train and how.
type Config struct {
	// Solver is the solver file, read and checked.
	Solver *proto.SolverFile
	// Scaling divides the batch.
	Scaling Scaling
	// Snapshot, unless empty, is what to resume from: a .solverstate, a directory with
	// checkpoints (of which it takes the newest), or the manifest of one.
	Snapshot string
	// Checkpoint has the ranks keep checkpoints.
	Checkpoint Checkpoint
	// Weights are .caffemodels to start from (fine-tuning).
	Weights []string
	// Design is when parameters and gradients move, Scheme how gradients become
	// parameters everywhere (the zero value, Auto, chooses for each layer), and Bucket the least size of what moves as one, in
	// bytes; 0 leaves that to package exchange.
	Design exchange.Design
	Scheme exchange.Scheme
	Bucket int
	// Workers are the ranks that compute, the zero value all: the batch is divided among
	// them. Servers are the ranks that hold the parameters with the scheme PS, the zero value
	// all; every rank works or serves. Pair is the size of their KV pairs in bytes, 0
	// coordinator.DefaultPair.
	Workers, Servers coordinator.Places
	Pair             int
	// Consistency says for whom an iteration waits.
	Consistency Consistency
	// Asked, unless nil, asks for schemes layer by layer, in place of Scheme.
	Asked *coordinator.Asked
	// Spec, unless it has no levels, says which collectives move them.
	Spec spec.Spec
	// Options are handed to the solver, its Data.Part, Alloc and NoSnapshots
	// excepted, which New sets. A Memory of 0 is this rank's share of
	// what is available on its node.
	Options solver.Options
	// Requests, unless nil, returns whether somebody has asked for a snapshot or a
	// stop (a signal) since the last call; what one rank is asked, all do. It is
	// called in every iteration, between the batches of a test, and between the
	// passes of an iteration with iter_size above 1. A stop leaves a test or such
	// an iteration unfinished. It is nil on all ranks or on none.
	Requests func() (snapshot, stop bool)
	// Events are what the root reports; the other ranks report nothing.
	Events Events
	// Trace takes what this rank does; it may be nil.
	Trace *trace.Recorder
}

// Worker is this rank's part in training.
type Worker struct {
	comm       *collectives.Comm // of all ranks
	team       *syncer.Team
	solver     *solver.Solver
	events     Events
	exchange   *exchange.Exchange
	schemes    schemes
	files      atomicfile.FS // of what lies beside snapshots
	roles      struct{ workers, servers []int }
	pair       int
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
	skipLoss      bool  // the loss is not finite
	skip          error // a gradient is not

	restored    restored     // at the root, if it goes on from a checkpoint
	notes       []string     // see Notes
	checkpoints *checkpoints // nil without
	othersWrite bool         // some rank is writing its part of one

	stragglers *stragglers // nil unless workers may be left out of iterations
	stale      *stale      // nil unless they may be some iterations apart

	shards *shards // nil unless ranks update a part of the parameters each

	ctx context.Context
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
	w := &Worker{comm: comm, interrupts: interrupts{requests: c.Requests}, files: c.Options.Writer.FS, pair: c.Pair, rec: c.Trace, skipNotFinite: c.Options.SkipNotFinite, ctx: ctx}
	err := w.divide(ctx, c)
	if err == nil {
		err = comm.Agree(ctx, w.findCheckpoint(&c))
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

// load builds this rank's solver, and reads at the root what training starts from: the part
// that needs no other rank.
func (w *Worker) load(c Config, o solver.Options) (err error) {
	number := max(0, slices.Index(w.team.Members(), w.comm.Rank()))
	o.Data.Part = data.Part{Index: number, Of: len(w.team.Members()), Weak: c.Scaling == Weak}
	o.NoSnapshots = w.comm.Rank() != root
	o.Apart = w.apartFromLoop(c)
	o.Alloc = w.comm.Alloc // for good: after a failure, peers may still write there
	if w.solver, err = solver.New(c.Solver, o); err != nil {
		return err
	}
	if w.comm.Rank() != root {
		return nil
	}
	w.events = c.Events
	switch {
	case c.Snapshot != "" && len(c.Weights) > 0:
		return errors.New("a snapshot to resume and weights to fine-tune cannot be used together")
	case checkpoint.Is(c.Snapshot):
		return w.restoreCheckpoint(c.Snapshot)
	case c.Snapshot != "":
		return w.solver.Restore(c.Snapshot)
	}
	return w.solver.Weights(c.Weights...)
}

// join makes the requests that tie this rank to the others.
func (w *Worker) join(ctx context.Context, c Config) error {
	if err := w.sameNet(ctx); err != nil {
		return err
	}
	iter := []int64{int64(w.solver.Iter())}
	if err := w.comm.Bcast(ctx, mem.Of(iter), mem.Int64, root); err != nil {
		return err
	}
	var err error
	if w.comm.Rank() != root && iter[0] > 0 {
		err = w.solver.SetIter(int(iter[0]))
	}
	if err = w.comm.Agree(ctx, err); err != nil {
		return err
	}
	for _, p := range w.testParams() { // no exchange moves them
		if err := w.comm.Bcast(ctx, p.Blob.DataBuffer(), mem.Float32, root); err != nil {
			return err
		}
	}
	if err := w.choose(ctx, c); err != nil {
		return err
	}
	if err := w.checkConsistency(ctx, c); err != nil {
		return err
	}
	w.initShards()
	if w.apart() || w.schemes.any(func(s exchange.Scheme) bool { return s != exchange.Reduce }) {
		if err := w.sameState(ctx); err != nil {
			return err
		}
	}
	if err := w.makeExchange(ctx, c); err != nil {
		return err
	}
	w.holdShard()
	if w.shards != nil && iter[0] > 0 {
		if err := w.spreadHistory(ctx); err != nil {
			return err
		}
	}
	if iter[0] > 0 {
		if err := w.restoreResiduals(ctx); err != nil {
			return err
		}
	}
	if note := w.noteResiduals(c); note != "" {
		w.notes = append(w.notes, note)
	}
	if err := w.initCheckpoints(ctx, c); err != nil {
		return err
	}
	w.loss.buf = make([]float64, sums, sums+len(w.roles.workers))
	if w.runsAhead(c) {
		w.loss.buf = w.loss.buf[:cap(w.loss.buf)]
	}
	if w.loss.sum, err = w.comm.AllreduceInit(mem.Of(w.loss.buf), mem.Of(w.loss.buf), mem.Float64, mem.Sum); err != nil {
		return err
	}
	p := w.solver.Param()
	if c.Requests != nil && (p.GetIterSize() > 1 || p.GetTestInterval() > 0) {
		if err := w.interrupts.init(ctx, w.comm); err != nil {
			return err
		}
	}
	if err := w.initStragglers(ctx, c); err != nil {
		return err
	}
	if err := w.initStale(ctx, c); err != nil {
		return err
	}
	w.attach()
	return nil
}

// sameState gives every rank the root's parameters, for a scheme that does not
// broadcast them, and its history where every rank updates all of them.
func (w *Worker) sameState(ctx context.Context) error {
	data, _ := w.solver.Net().Packed()
	state := []mem.Buffer{data}
	if w.shards == nil {
		state = append(state, buffers(w.solver.History())...)
	}
	for _, b := range state {
		if err := w.comm.Bcast(ctx, b, mem.Float32, root); err != nil {
			return err
		}
	}
	return nil
}

func buffers(vs [][]float32) []mem.Buffer {
	var bs []mem.Buffer
	for _, v := range vs {
		bs = append(bs, mem.Of(v))
	}
	return bs
}

// testParams are the parameters of layers that test nets alone have. The root
// may have read them from Config.Weights.
func (w *Worker) testParams() []net.Param {
	var ps []net.Param
	for _, n := range w.solver.TestNets() {
		ps = append(ps, n.OwnParams()...)
	}
	return ps
}

// sameNet makes sure that all ranks have built the same net: their prototxt
// may be different files of the same name on different nodes.
func (w *Worker) sameNet(ctx context.Context) error {
	n := w.solver.Net()
	h := fnv.New32a()
	for _, p := range slices.Concat(n.Learnable(), w.testParams()) {
		fmt.Fprintln(h, p.Name, p.Blob.Shape(), p.LRMult, p.DecayMult)
	}
	hash := int64(h.Sum32())
	both := []int64{hash, -hash}
	if err := w.comm.Allreduce(ctx, mem.Of(both), mem.Of(both), mem.Int64, mem.Max); err != nil {
		return err
	}
	if both[0] == -both[1] {
		return nil
	}
	return w.comm.Agree(ctx, fmt.Errorf("the ranks have built different nets (here %d parameters in %d blobs): do all nodes have the same files?", n.ParamCount(), len(n.Learnable())))
}

// makeExchange prepares to move parameters and gradients as c says.
func (w *Worker) makeExchange(ctx context.Context, c Config) error {
	w.sink = trace.Sinks{&w.meter, w.rec}
	w.time = newTimeline(w.sink, w.solver.Net().Layers())
	w.updateAtOnce = w.solver.Clips() || w.skipNotFinite || w.comm.Size() == 1
	s, err := w.newSetup(ctx, c)
	if err != nil {
		return err
	}
	w.exchange = s.exchange
	var told []trace.Bucket
	for _, b := range w.exchange.Buckets() {
		told = append(told, trace.Bucket{Bucket: b.Index, Name: b.Name, Layers: b.Layers})
	}
	c.Trace.SetBuckets(told)
	return nil
}

// exchangeLayers describes the net's layers to package exchange.
func (w *Worker) exchangeLayers() []exchange.Layer {
	n := w.solver.Net()
	learnable := n.Learnable()
	var ls []exchange.Layer
	for i, l := range n.Layers() {
		d := exchange.Layer{Name: l.Name}
		if f := w.schemes.factored[i]; f != nil && w.schemes.of[i].FactorsOnly() {
			d.Factors = &f.matrix
		}
		for _, p := range l.Params {
			d.Params = append(d.Params, exchange.Range{Off: learnable[p].Offset, Len: learnable[p].Blob.Count()})
		}
		for _, p := range l.Shared {
			d.Shared = append(d.Shared, learnable[p].Layer)
		}
		ls = append(ls, d)
	}
	return ls
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
	s := w.summary()
	if err == nil {
		s.Ranks, err = w.ranks(ctx, s)
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
	return err
}
