package net

import (
	"fmt"
	"slices"
	"strings"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/caffe/layers"
	"github.com/scaffe/scaffe/caffe/proto"
)

// node is one layer in its net.
type node struct {
	name, typ string
	param     *proto.LayerParameter       // the net's own copy
	place     func(path ...string) string // where a field stands: "file:line:column"
	layer     layers.Layer
	rand      *source

	bottom, top         []*blob.Blob
	bottomName, topName []string
	seen                [][]int   // the bottoms' shapes at the last Reshape
	weights             []float32 // loss weight a top
	mean                []bool    // a top is a mean over the batch

	propagate []bool // bottom i takes a gradient
	backward  bool   // Backward is called
	params    []int  // every parameter, as an index into Net.params
	frozen    bool   // some parameter has lr_mult 0

	// Of a net on a GPU:
	onGPU layers.OnGPU // nil: the host computes it
	blobs []*blob.Blob // its parameters
	reads []read
	ahead ahead
}

// where says where the layer stands, "" where not known.
func (nd *node) where() string { return nd.place() }

// errorf makes an error that says where the layer stands and what it is:
//
//	net.prototxt:12:1: layer "conv1" (Convolution): ...
func (nd *node) errorf(format string, args ...any) error {
	return nd.errorIn(nil, format, args...)
}

// errorIn makes such an error at the place of one of the layer's fields.
func (nd *node) errorIn(field []string, format string, args ...any) error {
	return nd.wrapIn(field, fmt.Errorf(format, args...))
}

// wrap adds place, name and type to err; layers name themselves already.
func (nd *node) wrap(err error) error { return nd.wrapIn(nil, err) }

func (nd *node) wrapIn(field []string, err error) error {
	if err == nil {
		return nil
	}
	if !strings.HasPrefix(err.Error(), fmt.Sprintf("layer %q", nd.name)) {
		err = fmt.Errorf("layer %q (%s): %w", nd.name, nd.typ, err)
	}
	if where := nd.place(field...); where != "" {
		return fmt.Errorf("%s: %w", where, err)
	}
	return err
}

// path names a field of a layer, the i-th if it is repeated.
func path(field string, i ...int) []string {
	if len(i) > 0 {
		field = fmt.Sprintf("%s[%d]", field, i[0])
	}
	return []string{field}
}

// reshape calls the layer's Reshape and remembers for which bottoms.
func (nd *node) reshape() error {
	if err := nd.layer.Reshape(nd.bottom, nd.top); err != nil {
		return nd.wrap(err)
	}
	nd.seen = nd.seen[:0]
	for _, b := range nd.bottom {
		nd.seen = append(nd.seen, slices.Clone(b.Shape()))
	}
	return nil
}

// stale reports whether a bottom's shape changed since the last Reshape.
func (nd *node) stale() bool {
	for i, b := range nd.bottom {
		if !slices.Equal(nd.seen[i], b.Shape()) {
			return true
		}
	}
	return false
}

// forward runs the layer and returns its weighted loss: of tops that are means
// over the batch, and of others. On a GPU, d, it only begins, and the loss is awaited later.
func (nd *node) forward(d *gpu.Device) (mean, sum float64, err error) {
	if nd.stale() {
		if err := nd.reshape(); err != nil {
			return 0, 0, err
		}
		if d != nil {
			nd.chooseSide()
		}
	}
	if d != nil {
		return 0, 0, nd.wrap(nd.forwardOn(d))
	}
	if err := nd.layer.Forward(nd.bottom, nd.top); err != nil {
		return 0, 0, nd.wrap(err)
	}
	for i, w := range nd.weights {
		if w == 0 {
			continue
		}
		m, s := nd.lossOf(i)
		mean, sum = mean+m, sum+s
	}
	return mean, sum, nil
}

// lossOf is the weighted loss of one top.
func (nd *node) lossOf(i int) (mean, sum float64) {
	var top float64
	for _, x := range nd.top[i].HostData() {
		top += float64(x)
	}
	if nd.mean[i] {
		return float64(nd.weights[i]) * top, 0
	}
	return 0, float64(nd.weights[i]) * top
}

// seed starts the backward pass: the gradient of a loss top is its weight, times
// the worker's share of the batch where it is a mean.
func (nd *node) seed(share float32) {
	for i, w := range nd.weights {
		if w == 0 {
			continue
		}
		scale := float32(1)
		if nd.mean[i] {
			scale = share
		}
		diff := nd.top[i].Diff()
		for k := range diff {
			diff[k] = w * scale
		}
	}
}

// layerWeights returns the loss weight of every top: loss_weight, or 1 for the
// first top of a loss layer that says nothing.
func (nd *node) layerWeights() ([]float32, error) {
	ws := make([]float32, len(nd.top))
	given := nd.param.GetLossWeight()
	if len(given) == 0 {
		if nd.isLoss() && len(ws) > 0 {
			ws[0] = 1
		}
		return ws, nil
	}
	if len(given) != len(nd.top) && !(len(given) == 1 && len(nd.top) > 0 && nd.autoTops()) {
		return nil, nd.errorIn(path("loss_weight"), "has %s and %s: give one per top, or none", count(len(given), "loss_weight"), count(len(nd.top), "top"))
	}
	copy(ws, given)
	return ws, nil
}

// isLoss reports whether the first top is a loss.
func (nd *node) isLoss() bool {
	l, ok := nd.layer.(layers.Loss)
	return ok && l.IsLoss()
}

// decideMeans finds which tops are means over the batch: those that the layer
// makes one, and those that it computes from nothing but such, as a Split does.
// means has the blobs before it that are.
func (nd *node) decideMeans(means map[*blob.Blob]bool) {
	inherited := len(nd.bottom) > 0
	for _, b := range nd.bottom {
		inherited = inherited && means[b]
	}
	l, ok := nd.layer.(layers.BatchMean)
	nd.mean = make([]bool, len(nd.top))
	for i, t := range nd.top {
		nd.mean[i] = inherited || ok && l.BatchMean(i)
		means[t] = nd.mean[i]
	}
}

// autoTops reports whether the net added tops that the prototxt lacks.
func (nd *node) autoTops() bool { return len(nd.param.GetTop()) < len(nd.top) }

// count is "1 top", "2 tops".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
