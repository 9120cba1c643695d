package measure

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/models"
)

// Shape is that of an image.
type Shape struct{ C, H, W int }

// ParseShape reads CxHxW, such as 3x227x227.
func ParseShape(s string) (Shape, error) {
	var sh Shape
	parts := strings.Split(s, "x")
	if len(parts) == 3 {
		for i, to := range []*int{&sh.C, &sh.H, &sh.W} {
			if n, err := strconv.Atoi(parts[i]); err == nil && n < 1<<14 {
				*to = n
			}
		}
	}
	if sh.C < 1 || sh.H < 1 || sh.W < 1 {
		return Shape{}, fmt.Errorf("invalid shape %q: want channels, height and width, such as 3x227x227", s)
	}
	return sh, nil
}

const maxBatch = 1 << 24

// Options say how a net is made ready for measuring.
type Options struct {
	Phase proto.Phase
	// Batch, unless 0, replaces the net's own batch_size.
	Batch int
	// Data leaves the net its data sets. Without it, random images take their place.
	Data bool
	// Shape is that of random images for data layers without crop_size.
	Shape Shape
}

// Open builds the net of a prototxt file, or the one of that name in
// package models.
func Open(model string, o Options) (*net.Net, error) {
	if o.Batch < 0 || o.Batch > maxBatch {
		return nil, fmt.Errorf("batch size must be between 1 and %d (got %d)", maxBatch, o.Batch)
	}
	f, err := proto.ReadNet(model)
	if errors.Is(err, os.ErrNotExist) {
		var err2 error
		if f, err2 = models.Net(model); err2 != nil {
			return nil, fmt.Errorf("%w, and no such file", err2)
		}
	} else if err != nil {
		return nil, err
	}
	return net.New(f, net.Options{Phase: o.Phase, Seed: 1, Rewrite: o.rewrite})
}

// rewrite gives data layers the batch, and random images.
func (o Options) rewrite(p *proto.LayerParameter) error {
	if b := uint32(o.Batch); b > 0 {
		if d := p.GetDataParam(); d != nil {
			d.BatchSize = pb.Uint32(b)
		}
		if d := p.GetImageDataParam(); d != nil {
			d.BatchSize = pb.Uint32(b)
		}
		rebatch(p.GetDummyDataParam().GetShape(), o.Batch)
		rebatch(p.GetInputParam().GetShape(), o.Batch)
	}
	t := p.GetType()
	if o.Data || t != "Data" && t != "ImageData" {
		return nil
	}
	s := o.Shape
	if s == (Shape{}) {
		if p.GetTransformParam().GetCropSize() == 0 {
			return errors.New("it has no crop_size, so the size of its images is unknown: pass --shape, such as 3x32x32, or read the data set with --data")
		}
		s.C = 3
	}
	return net.Synthetic(0, s.C, s.H, s.W)(p)
}

// rebatch makes the first extent of all shapes with the first one's batch
// another.
func rebatch(shapes []*proto.BlobShape, batch int) {
	if len(shapes) == 0 || len(shapes[0].GetDim()) == 0 {
		return
	}
	old := shapes[0].GetDim()[0]
	for _, s := range shapes {
		if d := s.GetDim(); len(d) > 0 && d[0] == old {
			d[0] = int64(batch)
		}
	}
}
