package net

import (
	"fmt"
	"slices"

	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/caffe/layers"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/mem"
)

// What follows is for nets on a GPU (Options.GPU): their blobs lie there, and a pass begins what layers compute, which is
// done later, in the same order.

// GPU returns the GPU that the net computes on, nil for none.
func (n *Net) GPU() *gpu.Device { return n.gpu }

// Err returns what has failed on the GPU, which ends all its work.
func (n *Net) Err() error {
	if n.gpu == nil {
		return nil
	}
	return n.gpu.Err()
}

// place puts all blobs but the parameters on the GPU: those have a place in the packed buffers, or are another net's.
func (b *builder) place() {
	if b.gpu = b.opts.GPU; b.gpu == nil {
		return
	}
	for _, nd := range b.nodes {
		for _, t := range nd.top {
			t.Place(b.gpu)
		}
		nd.blobs = nd.layer.Params()
		nd.chooseSide()
		for i, w := range nd.weights {
			if w != 0 {
				b.lossTops = append(b.lossTops, lossTop{nd, i})
			}
		}
	}
}

// lossTop is a top that counts in the loss.
type lossTop struct {
	node *node
	top  int
}

// placeParams has the parameters lie on the GPU that nobody has placed there.
func (n *Net) placeParams() {
	if n.gpu == nil || n.placed {
		return
	}
	n.placed = true
	for _, p := range n.params {
		p.blob.Place(n.gpu)
	}
	n.reshare()
}

// chooseSide settles who computes the layer, when its shapes are known.
func (nd *node) chooseSide() {
	if on, ok := nd.layer.(layers.OnGPU); ok && on.FitsGPU(nd.bottom, nd.top) {
		nd.onGPU = on
	} else {
		nd.onGPU = nil
	}
}

// hostTypes has a line for each type of layer that the host computes between others, with what it costs.
func (b *builder) hostTypes() (lines []string) {
	if b.gpu == nil {
		return nil
	}
	var seen []string
	for _, nd := range b.nodes {
		if nd.onGPU != nil || len(nd.bottom) == 0 || slices.Contains(seen, nd.typ) {
			continue
		}
		seen = append(seen, nd.typ)
		of, down, up := 0, 0, 0
		for _, other := range b.nodes {
			if other.onGPU == nil && other.typ == nd.typ {
				d, u := other.moves()
				of, down, up = of+1, down+d, up+u
			}
		}
		lines = append(lines, fmt.Sprintf("layer %q (%s) has no kernels for GPUs: the host computes what is of this type, %s, and waits for it; each pass copies up to %s down and %s up for that",
			nd.name, nd.typ, count(of, "layer"), size(int64(down)), size(int64(up))))
	}
	return lines
}

// moves is how many bytes a layer that the host computes has copied in a pass, at most.
func (nd *node) moves() (down, up int) {
	for i, x := range nd.bottom {
		down += mem.Float32.Bytes(x.Count())
		if nd.backward && nd.propagate[i] {
			up += mem.Float32.Bytes(x.Count())
		}
	}
	for _, t := range nd.top {
		up += mem.Float32.Bytes(t.Count())
		if nd.backward {
			down += mem.Float32.Bytes(t.Count())
		}
	}
	return down, up
}

// forwardOn is a layer's Forward, begun on the GPU or done by the host.
func (nd *node) forwardOn(d *gpu.Device) error {
	if nd.onGPU != nil {
		return nd.onGPU.ForwardGPU(d, nd.bottom, nd.top)
	}
	if nd.ahead.ready {
		nd.ahead.ready = false
		return nd.ahead.err
	}
	nd.reads = nd.reads[:0]
	for _, b := range nd.bottom {
		if !slices.Contains(nd.top, b) {
			nd.reading(b.OnData())
		}
	}
	if _, changes := nd.layer.(layers.Gatherer); !changes {
		nd.readingParams()
	}
	err := nd.layer.Forward(nd.bottom, nd.top)
	nd.hasRead()
	return err
}

