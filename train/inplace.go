package train

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// inPlace is how ranks with GPUs are in step whose gradients are reduced where they lie: what the exchange moves is the GPU's
// side of the packed buffers. A layer is handed to the exchange as soon as its backward pass has been begun; the push begins
// when the GPU has come to that point of it. The update is made on the GPU of whoever owes it, beside the passes, and what is pulled
// begins after it, from one GPU's memory into the others'. The passes wait for updates on the GPU. So the host waits for no
// kernel and no copy but that of the loss.
type inPlace struct {
	layers [][]param // by layer: what it owns
	queues queues
	// Buckets may have been summed before the loss is known, and the sum of that is begun. In turn, iteration by iteration: closed
	// when it is; quit is closed when that will not be.
	loss [2]chan struct{}
	quit chan struct{}
	once sync.Once // of close
}

// begin begins an iteration.
func (p *inPlace) begin(iter int) {
	if p != nil {
		p.loss[iter%2] = make(chan struct{})
	}
}

// lossKnown says that the sum of the iteration's loss has been begun.
func (p *inPlace) lossKnown(iter int) {
	if p != nil {
		close(p.loss[iter%2])
	}
}

// awaitLoss returns when it has been.
func (p *inPlace) awaitLoss(iter int) error {
	if p == nil {
		return nil
	}
	select {
	case <-p.loss[iter%2]:
		return nil
	case <-p.quit:
		return errors.New("training has ended before the loss was known")
	}
}

// close ends those who wait.
func (p *inPlace) close() {
	if p != nil {
		p.once.Do(func() { close(p.quit) })
	}
}

// param is a parameter of a layer.
type param struct {
	*blob.Blob
	statistics bool // no solver learns it
}

// queues are the GPU's, as syncers see them.
type queues struct {
	gpu   *gpu.Device
	spoil spoil
}

// spoil is what a test has go wrong, to see that it is found, or wants to see.
type spoil struct {
	early    bool   // gradients are handed over without the event after which they are there
	outdated bool   // parameters are pulled without the event of their update
	apart    bool   // the passes do not wait for updates
	pulled   func() // unless nil, is told of each pull
}

// passed is an event that has passed.
type passed struct{}

func (passed) Passed() (bool, error) { return true, nil }

// Gradients returns the point to which the passes have been begun.
func (q *queues) Gradients(last nbc.Event) (nbc.Event, error) {
	if q.spoil.early {
		return passed{}, nil
	}
	return again(q.gpu.Passes, last)
}

// Parameters returns that of the updates.
func (q *queues) Parameters(last nbc.Event) (nbc.Event, error) {
	if q.spoil.pulled != nil {
		q.spoil.pulled()
	}
	if q.spoil.outdated {
		return passed{}, nil
	}
	return again(q.gpu.Updates, last)
}

