package net

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/caffe/layers"
	"github.com/scaffe/scaffe/internal/passage"
	"github.com/scaffe/scaffe/kernels/vec"
	"github.com/scaffe/scaffe/mem"
)

// Hooks are called around every layer, also those without parameters or
// without a backward pass. An error ends the pass and is returned as it is.
type Hooks struct {
	// BeforeForward runs before layer's Forward: its parameters must be
	// current when it returns.
	BeforeForward func(layer int) error
	// AfterBackward runs after layer's Backward: the gradients of the
	// parameters that the layer owns are complete.
	AfterBackward func(layer int) error
}

// Net is a net ready to run. It is not safe for concurrent use.
type Net struct {
	// Hooks are called around every layer's Forward and Backward.
	Hooks Hooks
	// BatchShare is this worker's share of the samples of a global batch, 1 by
	// default. It multiplies the gradients of losses that are means over the
	// batch; those of sums are left as they are.
	BatchShare float32

	name        string
	nodes       []*node
	blobs       map[string]*blob.Blob
	outputNames []string

	params                  []*param
	learnable               []Param
	packed                  int // elements of a packed buffer
	packedData, packedDiff  mem.Buffer
	onData, onDiff          mem.Buffer // the GPU's side
	allocOn                 func(bytes int) (mem.Buffer, error)
	followers               []func()
	shared                  []pair // parameters that are another net's
	memory                  *Memory
	globalBatch, localBatch int

	passage passage.Passage // products are calls of C

	gpu      *gpu.Device // nil: the net lies in the host's memory
	placed   bool        // parameters that are not packed lie on it
	lossTops []lossTop
	lossDue  bool // of the last forward pass

	warnings []string

	worker int
	pass   uint64 // forward passes since SeekBatch(0)
	loss   Loss   // of the last one
	total  float32
}

// Name returns the net's name in its prototxt.
func (n *Net) Name() string { return n.name }

// Warnings lists what is legal in the net's file but probably not meant, such
// as two layers of one name, for a log.
func (n *Net) Warnings() []string { return n.warnings }

// Layer describes one layer of a net.
type Layer struct {
	Index         int
	Name, Type    string
	Bottoms, Tops []string
	// Params are the indices, into Learnable, of the parameters that the
	// layer owns: current before its Forward, complete after its Backward.
	Params []int
	// Shared are the indices of those that it uses and an earlier layer owns.
	Shared []int
	// Backward says whether the layer has a backward pass.
	Backward bool
	// Layer is the layer itself.
	Layer layers.Layer
}

// Layers describes all layers, in order, the added Splits included.
func (n *Net) Layers() []Layer {
	ls := make([]Layer, len(n.nodes))
	for i, nd := range n.nodes {
		l := Layer{
			Index: i, Name: nd.name, Type: nd.typ, Bottoms: nd.bottomName, Tops: nd.topName,
			Backward: nd.backward, Layer: nd.layer,
		}
		for _, k := range nd.params {
			if p := n.params[k]; n.learnable[p.learn].Blob == p.blob {
				l.Params = append(l.Params, p.learn)
			} else {
				l.Shared = append(l.Shared, p.learn)
			}
		}
		ls[i] = l
	}
	return ls
}

// LayerCount returns how many layers there are, the added Splits included.
func (n *Net) LayerCount() int { return len(n.nodes) }

// LayerName returns the name of layer number i.
func (n *Net) LayerName(i int) string { return n.nodes[i].name }

// Forward runs all layers and returns the loss, the weighted sum of all loss
// tops. Data layers read their next batch.
func (n *Net) Forward() (float32, error) {
	if err := n.BeginForward(); err != nil {
		return 0, err
	}
	n.awaitLoss()
	return n.total, n.Err()
}

// BeginForward is Forward, but that it does not wait for a GPU to come to the end: Loss does.
func (n *Net) BeginForward() error {
	n.placeParams()
	var mean, sum float64
	for i, nd := range n.nodes {
		if n.Hooks.BeforeForward != nil {
			if err := n.Hooks.BeforeForward(i); err != nil {
				return err
			}
		}
		nd.rand.start(n.worker, n.pass)
		n.passage.Pass(time.Now())
		m, s, err := nd.forward(n.gpu)
		if err != nil {
			return err
		}
		mean, sum = mean+m, sum+s
	}
	n.pass++
	if n.lossDue = n.gpu != nil; !n.lossDue {
		n.setLoss(mean, sum)
		return nil
	}
	for _, l := range n.lossTops {
		l.node.top[l.top].OnData().Prefetch()
	}
	return n.Err()
}

