package data

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/proto"
)

// ReadMean reads a mean image: a binary BlobProto of 1 × C × H × W, as Caffe's
// compute_image_mean writes it, with or without the leading axis.
func ReadMean(path string) ([]float32, Shape, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, Shape{}, err
	}
	var b proto.BlobProto
	if err := pb.Unmarshal(raw, &b); err != nil {
		return nil, Shape{}, fmt.Errorf("%s is not a binary BlobProto, or damaged: %v", path, err)
	}
	shape, err := meanShape(&b)
	if err != nil {
		return nil, Shape{}, fmt.Errorf("%s: %w", path, err)
	}
	mean := b.Data
	if len(mean) == 0 {
		mean = make([]float32, len(b.DoubleData))
		for i, v := range b.DoubleData {
			mean[i] = float32(v)
		}
	}
	if len(mean) != shape.Count() {
		return nil, Shape{}, fmt.Errorf("%s is damaged: it holds %d values, but its shape %v needs %d", path, len(mean), shape, shape.Count())
	}
	return mean, shape, nil
}

func meanShape(b *proto.BlobProto) (Shape, error) {
	dims := b.GetShape().GetDim()
	if b.Shape == nil {
		dims = []int64{int64(b.GetNum()), int64(b.GetChannels()), int64(b.GetHeight()), int64(b.GetWidth())}
	}
	if len(dims) == 4 && dims[0] == 1 {
		dims = dims[1:]
	}
	if len(dims) != 3 {
		return Shape{}, fmt.Errorf("the shape %v is not that of one mean image", dims)
	}
	for _, d := range dims {
		if d <= 0 || d > maxValues {
			return Shape{}, fmt.Errorf("the shape %v is not that of one mean image", dims)
		}
	}
	s := Shape{int(dims[0]), int(dims[1]), int(dims[2])}
	return s, s.check()
}

// WriteMean writes a mean image for ReadMean and Caffe, whole or not at all.
func WriteMean(path string, mean []float32, s Shape) error {
	if len(mean) != s.Count() {
		return fmt.Errorf("mean of %d values for the shape %v", len(mean), s)
	}
	raw, err := pb.Marshal(&proto.BlobProto{
		Num: pb.Int32(1), Channels: pb.Int32(int32(s.C)), Height: pb.Int32(int32(s.H)), Width: pb.Int32(int32(s.W)),
		Data: mean,
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-*")
	if err != nil {
		return err
	}
	_, werr := f.Write(raw)
	err = errors.Join(werr, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