// backwardOn is a layer's Backward, likewise.
func (nd *node) backwardOn(d *gpu.Device) error {
	if nd.onGPU != nil {
		return nd.onGPU.BackwardGPU(d, nd.top, nd.propagate, nd.bottom)
	}
	nd.reads = nd.reads[:0]
	for _, b := range nd.bottom {
		nd.reading(b.OnData())
	}
	for _, t := range nd.top {
		nd.reading(t.OnData())
		if !slices.Contains(nd.bottom, t) {
			nd.reading(t.OnDiff())
		}
	}
	nd.readingParams()
	err := nd.layer.Backward(nd.top, nd.propagate, nd.bottom)
	nd.hasRead()
	return err
}

// read is a vector that the host reads and does not change.
type read struct {
	of       *gpu.Memory
	onDevice bool // its GPU's side was current before
}

func (nd *node) reading(m *gpu.Memory) { nd.reads = append(nd.reads, read{m, m.OnDevice()}) }

func (nd *node) readingParams() {
	for _, b := range nd.blobs {
		nd.reading(b.OnData())
	}
}

// hasRead says that what the host has read is as it was.
func (nd *node) hasRead() {
	for _, r := range nd.reads {
		r.of.Unchanged(r.onDevice)
	}
}

// awaitLoss takes the loss of the last forward pass when the GPU has come to its end.
func (n *Net) awaitLoss() {
	if !n.lossDue {
		return
	}
	n.lossDue = false
	var mean, sum float64
	for _, l := range n.lossTops {
		n.gpu.FetchResult(l.node.top[l.top].OnData())
	}
	for _, l := range n.lossTops {
		m, s := l.node.lossOf(l.top)
		mean, sum = mean+m, sum+s
	}
	n.setLoss(mean, sum)
}

// packOn takes the packed buffers, on the GPU and pinned on the host, and has each parameter be a place there.
func (n *Net) packOn(d *gpu.Device) error {
	bytes := mem.Float32.Bytes(n.packed)
	var host, device [2]mem.Buffer
	for i := range host {
		var err error
		if host[i], err = d.AllocHost(bytes); err == nil {
			device[i], err = n.takeOn(d, bytes)
		}
		if err != nil {
			return fmt.Errorf("packed parameters and gradients: %w", err)
		}
		d.Launch(cuda.Fill, n.packed, []mem.Buffer{device[i]}, cuda.Number(0)) // what lies between parameters moves with them
	}
	for i := range n.learnable {
		p := &n.learnable[i]
		off, size := mem.Float32.Bytes(p.Offset), mem.Float32.Bytes(p.Blob.Count())
		p.Blob.PlaceIn(d, host[0].Slice(off, size), host[1].Slice(off, size), device[0].Slice(off, size), device[1].Slice(off, size))
	}
	n.packedData, n.packedDiff = host[0], host[1]
	n.onData, n.onDiff = device[0], device[1]
	return d.Err()
}

// takeOn returns memory of the GPU: that of Options.AllocOn, if it is set.
func (n *Net) takeOn(d *gpu.Device, bytes int) (mem.Buffer, error) {
	if n.allocOn == nil {
		b := d.Alloc(bytes)
		return b, d.Err()
	}
	b, err := n.allocOn(bytes)
	if err == nil {
		d.Count(b)
	}
	return b, err
}

// PackedOn returns the GPU's side of the packed buffers; none of a net on the host, or before Pack. Each parameter's vectors
// (Blob.OnData, Blob.OnDiff) say whether it is current.
func (n *Net) PackedOn() (data, diff mem.Buffer) { return n.onData, n.onDiff }

// FetchParams has the parameters' values on the host be current. Those on the GPU stay, and count.
func (n *Net) FetchParams() {
	if n.gpu == nil {
		return
	}
	n.gpu.Fetch(n.paramsOn()...)
}

// ToHost has the parameters' values on the host be current, and those that count: who asks for Packed may read and change
// them. On the host it does nothing.
func (n *Net) ToHost() {
	if n.gpu == nil {
		return
	}
	all := n.paramsOn()
	n.gpu.Fetch(all...)
	for _, m := range all {
		m.Host()
	}
}

// paramsOn are the parameters' values that lie on the GPU.
func (n *Net) paramsOn() []*gpu.Memory {
	all := make([]*gpu.Memory, 0, len(n.learnable))
	for i := range n.learnable {
		if b := n.learnable[i].Blob; b.Device() != nil {
			all = append(all, b.OnData())
		}
	}
	return all
}
