package train

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/scaffe/scaffe/caffe/data"
	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/trace"
	"github.com/scaffe/scaffe/train/checkpoint"
)

// load builds this rank's solver, and reads at the root what training starts from: the part
// that needs no other rank.
func (w *Worker) load(c Config, o solver.Options) (err error) {
	number := max(0, slices.Index(w.team.Members(), w.comm.Rank()))
	o.Data.Part = data.Part{Index: number, Of: len(w.team.Members()), Weak: c.Scaling == Weak}
	o.NoSnapshots = w.comm.Rank() != root
	o.Apart = w.apartFromLoop(c)
	if c.Consistency.SSP { // refuses clip_gradients
		o.InsteadOfClipping = "lower momentum, use --consistency bsp, which can have clip_gradients"
	}
	if err := w.openDevice(c, &o); err != nil {
		return err
	}
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
	if err := w.findServed(ctx); err != nil {
		return err
	}
	if err := w.choose(ctx, c); err != nil {
		return err
	}
	w.moves.credit = coordinator.Credit(c.Credit, w.moves.slice, w.comm.Layout().Nodes, w.team.Layout().Nodes)
	c.Slice, c.Credit = w.moves.slice, w.moves.credit
	if err := w.checkConsistency(ctx, c); err != nil {
		return err
	}
	if err := w.checkSparse(ctx, c); err != nil {
		return err
	}
	w.initShards()
	w.joinGPUs(c)
	if w.apart() || w.schemes.any(func(s exchange.Scheme) bool { return s != exchange.Reduce }) {
		if err := w.sameState(ctx); err != nil {
			return err
		}
	}
	if err := w.makeExchange(ctx, c); err != nil {
		return err
	}
	if err := w.initHistory(ctx, iter[0] > 0); err != nil {
		return err
	}
	if iter[0] > 0 {
		if err := w.restoreResiduals(ctx); err != nil {
			return err
		}
	}
	w.notes = append(w.notes, w.noteResiduals(c)...)
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
	return w.toGPU()
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
	if w.gpu != nil && w.rec != nil {
		w.gpu.Trace(w.rec)
		w.time.gpu = w.gpu
	}
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
			d.Params = append(d.Params, placed(n, p))
			if learnable[p].LRMult == 0 {
				d.Fixed = append(d.Fixed, placed(n, p))
			}
		}
		for _, p := range l.Shared {
			d.Shared = append(d.Shared, learnable[p].Layer)
		}
		ls = append(ls, d)
	}
	return ls
}
