package net

import (
	"errors"
	"slices"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/proto"
)

// Synthetic returns an Options.Rewrite that replaces the sources of Data and
// ImageData layers by random images (gaussian, mean 0, deviation 1) and label
// 0, for nets whose data sets are elsewhere. The images have the given
// channels, height and width, or the layer's crop_size where it has one; a
// batch of 0 keeps the layer's own batch_size.
func Synthetic(batch, channels, height, width int) func(*proto.LayerParameter) error {
	return func(p *proto.LayerParameter) error {
		n := 0
		switch p.GetType() {
		case "Data":
			n = int(p.GetDataParam().GetBatchSize())
		case "ImageData":
			n = int(p.GetImageDataParam().GetBatchSize())
		default:
			return nil
		}
		if batch > 0 {
			n = batch
		}
		if n < 1 {
			return errors.New("missing batch_size")
		}
		h, w := height, width
		if c := int(p.GetTransformParam().GetCropSize()); c > 0 {
			h, w = c, c
		}
		d := &proto.DummyDataParameter{
			Shape:      []*proto.BlobShape{{Dim: []int64{int64(n), int64(channels), int64(h), int64(w)}}},
			DataFiller: []*proto.FillerParameter{{Type: pb.String("gaussian")}},
		}
		if len(p.GetTop()) > 1 {
			d.Shape = append(d.Shape, &proto.BlobShape{Dim: []int64{int64(n)}})
			d.DataFiller = append(d.DataFiller, &proto.FillerParameter{Type: pb.String("constant")})
		}
		p.Type = pb.String("DummyData")
		p.DataParam, p.ImageDataParam, p.TransformParam, p.DummyDataParam = nil, nil, nil, d
		return nil
	}
}

// DataShapes returns the shapes of the tops of the layers that read data sets, Data and
// ImageData, in their order: what WithoutData needs.
func (n *Net) DataShapes() [][][]int {
	var all [][][]int
	for _, nd := range n.nodes {
		if !readsData(nd.typ) {
			continue
		}
		var shapes [][]int
		for _, t := range nd.top {
			shapes = append(shapes, slices.Clone(t.Shape()))
		}
		all = append(all, shapes)
	}
	return all
}

func readsData(layerType string) bool { return layerType == "Data" || layerType == "ImageData" }

// WithoutData returns an Options.MadeAs for a net that is never run, such as that of a
// parameter server: layers that read data sets are made as Input layers. shapes are theirs where
// there are data sets, of one net after the other that is built with it, but for the size of the
// batch, which is each layer's own.
func WithoutData(shapes [][][]int) func(*proto.LayerParameter) (*proto.LayerParameter, error) {
	return func(p *proto.LayerParameter) (*proto.LayerParameter, error) {
		if !readsData(p.GetType()) {
			return p, nil
		}
		if len(shapes) == 0 {
			return nil, errors.New("reads data, which it does not on another worker: do all nodes have the same files?")
		}
		batch := int64(p.GetDataParam().GetBatchSize())
		if p.GetType() == "ImageData" {
			batch = int64(p.GetImageDataParam().GetBatchSize())
		}
		in := &proto.InputParameter{}
		for _, shape := range shapes[0] {
			dims := []int64{batch}
			for _, d := range shape[min(1, len(shape)):] {
				dims = append(dims, int64(d))
			}
			in.Shape = append(in.Shape, &proto.BlobShape{Dim: dims})
		}
		shapes = shapes[1:]
		return &proto.LayerParameter{Name: p.Name, Type: pb.String("Input"), Top: p.Top, Phase: p.Phase, LossWeight: p.LossWeight, InputParam: in}, nil
	}
}
