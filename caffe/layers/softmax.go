package layers

import (
	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/vec"
)

func init() { register("Softmax", newSoftmax) }

// softmax is y = exp(x - max x) / Σ exp(x - max x) along one axis.
type softmax struct {
	neuron
	axisParam int
	softmaxer
}

func newSoftmax(p *proto.LayerParameter, env Env) (Layer, error) {
	return &softmax{neuron: neuron{newBase(p, env)}, axisParam: int(p.GetSoftmaxParam().GetAxis())}, nil
}

func (l *softmax) Reshape(bottom, top []*blob.Blob) error {
	a, err := l.axis("softmax_param.axis", l.axisParam, bottom[0])
	if err != nil {
		return err
	}
	l.softmaxer.reshape(bottom[0], a)
	return l.neuron.Reshape(bottom, top)
}

func (l *softmax) Forward(bottom, top []*blob.Blob) error {
	l.softmaxer.forward(bottom[0].Data(), top[0].Data())
	return nil
}

func (l *softmax) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if propagate[0] {
		l.softmaxer.backward(top[0].Data(), top[0].Diff(), bottom[0].Diff())
	}
	return nil
}

// softmaxer is the arithmetic of softmax over a blob seen as
// outer × channels × inner.
type softmaxer struct {
	outer, channels, inner int
	scratch                []float32 // inner
}

func (s *softmaxer) reshape(b *blob.Blob, axis int) {
	n := b.NumAxes()
	s.outer, s.channels, s.inner = b.CountFrom(0, axis), b.Shape()[axis], b.CountFrom(axis+1, n)
	if cap(s.scratch) < s.inner {
		s.scratch = make([]float32, s.inner)
	}
	s.scratch = s.scratch[:s.inner]
}

// forward writes the softmax of x into y, which may be x.
func (s *softmaxer) forward(x, y []float32) {
	dim := s.channels * s.inner
	for ; len(x) >= dim && dim > 0; x, y = x[dim:], y[dim:] {
		if s.inner == 1 {
			softmaxRow(x[:dim], y[:dim])
		} else {
			s.plane(x[:dim], y[:dim])
		}
	}
}

func softmaxRow(x, y []float32) {
	vec.Exp(y, x, vec.Max(x))
	vec.Scale(y, float32(1/vec.Sum(y)), y)
}

// plane is softmaxRow of inner rows at once, whose elements lie inner apart.
func (s *softmaxer) plane(x, y []float32) {
	n, t := s.inner, s.scratch
	copy(t, x[:n])
	for c := n; c < len(x); c += n {
		for i, v := range x[c : c+n] {
			t[i] = max(t[i], v)
		}
	}
	for c := 0; c < len(x); c += n {
		row := y[c : c+n]
		for i, v := range x[c : c+n] {
			row[i] = v - t[i]
		}
	}
	vec.Exp(y, y, 0)
	clear(t)
	for c := 0; c < len(y); c += n {
		vec.Add(t, t, y[c:c+n])
	}
	for i, v := range t {
		t[i] = 1 / v
	}
	for c := 0; c < len(y); c += n {
		vec.Mul(y[c:c+n], y[c:c+n], t)
	}
}

// backward writes dx = (dy - Σ dy·y)·y; dx may be dy.
func (s *softmaxer) backward(y, dy, dx []float32) {
	dim := s.channels * s.inner
	for ; len(y) >= dim && dim > 0; y, dy, dx = y[dim:], dy[dim:], dx[dim:] {
		if s.inner == 1 {
			mean := float32(vec.Dot(y[:dim], dy[:dim]))
			for i, v := range y[:dim] {
				dx[i] = (dy[i] - mean) * v
			}
			continue
		}
		s.planeBackward(y[:dim], dy[:dim], dx[:dim])
	}
}

func (s *softmaxer) planeBackward(y, dy, dx []float32) {
	n, t := s.inner, s.scratch
	clear(t)
	for c := 0; c < len(y); c += n {
		vec.AddMul(t, y[c:c+n], dy[c:c+n])
	}
	for c := 0; c < len(y); c += n {
		d, to := dy[c:c+n], dx[c:c+n]
		for i, v := range y[c : c+n] {
			to[i] = (d[i] - t[i]) * v
		}
	}
}
