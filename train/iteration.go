package train

import (
	"errors"

	"github.com/scaffe/scaffe/caffe/layers"
	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/syncer"
)

// bucket is parameters that are synchronised together, and how far this
// iteration has come with them.
type bucket struct {
	sync    syncer.Syncer
	params  int  // how many
	ready   int  // gradients complete in this iteration
	pulling bool // Pull has started and is not awaited
	current bool // Data is what the root last made it
}

// attach joins the worker to its solver's hooks and callbacks.
func (w *Worker) attach() {
	n := w.solver.Net()
	w.solver.Hooks = net.Hooks{BeforeForward: w.beforeForward, AfterBackward: w.afterBackward}
	w.solver.Callbacks = solver.Callbacks{
		OnStart:          func(int) error { return w.pull() },
		OnGradientsReady: w.gradientsReady,
		OnParams:         func(int) error { return errors.Join(w.pull(), w.pulled(w.buckets...)) },
		Sum:              w.sum,
	}
	w.solver.Events = solver.Events{
		OnDisplay:  w.events.Solver.OnDisplay,
		OnTest:     w.events.Solver.OnTest,
		OnSnapshot: w.events.Solver.OnSnapshot,
		OnIteration: func(i solver.Iteration) {
			w.done++
			if w.events.Solver.OnIteration != nil {
				w.events.Solver.OnIteration(i)
			}
			if w.events.OnProgress != nil {
				w.events.OnProgress(Progress{Iteration: i, Summary: w.summary()})
			}
		},
	}
	w.watch.input = make([]bool, len(n.Layers())+1)
	for _, l := range n.Layers() {
		_, reads := l.Layer.(layers.Batcher)
		w.watch.input[l.Index] = reads
	}
}

// pull starts the broadcast of every bucket that is not current.
func (w *Worker) pull() error {
	for _, b := range w.buckets {
		b.ready = 0
		if b.current || b.pulling {
			continue
		}
		if err := b.sync.Pull(); err != nil {
			return err
		}
		b.pulling = true
	}
	return nil
}

// pulled waits until the buckets are current.
func (w *Worker) pulled(buckets ...*bucket) error {
	for _, b := range buckets {
		if !b.pulling {
			continue
		}
		stop := w.watch.communicate()
		err := b.sync.Pulled(w.ctx)
		stop()
		if err != nil {
			return err
		}
		b.pulling, b.current = false, true
	}
	return nil
}

// beforeForward waits for the parameters of the layer that comes next, its
// own and those it shares, and for no others.
func (w *Worker) beforeForward(layer int) error {
	w.watch.layer(layer)
	l := w.solver.Net().Layers()[layer]
	for _, uses := range [][]int{l.Params, l.Shared} {
		for _, p := range uses {
			if err := w.pulled(w.owner[p]); err != nil {
				return err
			}
		}
	}
	return nil
}

// afterBackward starts the aggregation of a bucket with the last of its
// gradients.
func (w *Worker) afterBackward(layer int) error {
	for _, p := range w.solver.Net().Layers()[layer].Params {
		b := w.owner[p]
		if b.ready++; b.ready < b.params {
			continue
		}
		if err := b.sync.Push(); err != nil {
			return err
		}
	}
	return nil
}

// gradientsReady waits for the aggregation, and sums the loss meanwhile.
func (w *Worker) gradientsReady(_ int, loss float32) (apply bool, global float32, err error) {
	defer w.watch.communicate()()
	w.loss.buf[0] = float64(loss) * w.loss.part
	if err := w.loss.sum.Start(); err != nil {
		return false, 0, err
	}
	for _, b := range w.buckets {
		if err := b.sync.Pushed(w.ctx); err != nil {
			return false, 0, err
		}
		b.current = false
		apply = b.sync.Updates()
	}
	if err := w.loss.sum.Wait(w.ctx); err != nil {
		return false, 0, err
	}
	return apply, float32(w.loss.buf[0]), nil
}

// sum adds v over the ranks.
func (w *Worker) sum(v []float64) ([]float64, error) {
	defer w.watch.communicate()()
	out := make([]float64, len(v))
	return out, w.comm.Allreduce(w.ctx, mem.Of(v), mem.Of(out), mem.Float64, mem.Sum)
}
