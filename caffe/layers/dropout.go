package layers

import (
	"math"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/vec"
)

func init() { register("Dropout", newDropout) }

// dropout zeroes each element with probability ratio and scales what is left
// by 1/(1-ratio) in the train phase, so that the test phase changes nothing
// (Srivastava et al. 2014, inverted as in Caffe).
type dropout struct {
	neuron
	keep int64   // an element stays where 32 random bits are below
	up   float32 // 1/(1-ratio)
	mask blob.Blob
}

func newDropout(p *proto.LayerParameter, env Env) (Layer, error) {
	l := &dropout{neuron: neuron{newBase(p, env)}}
	ratio := float64(p.GetDropoutParam().GetDropoutRatio())
	if !(ratio > 0 && ratio < 1) {
		return nil, l.errorf("dropout_ratio %g is not between 0 and 1", ratio)
	}
	l.keep = int64(math.Round((1 - ratio) * (1 << 32)))
	l.up = float32(1 / (1 - ratio))
	return l, nil
}

func (l *dropout) Reshape(bottom, top []*blob.Blob) error {
	if l.phase == proto.Phase_TRAIN {
		l.mask.ReshapeLike(bottom[0])
	}
	return l.neuron.Reshape(bottom, top)
}

// draw fills the mask with 0 and up. One number of the layer's source seeds a
// SplitMix64 (Steele, Lea and Flood 2014), each output of which decides two
// elements without a branch.
func (l *dropout) draw() []float32 {
	m := l.mask.Data()
	s, keep, up := l.rand.Uint64(), l.keep, math.Float32bits(l.up)
	choose := func(bits uint64) float32 {
		below := uint32((int64(bits&math.MaxUint32) - keep) >> 63)
		return math.Float32frombits(up & below)
	}
	for i := 0; i < len(m); i += 2 {
		s += 0x9e3779b97f4a7c15
		z := (s ^ s>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		m[i] = choose(z)
		if i+1 < len(m) {
			m[i+1] = choose(z >> 32)
		}
	}
	return m
}

func (l *dropout) Forward(bottom, top []*blob.Blob) error {
	x, y := bottom[0].Data(), top[0].Data()
	if l.phase != proto.Phase_TRAIN {
		copy(y, x)
		return nil
	}
	vec.Mul(y, x, l.draw())
	return nil
}

func (l *dropout) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if !propagate[0] {
		return nil
	}
	if l.phase != proto.Phase_TRAIN {
		copy(bottom[0].Diff(), top[0].Diff())
		return nil
	}
	vec.Mul(bottom[0].Diff(), top[0].Diff(), l.mask.Data())
	return nil
}