func (n *Net) setLoss(mean, sum float64) {
	n.loss, n.total = Loss{Mean: float32(mean), Sum: float32(sum)}, float32(mean+sum)
}

// Loss is the loss of a batch, weighted, in two parts.
type Loss struct {
	Mean float32 // of tops that are means over the batch; see layers.BatchMean
	Sum  float32 // of tops that add up over the batch
}

// Of returns what a worker that computed l from its share of a batch adds to the
// loss of the whole batch.
func (l Loss) Of(share float32) float64 { return float64(l.Mean)*float64(share) + float64(l.Sum) }

// Loss returns the loss of the last Forward. On a GPU it waits until the pass has come to its end.
func (n *Net) Loss() Loss {
	n.awaitLoss()
	return n.loss
}

// Statistics returns the values that layers gather in Forward: the running means
// of BatchNorm.
func (n *Net) Statistics() [][]float32 {
	var all [][]float32
	for _, nd := range n.nodes {
		if g, ok := nd.layer.(layers.Gatherer); ok {
			for _, b := range g.Statistics() {
				all = append(all, b.Data())
			}
		}
	}
	return all
}

// ForwardBackward runs Forward and then Backward.
func (n *Net) ForwardBackward() (float32, error) {
	loss, err := n.Forward()
	if err != nil {
		return 0, err
	}
	return loss, n.Backward()
}

// Blob returns the blob of that name, nil if there is none.
func (n *Net) Blob(name string) *blob.Blob { return n.blobs[name] }

// Output is a blob that no layer reads: a loss, an accuracy, a prediction.
type Output struct {
	Name string
	Blob *blob.Blob
	// LossWeight is its weight in the loss, 0 if it is none.
	LossWeight float32
	// Sum is set for a loss that adds up over the batch instead of being a mean.
	Sum bool
}

// Output returns the net's outputs, by name.
func (n *Net) Output() []Output {
	outs := make([]Output, len(n.outputNames))
	for i, name := range n.outputNames {
		outs[i] = Output{Name: name, Blob: n.blobs[name]}
		for _, nd := range n.nodes {
			for j, top := range nd.topName {
				if top == name {
					outs[i].LossWeight = nd.weights[j]
					outs[i].Sum = !nd.mean[j] && (nd.weights[j] != 0 || j == 0 && nd.isLoss())
				}
			}
		}
	}
	return outs
}

// GlobalBatch returns the samples of a batch over all workers, 0 for a net
// whose inputs come from elsewhere.
func (n *Net) GlobalBatch() int { return n.globalBatch }

// LocalBatch returns the samples of a batch that this worker reads, 0 for a
// net whose inputs come from elsewhere.
func (n *Net) LocalBatch() int { return n.localBatch }

// SeekBatch puts all data layers, and every random choice, to global batch number
// k, counted from 0: the state after k forward passes.
func (n *Net) SeekBatch(k int64) error {
	if k < 0 {
		return fmt.Errorf("cannot seek to batch %d", k)
	}
	for _, nd := range n.nodes {
		nd.ahead.ready = false
		if s, ok := nd.layer.(layers.Seeker); ok {
			if err := s.SeekBatch(k); err != nil {
				return nd.wrap(fmt.Errorf("seeking to batch %d: %w", k, err))
			}
		}
	}
	n.pass = uint64(k)
	return nil
}

// Close gives back what data layers hold. It may be called twice.
func (n *Net) Close() error {
	var errs []error
	for _, nd := range n.nodes {
		if c, ok := nd.layer.(io.Closer); ok {
			errs = append(errs, nd.wrap(c.Close()))
		}
	}
	return errors.Join(errs...)
}

// NotFinite returns the first layer, in forward order, that has a top with a
// NaN or an infinity, and that top's name; ok is false if there is none.
func (n *Net) NotFinite() (layer, top string, ok bool) {
	for _, nd := range n.nodes {
		for j, t := range nd.top {
			if vec.FirstNotFinite(t.HostData()) >= 0 {
				return nd.name, nd.topName[j], true
			}
		}
	}
	return "", "", false
}
