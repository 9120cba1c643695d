package layers

import (
	"math"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/nn"
	"github.com/scaffe/scaffe/kernels/vec"
)

func init() {
	register("ReLU", newReLU)
	register("Sigmoid", func(p *proto.LayerParameter, env Env) (Layer, error) {
		return &curve{neuron: neuron{newBase(p, env)}, f: vec.Sigmoid, grad: vec.SigmoidGrad}, nil
	})
	register("TanH", func(p *proto.LayerParameter, env Env) (Layer, error) {
		return &curve{neuron: neuron{newBase(p, env)}, f: vec.Tanh, grad: vec.TanhGrad}, nil
	})
}

// neuron is what the element-wise layers have in common: one bottom, one top
// of its shape, in place.
type neuron struct{ base }

func (l *neuron) Bottoms() Bounds { return Bounds{1, 1} }
func (l *neuron) Tops() Bounds    { return Bounds{1, 1} }
func (l *neuron) InPlace() bool   { return true }

func (l *neuron) Setup(_, _ []*blob.Blob) error { return nil }

func (l *neuron) Reshape(bottom, top []*blob.Blob) error {
	if top[0] != bottom[0] {
		top[0].ReshapeLike(bottom[0])
	}
	return nil
}

// relu is y = max(x, 0) + slope·min(x, 0).
type relu struct {
	neuron
	slope float32
}

func newReLU(p *proto.LayerParameter, env Env) (Layer, error) {
	return &relu{neuron{newBase(p, env)}, p.GetReluParam().GetNegativeSlope()}, nil
}

// Setup refuses a slope below 0 in place: the sign of y would not tell that
// of x.
func (l *relu) Setup(bottom, top []*blob.Blob) error {
	if bottom[0] == top[0] && l.slope < 0 {
		return l.errorf("negative_slope %g is below 0, which cannot be in place: give the top another name than the bottom", l.slope)
	}
	return nil
}

func (l *relu) Forward(bottom, top []*blob.Blob) error {
	x := bottom[0].Data()
	y := top[0].Data()[:len(x)]
	if l.slope == 0 {
		nn.ReLU(y, x)
		return nil
	}
	for i, v := range x {
		y[i] = max(v, 0) + l.slope*min(v, 0)
	}
	return nil
}

// Backward takes the slope at 0 for that of the negative side, as Caffe does.
func (l *relu) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if !propagate[0] {
		return nil
	}
	x := bottom[0].Data()
	dy, dx := top[0].Diff()[:len(x)], bottom[0].Diff()[:len(x)]
	if l.slope == 0 {
		nn.ReLUGradient(dx, dy, x)
		return nil
	}
	// A branch on the sign of x would not be predicted; comparing bits, it is a
	// conditional move.
	one, slope := math.Float32bits(1), math.Float32bits(l.slope)
	for i, v := range x {
		f := one
		if math.Float32bits(v)-1 >= 1<<31-1 {
			f = slope
		}
		dx[i] = dy[i] * math.Float32frombits(f)
	}
	return nil
}

// curve is y = f(x), the sigmoid or the hyperbolic tangent, whose gradients
// follow from y.
type curve struct {
	neuron
	f    func(y, x []float32)
	grad func(dx, dy, y []float32)
}

func (l *curve) Forward(bottom, top []*blob.Blob) error {
	l.f(top[0].Data(), bottom[0].Data())
	return nil
}

func (l *curve) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if propagate[0] {
		l.grad(bottom[0].Diff(), top[0].Diff(), top[0].Data())
	}
	return nil
}
