package net

import (
	"fmt"
	"slices"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/mem"
)

// Alignment is what every Param.Offset is a multiple of, in elements: 64
// bytes, a cache line and the widest vector register.
const Alignment = 16

// Param is one learnable parameter.
type Param struct {
	// Blob holds its values and its gradient.
	Blob *blob.Blob
	// LRMult and DecayMult multiply the solver's learning rate and weight decay.
	LRMult, DecayMult float32
	// Name is the param's name in the prototxt, or "layer.index" without one.
	Name string
	// Layer is the layer that owns it: the first that uses it.
	Layer int
	// Offset is its place in the packed buffers, in elements, a multiple of
	// Alignment.
	Offset int
}

// param is one parameter of one layer. Those of one name share one learnable.
type param struct {
	blob        *blob.Blob
	node, index int
	spec        *proto.ParamSpec // settings, never nil
	learn       int              // index into Net.learnable
}

// addParams registers the parameters of node i, after its Setup.
func (b *builder) addParams(i int, nd *node) error {
	blobs, specs := nd.layer.Params(), nd.param.GetParam()
	if len(specs) > len(blobs) {
		return nd.errorIn(path("param", len(blobs)), "has %d param messages for %s", len(specs), count(len(blobs), "parameter"))
	}
	for k, bl := range blobs {
		spec := &proto.ParamSpec{}
		if k < len(specs) {
			spec = specs[k]
		}
		p := &param{blob: bl, node: i, index: k, spec: spec}
		if err := b.addParam(nd, p); err != nil {
			return err
		}
		nd.params = append(nd.params, len(b.params))
		b.params = append(b.params, p)
		if b.learnable[p.learn].LRMult != 0 {
			nd.backward = true
		} else {
			nd.frozen = true
		}
	}
	return nil
}

// addParam makes a new learnable parameter of p, or joins it to that of the
// same name.
func (b *builder) addParam(nd *node, p *param) error {
	name := p.spec.GetName()
	if owner := b.owner(name); owner != nil {
		return b.share(nd, p, owner)
	}
	if name == "" {
		name = fmt.Sprintf("%s.%d", nd.name, p.index)
	}
	p.learn = len(b.learnable)
	b.learnable = append(b.learnable, Param{
		Blob: p.blob, LRMult: p.spec.GetLrMult(), DecayMult: p.spec.GetDecayMult(), Name: name, Layer: p.node,
	})
	return nil
}

// owner returns the first parameter of that name.
func (b *builder) owner(name string) *param {
	if name == "" {
		return nil
	}
	for _, p := range b.params {
		if p.spec.GetName() == name {
			return p
		}
	}
	return nil
}

// share joins p to its owner; both must agree in shape and multipliers.
func (b *builder) share(nd *node, p, owner *param) error {
	who := fmt.Sprintf("layer %q", b.nodes[owner.node].name)
	if p.spec.GetShareMode() == proto.ParamSpec_PERMISSIVE {
		if p.blob.Count() != owner.blob.Count() {
			return nd.errorIn(path("param", p.index), "shared parameter %q has %d elements, but %d in %s", p.spec.GetName(), p.blob.Count(), owner.blob.Count(), who)
		}
	} else if !slices.Equal(p.blob.Shape(), owner.blob.Shape()) {
		return nd.errorIn(path("param", p.index), "shared parameter %q has shape %s, but %s in %s: share_mode: PERMISSIVE compares element counts only",
			p.spec.GetName(), p.blob.ShapeString(), owner.blob.ShapeString(), who)
	}
	l := &b.learnable[owner.learn]
	if err := b.shareMult(nd, p, who, "lr_mult", p.spec.LrMult, &owner.spec.LrMult, &l.LRMult); err != nil {
		return err
	}
	if err := b.shareMult(nd, p, who, "decay_mult", p.spec.DecayMult, &owner.spec.DecayMult, &l.DecayMult); err != nil {
		return err
	}
	p.learn = owner.learn
	p.blob.ShareData(owner.blob)
	p.blob.ShareDiff(owner.blob)
	return nil
}

