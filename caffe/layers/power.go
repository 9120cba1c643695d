package layers

import (
	"math"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
)

func init() { register("Power", newPower) }

// power is y = (shift + scale·x)^power. Its slope needs x, of which it keeps
// a copy where it is in place.
type power struct {
	neuron
	power, scale, shift float64
	kept                blob.Blob
}

func newPower(p *proto.LayerParameter, env Env) (Layer, error) {
	q := p.GetPowerParam()
	return &power{
		neuron: neuron{newBase(p, env)},
		power:  float64(q.GetPower()), scale: float64(q.GetScale()), shift: float64(q.GetShift()),
	}, nil
}

func (l *power) keeps(bottom, top []*blob.Blob) bool {
	return bottom[0] == top[0] && l.power != 1 && l.power*l.scale != 0
}

func (l *power) Reshape(bottom, top []*blob.Blob) error {
	if l.keeps(bottom, top) {
		l.kept.ReshapeLike(bottom[0])
	}
	return l.neuron.Reshape(bottom, top)
}

func (l *power) Forward(bottom, top []*blob.Blob) error {
	x := bottom[0].Data()
	y := top[0].Data()[:len(x)]
	if l.keeps(bottom, top) {
		copy(l.kept.Data(), x)
	}
	scale, shift := float32(l.scale), float32(l.shift)
	switch {
	case l.power*l.scale == 0:
		c := float32(math.Pow(l.shift, l.power)) // 1 for a power of 0
		for i := range y {
			y[i] = c
		}
	case l.power == 1:
		for i, v := range x {
			y[i] = shift + scale*v
		}
	case l.power == 2:
		for i, v := range x {
			b := shift + scale*v
			y[i] = b * b
		}
	default:
		for i, v := range x {
			y[i] = float32(math.Pow(l.shift+l.scale*float64(v), l.power))
		}
	}
	return nil
}

func (l *power) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if !propagate[0] {
		return nil
	}
	x := bottom[0].Data()
	if l.keeps(bottom, top) {
		x = l.kept.Data()
	}
	dy, dx := top[0].Diff()[:len(x)], bottom[0].Diff()[:len(x)]
	scale, shift := float32(l.scale), float32(l.shift)
	switch {
	case l.power*l.scale == 0:
		clear(dx)
	case l.power == 1:
		for i, d := range dy {
			dx[i] = d * scale
		}
	case l.power == 2:
		for i, v := range x {
			dx[i] = dy[i] * 2 * scale * (shift + scale*v)
		}
	default:
		for i, v := range x {
			slope := l.power * l.scale * math.Pow(l.shift+l.scale*float64(v), l.power-1)
			dx[i] = dy[i] * float32(slope)
		}
	}
	return nil
}
