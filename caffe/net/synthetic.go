package net

import (
	"errors"

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
