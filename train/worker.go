package train

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/scaffe/scaffe/caffe/data"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/syncer"
)

// root is the rank that updates the parameters and writes snapshots.
const root = 0

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
	return 0, fmt.Errorf("scaling %q is unknown: use strong (batch_size divided by the ranks) or weak (batch_size per rank)", s)
}

// Config says what to train and how.
type Config struct {
	// Solver is the solver file, read and checked.
	Solver *proto.SolverFile
	// Scaling divides the batch.
	Scaling Scaling
	// Snapshot, unless empty, is the .solverstate to go on from.
	Snapshot string
	// Weights are .caffemodels to start from (fine-tuning).
	Weights []string
	// Spec, unless it has no levels, says how parameters and gradients move.
	Spec collectives.Spec
	// Options are handed to the solver, its Data.Part, TestShare, Alloc and
	// NoSnapshots excepted, which New sets.
	Options solver.Options
	// Events are what the root reports; the other ranks report nothing.
	Events Events
}

// Worker is this rank's part in training.
type Worker struct {
	comm    *collectives.Comm
	solver  *solver.Solver
	events  Events
	buckets []*bucket
	owner   []*bucket // by parameter
	watch   stopwatch
	done    int // iterations of this run
	loss    struct {
		buf  []float64
		sum  *nbc.Request
		part float64 // this rank's share of the global batch
	}
	ctx context.Context // of Run
}

// New builds this rank's solver and joins it to the others'. It is a
// collective: where it fails on one rank, it fails on all, with the same
// error.
func New(ctx context.Context, comm *collectives.Comm, c Config) (*Worker, error) {
	w := &Worker{comm: comm}
	err := w.build(c)
	if err = comm.Agree(ctx, err); err == nil {
		err = w.join(ctx, c)
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// build is the part that needs no other rank.
func (w *Worker) build(c Config) (err error) {
	rank, size := w.comm.Rank(), w.comm.Size()
	o := c.Options
	o.Data.Part = data.Part{Index: rank, Of: size, Weak: c.Scaling == Weak}
	o.TestShare = solver.TestShare{Index: rank, Of: size}
	o.NoSnapshots = rank != root
	o.Alloc = w.comm.Alloc // for good: after a failure, peers may still write there
	if w.solver, err = solver.New(c.Solver, o); err != nil {
		return err
	}
	if rank != root {
		return nil
	}
	w.events = c.Events
	switch {
	case c.Snapshot != "" && len(c.Weights) > 0:
		return errors.New("a snapshot to resume and weights to fine-tune exclude each other: give one of them")
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
	if err := w.makeBuckets(c.Spec); err != nil {
		return err
	}
	w.loss.buf = make([]float64, 1)
	w.loss.part = float64(w.solver.Net().GradientScale)
	if w.loss.sum, err = w.comm.AllreduceInit(mem.Of(w.loss.buf), mem.Of(w.loss.buf), mem.Float64, mem.Sum); err != nil {
		return err
	}
	w.attach()
	return nil
}

// sameNet makes sure that all ranks have built the same net: their prototxt
// may be different files of the same name on different nodes.
func (w *Worker) sameNet(ctx context.Context) error {
	n := w.solver.Net()
	h := fnv.New32a()
	for _, p := range n.Learnable() {
		fmt.Fprintln(h, p.Name, p.Blob.Shape(), p.LRMult, p.DecayMult)
	}
	print := int64(h.Sum32())
	both := []int64{print, -print}
	if err := w.comm.Allreduce(ctx, mem.Of(both), mem.Of(both), mem.Int64, mem.Max); err != nil {
		return err
	}
	if both[0] == -both[1] {
		return nil
	}
	return w.comm.Agree(ctx, fmt.Errorf("the ranks have built different nets (here %d parameters in %d blobs): do all nodes have the same files?", n.ParamCount(), len(n.Learnable())))
}

// makeBuckets makes the one bucket of SC-B.
func (w *Worker) makeBuckets(spec collectives.Spec) error {
	n := w.solver.Net()
	data, diff := n.Packed()
	params := make([]int, len(n.Learnable()))
	for i := range params {
		params[i] = i
	}
	s, err := syncer.Reduce(w.comm, syncer.Bucket{Name: "all parameters", Data: data, Diff: diff}, root, collectives.With(spec))
	if err != nil {
		return err
	}
	b := &bucket{sync: s, params: len(params)}
	w.buckets = []*bucket{b}
	w.owner = make([]*bucket, len(params))
	for _, p := range params {
		w.owner[p] = b
	}
	return nil
}

// Solver returns this rank's solver.
func (w *Worker) Solver() *solver.Solver { return w.solver }

// Run trains to the solver's max_iter. Where it fails on one rank, that rank
// returns the error and must tell the others (package launch does).
func (w *Worker) Run(ctx context.Context) (Summary, error) {
	w.ctx = ctx
	w.watch.start()
	err := w.solver.Solve(ctx)
	return w.summary(), err
}

// Close ends requests and nets; the parameters' memory stays until the process
// ends. It may be called twice.
func (w *Worker) Close() error {
	for _, b := range w.buckets {
		b.sync.Close()
	}
	w.buckets = nil
	if w.loss.sum != nil {
		w.loss.sum.Close()
	}
	var err error
	if w.solver != nil {
		err = w.solver.Close()
		w.solver = nil
	}
	return err
}