// shareMult settles a multiplier of a shared parameter: a layer that sets it
// sets it for all, and two that set it must agree.
func (b *builder) shareMult(nd *node, p *param, who, field string, mine *float32, owners **float32, value *float32) error {
	switch {
	case mine == nil:
	case *owners == nil:
		*owners, *value = mine, *mine
	case **owners != *mine:
		return nd.errorIn(path("param", p.index), "shared parameter %q has %s %v, but %v in %s", p.spec.GetName(), field, *mine, **owners, who)
	}
	return nil
}

// finishParams lays out the packed buffers.
func (b *builder) finishParams() {
	for i := range b.learnable {
		p := &b.learnable[i]
		p.Offset = b.packed
		b.packed += (p.Blob.Count() + Alignment - 1) / Alignment * Alignment
	}
	for _, nd := range b.nodes { // a later layer may have set a shared lr_mult
		nd.frozen = slices.ContainsFunc(nd.params, func(i int) bool { return b.learnable[b.params[i].learn].LRMult == 0 })
	}
}

// Learnable returns the parameters without duplicates, in layer order. The
// caller must not change the list.
func (n *Net) Learnable() []Param { return n.learnable }

// ParamCount returns the number of elements of all learnable parameters.
func (n *Net) ParamCount() int {
	sum := 0
	for i := range n.learnable {
		sum += n.learnable[i].Blob.Count()
	}
	return sum
}

// PackedCount returns the number of elements of each packed buffer: those of
// all parameters and the zeros between them.
func (n *Net) PackedCount() int { return n.packed }

// Pack moves all parameters into one contiguous buffer and all their gradients
// into another, each PackedCount float32 long, every parameter at its Offset
// and zeros between. The present values are kept. alloc gives zeroed host
// memory, data first; nil allocates on the Go heap. Nets that share this one's
// parameters (ShareWith) follow.
//
// A net on a GPU takes pinned memory instead, and as much of the GPU's.
func (n *Net) Pack(alloc func(bytes int) (mem.Buffer, error)) (data, diff mem.Buffer, err error) {
	if n.gpu != nil {
		if err := n.packOn(n.gpu); err != nil {
			return data, diff, err
		}
		n.reshare()
		return n.packedData, n.packedDiff, nil
	}
	if alloc == nil {
		alloc = func(bytes int) (mem.Buffer, error) { return mem.Of(make([]float32, bytes/4)), nil }
	}
	bytes := mem.Float32.Bytes(n.packed)
	if data, err = alloc(bytes); err != nil {
		return data, diff, fmt.Errorf("cannot allocate %d bytes for the packed parameters: %w", bytes, err)
	}
	if diff, err = alloc(bytes); err != nil {
		return data, diff, fmt.Errorf("cannot allocate %d bytes for the packed gradients: %w", bytes, err)
	}
	for i := range n.learnable {
		p := &n.learnable[i]
		off, size := mem.Float32.Bytes(p.Offset), mem.Float32.Bytes(p.Blob.Count())
		p.Blob.Bind(data.Slice(off, size), diff.Slice(off, size))
	}
	n.packedData, n.packedDiff = data, diff
	n.reshare()
	return data, diff, nil
}

// Packed returns the buffers that Pack bound, empty before it. Of a net on a GPU they are the host's side, which is current
// after ToHost.
func (n *Net) Packed() (data, diff mem.Buffer) { return n.packedData, n.packedDiff }

// reshare lets all who share a parameter's memory follow its owner.
func (n *Net) reshare() {
	for _, p := range n.params {
		if owner := n.learnable[p.learn].Blob; p.blob != owner {
			p.blob.ShareData(owner)
			p.blob.ShareDiff(owner)
		}
	}
	for _, follow := range n.followers {
		follow()
	}
}

// ClearDiffs sets the gradients of all parameters to 0.
func (n *Net) ClearDiffs() {
	if n.packedDiff.Len() > 0 && n.gpu == nil {
		clear(mem.Float32s(n.packedDiff))
		return
	}
	for i := range n.learnable {
		n.learnable[i].Blob.ClearDiff()
	}
}
