package net

import (
	"fmt"
	"slices"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
)

// CopyFrom sets the parameters of every layer to those of the layer of the
// same name in a model (.caffemodel). Numbers and shapes must agree. Where
// several layers have one name, the k-th in the net takes the k-th in the model.
//
// Layers that only one of both has are left alone, as in Caffe, which is how a
// net is fine-tuned. If strict (a run is resumed), that is an error: then the
// model must have exactly this net's parameters. On any error no parameter is
// changed.
func (n *Net) CopyFrom(model *proto.NetParameter, strict bool) error {
	t := n.targets()
	var copies []func()
	found := map[*node]bool{}
	var leftOver *proto.LayerParameter // the first layer that only the model has
	for _, lp := range model.GetLayer() {
		nd, own := t.next(lp.GetName())
		if nd == nil || strict && !own {
			if leftOver == nil && len(lp.GetBlobs()) > 0 {
				leftOver = lp
			}
			continue
		}
		c, err := nd.copyFrom(lp)
		if err != nil {
			return err
		}
		copies = append(copies, c...)
		found[nd] = true
	}
	if strict {
		if err := n.sameLayers(model, found, leftOver); err != nil {
			return err
		}
	}
	for _, c := range copies {
		c()
	}
	return nil
}

// sameLayers refuses a model that lacks parameters of n, or has others.
func (n *Net) sameLayers(model *proto.NetParameter, found map[*node]bool, leftOver *proto.LayerParameter) error {
	for _, nd := range n.nodes {
		if len(nd.params) > 0 && !found[nd] {
			return nd.errorf("the model %q has no layer of this name: it is a model of another net", model.GetName())
		}
	}
	if leftOver != nil {
		return fmt.Errorf("net %q has no layer %q (%s), which the model %q has: it is a model of another net",
			n.name, leftOver.GetName(), leftOver.GetType(), model.GetName())
	}
	return nil
}

// copyFrom checks one layer of a model against nd and returns what copies it.
func (nd *node) copyFrom(lp *proto.LayerParameter) ([]func(), error) {
	blobs := nd.layer.Params()
	if len(lp.GetBlobs()) != len(blobs) {
		return nil, nd.errorf("the model has %s of this layer, the net %d", count(len(lp.GetBlobs()), "parameter"), len(blobs))
	}
	var copies []func()
	for k, b := range blobs {
		src := lp.GetBlobs()[k]
		if !FitsBlob(src, b) {
			return nil, nd.errorf("parameter %d has shape %v in the model, but %v in the net: "+
				"it is a model of another net, or rename the layer to train it from scratch", k, proto.BlobShapeOf(src), b.Shape())
		}
		if err := proto.CheckBlob(src); err != nil {
			return nil, nd.errorf("parameter %d of the model: %w", k, err)
		}
		copies = append(copies, func() { copy(b.Data(), proto.BlobData(src)) })
	}
	return copies, nil
}

// FitsBlob reports whether p has b's shape. The shape of before there was
// BlobShape has four axes, of which the outer ones that b lacks are 1.
func FitsBlob(p *proto.BlobProto, b *blob.Blob) bool {
	shape, want := proto.BlobShapeOf(p), b.Shape()
	if p.Num != nil || p.Channels != nil || p.Height != nil || p.Width != nil {
		for len(want) < 4 {
			want = append([]int{1}, want...)
		}
	}
	return slices.Equal(shape, want)
}

// ToProto returns the model: all layers with their parameters, as a
// .caffemodel holds them. The values are not copied: they are those of the
// net's own memory, to be written before the net runs on.
func (n *Net) ToProto() *proto.NetParameter {
	m := &proto.NetParameter{Name: pb.String(n.name)}
	for _, nd := range n.nodes {
		lp := pb.Clone(nd.param).(*proto.LayerParameter)
		for _, b := range nd.layer.Params() {
			lp.Blobs = append(lp.Blobs, proto.NewBlob(b.Shape(), b.HostData(), nil))
		}
		m.Layer = append(m.Layer, lp)
	}
	return m
}
