// Package layers holds the layers a net is made of, one file a family, and
// the registry that makes a layer from its prototxt message.
//
// # The contract
//
// A layer is made by New from its LayerParameter. The net then calls
//
//   - Setup once, with the bottoms in their first shape. The layer checks its
//     parameters, the number and shapes of its bottoms, and makes its
//     learnable parameters (Params), filled by their fillers.
//   - Reshape after Setup and whenever a bottom's shape changed. The layer
//     gives its tops their shapes and allocates what it needs, so that Forward
//     and Backward allocate nothing.
//   - Forward: reads the bottoms' Data, writes the tops' Data.
//   - Backward: reads the tops' Diff (and any Data), writes the Diff of each
//     bottom i with propagate[i], overwriting it, and ADDS to the Diff of each
//     parameter (the solver clears them; several batches and layers that
//     share a parameter accumulate).
//
// A top may be the same blob as a bottom (in place) where the layer says so.
// Nothing in this package knows ranks, communicators or solvers.
package layers

import (
	"fmt"
	"math/rand/v2"
	"sort"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/factors"
)

// Layer is one step of a net. See the package comment for the contract.
type Layer interface {
	Setup(bottom, top []*blob.Blob) error
	Reshape(bottom, top []*blob.Blob) error
	Forward(bottom, top []*blob.Blob) error
	Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error
	// Params returns the learnable parameters, weights before biases, in
	// Caffe's order, always the same blobs after Setup.
	Params() []*blob.Blob
}

// Loss is implemented by layers whose first top is a loss: its loss weight
// is 1 unless loss_weight says otherwise.
type Loss interface{ IsLoss() bool }

// BatchMean is implemented by layers with tops that are means over the items
// of a batch. The means of the parts of a batch, each times its part of the
// items, add up to the mean of the whole. A top with a loss_weight that is not one
// is a sum: the parts' add up as they are.
type BatchMean interface{ BatchMean(top int) bool }

// Gatherer is implemented by layers that gather statistics in training: Forward
// changes these parameters, which no solver learns.
type Gatherer interface{ Statistics() []*blob.Blob }

// Factored is implemented by layers with a matrix of weights, their first
// parameter, whose gradient is uᵀ·v for two factors of a row a sample, and a bias, their
// second if any, whose gradient is the sum of u's rows: Poseidon's sufficient factors
// (section 3.2). See package kernels/factors, which rebuilds both.
type Factored interface {
	// FactorShape returns the shape of the weights, and how many rows the factors
	// have in a pass. It is known after Reshape.
	FactorShape() (shape factors.Shape, rows int)
	// LeaveGradients says whether Backward leaves the gradients of the parameters
	// out, and all work for them.
	LeaveGradients(leave bool)
	// Factors returns u and v of the last Backward. They lie in the blobs: the next
	// Forward overwrites them.
	Factors(top, bottom []*blob.Blob) (u, v []float32)
}

// Sharer is implemented by layers whose tops take no memory of their own: data
// says that a top's values are a bottom's, diff that its gradients are.
type Sharer interface{ SharesMemory() (data, diff bool) }

// Bufferer is implemented by data layers that read ahead: how many bytes of
// batches they hold besides their tops, known after Setup.
type Bufferer interface{ Buffered() int64 }

// Bounds is how many bottoms or tops a layer takes: at least Min, at most Max
// (no bound where Max < 0).
type Bounds struct{ Min, Max int }

// Blobs is implemented by every layer: the numbers of bottoms and tops that
// it takes, checked by the net before Setup. InPlace says whether top[0] may
// be bottom[0]; NoBackward[i] says that bottom i never takes a gradient
// (labels).
type Blobs interface {
	Bottoms() Bounds
	Tops() Bounds
	InPlace() bool
	NoBackward(bottom int) bool
}

// Env is what a layer may know of the world around it.
type Env struct {
	Phase proto.Phase
	// Rand is the source of every random number of the layer: fillers and
	// dropout. Seeded by the net from random_seed and the layer's index, so that the
	// same seed gives the same weights whatever else is in the process.
	Rand *rand.Rand
	// Data opens the data sources of data layers. See caffe/data.
	Data DataOptions
	// Memory, unless nil, is asked before Setup allocates, since a prototxt may
	// make parameters and batches as large as it likes.
	Memory Memory
}

// Memory says whether there is enough of it.
type Memory interface {
	// Params takes what parameters of so many bytes need, or says that there is
	// not enough.
	Params(bytes int64) error
	// Fits says whether so many bytes are left, and takes nothing.
	Fits(bytes int64) error
}

// Maker makes a layer from its message. It checks nothing that needs shapes.
type Maker func(p *proto.LayerParameter, env Env) (Layer, error)

var makers = map[string]Maker{}

// register is called from the init of the file that defines the layer.
func register(typ string, m Maker) {
	if _, dup := makers[typ]; dup {
		panic("layers: type " + typ + " registered twice")
	}
	makers[typ] = m
}

// New makes the layer that p describes.
func New(p *proto.LayerParameter, env Env) (Layer, error) {
	m, ok := makers[p.GetType()]
	if !ok {
		return nil, fmt.Errorf("layer %q: type %q is not supported; supported are %v", p.GetName(), p.GetType(), Types())
	}
	return m(p, env)
}

// Types lists the supported layer types in alphabetical order.
func Types() []string {
	ts := make([]string, 0, len(makers))
	for t := range makers {
		ts = append(ts, t)
	}
	sort.Strings(ts)
	return ts
}