// again returns a point, and uses the event that was returned last.
func again(point func(*cuda.Event) (*cuda.Event, error), last nbc.Event) (nbc.Event, error) {
	before, _ := last.(*cuda.Event)
	e, err := point(before)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// engineHas reports whether this rank's engine combines what lies in the memory of a GPU, by its number.
func (w *Worker) engineHas(index int) bool {
	on, ok := w.comm.Engine().Accelerator().(interface{ GPU() cuda.GPU })
	return ok && on.GPU().Index == index
}

// findServed finds out, before there are schemes, whether collectives on the memory of their GPUs are served on all ranks.
func (w *Worker) findServed(ctx context.Context) error {
	if !w.device.CUDA || w.comm.Size() == 1 {
		return nil
	}
	lack := []int64{0}
	if w.gpu == nil || !w.engineHas(w.gpu.GPU().Index) {
		lack[0] = 1
	}
	err := w.comm.Allreduce(ctx, mem.Of(lack), mem.Of(lack), mem.Int64, mem.Sum)
	w.served = lack[0] == 0
	return err
}

// inPlaceAsked returns what is asked for where nothing is, not of any layer: what goes in place costs no copies to hosts, which
// predictions of schemes do not know.
func (w *Worker) inPlaceAsked(asked coordinator.Asked) coordinator.Asked {
	if w.served && asked.Default == exchange.Auto && len(asked.Rules) == 0 {
		asked.Default = exchange.Allreduce
		w.notes = append(w.notes, "scheme auto: all layers go by allreduce, since gradients are then reduced in the GPUs' memory")
	}
	return asked
}

// joinGPUs prepares for several ranks with GPUs, when their schemes are known.
func (w *Worker) joinGPUs(c Config) {
	if !w.device.CUDA || w.comm.Size() == 1 {
		return
	}
	if why := w.notInPlace(c); why != "" {
		w.notes = append(w.notes, "gradients and parameters go between the GPUs through the host's memory: "+why)
		if w.gpu != nil {
			w.stage()
		}
		return
	}
	w.inPlace = &inPlace{queues: queues{gpu: w.gpu}, quit: make(chan struct{})}
	n := w.solver.Net()
	for _, l := range n.Layers() {
		var own []param
		for _, k := range l.Params {
			own = append(own, param{n.Learnable()[k].Blob, n.Learnable()[k].LRMult == 0})
		}
		w.inPlace.layers = append(w.inPlace.layers, own)
	}
	w.solver.UpdateBeside()
}

// notInPlace says why, by what all ranks know, gradients are not reduced where they lie; "" if they are.
func (w *Worker) notInPlace(c Config) string {
	switch {
	case w.apart():
		return "some ranks only serve parameters, on their hosts"
	case !w.served:
		return "the ranks' engines do not serve the memory of their GPUs"
	}
	for _, v := range []schedule.Collective{schedule.Reduce, schedule.Bcast, schedule.Allreduce} {
		q := selection.Query{Collective: v, Bytes: mem.Float32.Bytes(w.solver.Net().PackedCount()), Type: mem.Float32, Buffers: selection.CUDA, Library: w.comm.HasLibrary()}
		if choice, err := w.comm.Select(q, c.Spec); err == nil && choice.Spec.IsLibrary() {
			return fmt.Sprintf("the MPI library (%v) gets no pointer to a GPU's memory", choice.Spec)
		}
	}
	var first exchange.Scheme
	for i, l := range w.solver.Net().Layers() {
		s := w.schemes.of[i]
		switch {
		case len(l.Params) == 0:
		case !exchange.OnDevice(s):
			return fmt.Sprintf("the scheme %v, of layer %q, sums and updates on the host", s, l.Name)
		case first == 0:
			first = s
		case s != first:
			return fmt.Sprintf("layers go by both %v and %v, whose shards lie on the host", first, s)
		}
	}
	return ""
}

// packed returns the buffers that the exchange moves.
func (w *Worker) packed() (data, diff mem.Buffer) {
	if w.inPlace != nil {
		return w.solver.Net().PackedOn()
	}
	return w.solver.Net().Packed()
}

// toGPU has the GPU take what training starts from, out of the host's side of the packed buffers.
func (w *Worker) toGPU() error {
	if w.inPlace == nil {
		return nil
	}
	for _, own := range w.inPlace.layers {
		for _, p := range own {
			for _, m := range []*gpu.Memory{p.OnData(), p.OnDiff()} {
				m.HostChanged()
				m.Read()
			}
		}
	}
	w.gpu.Fork() // so the first pull, which follows no update, begins after it
	return w.gpu.Err()
}

// takeOver has the passes come to a layer whose parameters are current, or are when the updates that were begun have been done.
func (w *Worker) takeOver(layer int) {
	if w.inPlace == nil || w.solver.Pass() > 0 {
		return
	}
	for _, p := range w.inPlace.layers[layer] {
		p.OnData().DeviceChanged()
		p.OnDiff().DeviceChanged()
	}
	if !w.inPlace.queues.spoil.apart {
		w.gpu.Join()
	}
}

// leave has a layer's gradients, and what its passes have gathered, be on the GPU, wherever they were computed.
func (w *Worker) leave(layer int) {
	if w.inPlace == nil {
		return
	}
	for _, p := range w.inPlace.layers[layer] {
		p.OnDiff().Read()
		if p.statistics {
			p.OnData().Read()
		}
	}
}

// paramsOnHost has the packed parameters on the host be current, and count. Where all ranks' are not, as updates alone have
// ended, only those of whoever made them are.
func (w *Worker) paramsOnHost() error {
	n := w.solver.Net()
	switch {
	case w.inPlace != nil:
		if err := w.solver.CheckGradients(); err != nil {
			return err
		}
		for _, own := range w.inPlace.layers {
			for _, p := range own {
				p.OnData().DeviceChanged()
			}
		}
		n.FetchParams()
		return w.gpu.Err()
	case w.staging == nil || !w.staging.updates:
		n.ToHost()
	default:
		for _, p := range n.Learnable() {
			p.Blob.OnData().HostChanged()
		}
	}
	return nil
}

// statisticsToGPU has the GPU take the statistics that have come to the host.
func (w *Worker) statisticsToGPU() {
	if w.inPlace == nil {
		return
	}
	for _, own := range w.inPlace.layers {
		for _, p := range own {
			if p.statistics {
				p.OnData().HostChanged()
				p.OnData().Read()
			}
		}
	}
}
