package train

import (
	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/exchange"
)

// staging is how a rank with a GPU is in step with others where they are not in place. Gradients and parameters move between ranks through the host's
// side of the packed buffers: a layer's gradients are copied there once its backward pass has been begun, and handed to the
// exchange when they have come, while the GPU is at the layers after it. Where all layers go by allreduce, every rank takes
// the sums up and updates on its GPU. By other schemes updates are made on the host, by whoever owes them, and the
// parameters are taken up before the next forward pass.
type staging struct {
	layers  []staged
	updates bool                 // on the host
	begun   []int                // layers whose gradients are on their way
	await   func(...*gpu.Memory) // waits until they have come
}

// staged is what moves of a layer.
type staged struct {
	params []*blob.Blob  // that it owns
	come   []*gpu.Memory // what is brought to the host after its backward pass
}

// stage prepares for gradients and parameters on the host, when the schemes are known.
func (w *Worker) stage() {
	w.staging = &staging{await: w.gpu.Fetch, updates: w.apart() || w.schemes.any(func(s exchange.Scheme) bool { return s != exchange.Allreduce })}
	n := w.solver.Net()
	for _, l := range n.Layers() {
		var s staged
		for _, k := range l.Params {
			p := n.Learnable()[k]
			s.params = append(s.params, p.Blob)
			if s.come = append(s.come, p.Blob.OnDiff()); p.LRMult == 0 && w.staging.updates { // statistics
				s.come = append(s.come, p.Blob.OnData())
			}
		}
		w.staging.layers = append(w.staging.layers, s)
	}
	if w.staging.updates {
		w.solver.UpdateOnHost()
	} else {
		w.solver.SumsOnHost()
	}
}

// takeUp has the GPU take the parameters that have come for a layer, where the host updates.
func (w *Worker) takeUp(layer int) {
	if w.staging == nil || !w.staging.updates || w.solver.Pass() > 0 {
		return
	}
	for _, b := range w.staging.layers[layer].params {
		b.OnData().HostChanged()
		b.ClearDiff()
	}
}

// bringDown begins to copy a layer's gradients to the host.
func (w *Worker) bringDown(layer int) {
	for _, m := range w.staging.layers[layer].come {
		m.Prefetch()
	}
	w.staging.begun = append(w.staging.begun, layer)
}

// handOver hands the gradients that are on their way to the exchange as they come.
func (w *Worker) handOver() error {
	if w.staging == nil {
		return nil
	}
	for _, layer := range w.staging.begun {
		w.staging.await(w.staging.layers[layer].come...)
		if err := w.gpu.Err(); err != nil {
			return err
		}
		if err := w.afterNothing(layer); err != nil {
			return err
		}
	}
	w.staging.begun = w.staging.begun[:0]
	return nil
}
