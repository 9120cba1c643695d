package data

import (
	"errors"
	"fmt"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/pixels"
)

// Transformer applies a layer's transform_param to each sample, as Caffe's
// DataTransformer does: crop (at random in the TRAIN phase, otherwise the
// center), mirror at random, subtract the mean, multiply by the scale.
type Transformer struct {
	scale  float32
	mirror bool
	crop   int
	train  bool
	seed   uint64

	means     []float32 // one, or one a channel; else
	mean      []float32 // the mean image
	meanShape Shape
	meanFile  string
}

// NewTransformer makes the transformer of p, which may be nil. It reads the mean
// file if there is one.
func NewTransformer(p *proto.TransformationParameter, phase proto.Phase, seed uint64) (*Transformer, error) {
	t := &Transformer{
		scale:  p.GetScale(),
		mirror: p.GetMirror(),
		crop:   int(p.GetCropSize()),
		train:  phase == proto.Phase_TRAIN,
		seed:   seed,
		means:  p.GetMeanValue(),
	}
	if p.GetForceColor() && p.GetForceGray() {
		return nil, errors.New("transform_param: force_color and force_gray cannot be used together")
	}
	if file := p.GetMeanFile(); file != "" {
		if len(t.means) > 0 {
			return nil, errors.New("transform_param: mean_file and mean_value cannot be used together")
		}
		mean, shape, err := ReadMean(file)
		if err != nil {
			return nil, fmt.Errorf("transform_param: mean_file: %w", err)
		}
		t.mean, t.meanShape, t.meanFile = mean, shape, file
	}
	return t, nil
}

// ColorOf returns what p wants encoded images decoded to.
func ColorOf(p *proto.TransformationParameter) Color {
	switch {
	case p.GetForceColor():
		return BGR
	case p.GetForceGray():
		return Gray
	}
	return Native
}

// Out returns the shape that a sample of shape in is transformed to, or an error
// if it cannot be transformed.
func (t *Transformer) Out(in Shape) (Shape, error) {
	switch {
	case len(t.means) > 1 && len(t.means) != in.C:
		return in, fmt.Errorf("transform_param has %d mean_values for samples of %d channels: give one, or one a channel", len(t.means), in.C)
	case t.mean != nil && t.meanShape != in:
		return in, fmt.Errorf("the mean file %q is %v, but the sample is %v", t.meanFile, t.meanShape, in)
	case t.crop > in.H || t.crop > in.W:
		return in, fmt.Errorf("crop_size %d is larger than the sample of %v", t.crop, in)
	case t.crop > 0:
		return Shape{in.C, t.crop, t.crop}, nil
	}
	return in, nil
}

// Apply transforms s into dst, which has the Count of Out's shape. n is the
// sample's global counter, which with the seed decides the random choices.
func (t *Transformer) Apply(dst []float32, s *Sample, n int64) error {
	out, err := t.Out(s.Shape)
	if err != nil {
		return err
	}
	if len(dst) != out.Count() {
		return fmt.Errorf("the sample of %v becomes %v, %d values where the batch has room for %d", s.Shape, out, out.Count(), len(dst))
	}
	r := chooser{mix(t.seed) + uint64(n)}
	mirror := t.mirror && r.below(2) == 1
	top, left := (s.H-out.H)/2, (s.W-out.W)/2
	if t.train {
		top, left = r.below(s.H-out.H+1), r.below(s.W-out.W+1)
	}
	rows, width := out.H, out.W
	if width == s.W && !mirror { // the rows lie one after another
		rows, width = 1, out.H*width
	}
	for c := range out.C {
		for y := range rows {
			at := (c*s.H+top+y)*s.W + left
			t.row(dst[:width], s, at, c, mirror)
			dst = dst[width:]
		}
	}
	return nil
}

// row transforms the values of s from index at on.
func (t *Transformer) row(dst []float32, s *Sample, at, c int, mirror bool) {
	row := pixels.Row{Mean: t.meanOf(c), Scale: t.scale, Mirror: mirror}
	if t.mean != nil {
		row.Means = t.mean[at : at+len(dst)]
	}
	if s.Bytes != nil {
		row.Bytes(dst, s.Bytes[at:at+len(dst)])
	} else {
		row.Floats(dst, s.Floats[at:at+len(dst)])
	}
}

func (t *Transformer) meanOf(c int) float32 {
	switch len(t.means) {
	case 0:
		return 0
	case 1:
		return t.means[0]
	}
	return t.means[c]
}

// chooser draws random numbers that are a function of its start: the generator
// splitmix64 (Steele, Lea, Flood 2014).
type chooser struct{ state uint64 }

func (r *chooser) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	return mix(r.state)
}

// mix is a bijection whose output bits each depend on all input bits.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// below returns a number in [0, n), uniform to within n/2^32.
func (r *chooser) below(n int) int { return int((r.next() >> 32) * uint64(n) >> 32) }
