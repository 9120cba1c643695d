package net

import (
	"slices"
	"time"

	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/caffe/layers"
)

// ahead is the batch of a data layer that comes next, where it was read before the pass that it is for.
type ahead struct {
	ready  bool // the tops hold it, unless err
	err    error
	spares []*gpu.Memory // the other memory of each top
}

// ReadAhead has data layers of a net on a GPU read the batch that the next Forward is for, and begins to copy it there,
// while the GPU is at the last pass: into memory that this does not use. told, unless nil, hears of each layer, and
// since when it has read. An error is the next Forward's. Without a GPU it does nothing.
func (n *Net) ReadAhead(told func(layer int, began time.Time)) {
	if n.gpu == nil || n.gpu.Err() != nil {
		return
	}
	for i, nd := range n.nodes {
		if nd.ahead.ready || !n.readsAhead(nd) {
			continue
		}
		began := time.Now()
		nd.readAhead(n.gpu)
		if told != nil {
			told(i, began)
		}
	}
}

// readsAhead reports whether a layer reads batches that nothing but the layers after it look at: what is read of them is the GPU's.
func (n *Net) readsAhead(nd *node) bool {
	_, reads := nd.layer.(layers.Bufferer)
	return reads && nd.onGPU == nil && len(nd.bottom) == 0 &&
		!slices.ContainsFunc(nd.topName, func(top string) bool { return slices.Contains(n.outputNames, top) })
}

func (nd *node) readAhead(d *gpu.Device) {
	for i, t := range nd.top {
		m := t.OnData()
		if i == len(nd.ahead.spares) {
			nd.ahead.spares = append(nd.ahead.spares, d.NewMemory(m.Len()))
		}
		m.Turn(nd.ahead.spares[i])
	}
	nd.ahead.ready, nd.ahead.err = true, nd.layer.Forward(nil, nd.top)
	for _, t := range nd.top {
		t.OnData().Ahead()
	}
}
