package layers

import (
	gproto "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
)

func init() { register("Scale", newScale) }

// scale multiplies its bottom by a smaller blob, broadcast over the axes
// before axis and after those of that blob, and adds a bias of the same shape
// where bias_term is set. The factors are a parameter, or a second bottom.
type scale struct {
	base
	param             *proto.ScaleParameter
	axisParam         int
	outer, dim, inner int
	kept              blob.Blob // the bottom's values, where in place
}

func newScale(p *proto.LayerParameter, env Env) (Layer, error) {
	q := p.GetScaleParam()
	l := &scale{base: newBase(p, env), param: q, axisParam: int(q.GetAxis())}
	if q.GetNumAxes() < -1 {
		return nil, l.errorf("scale_param.num_axes %d is below -1", q.GetNumAxes())
	}
	return l, nil
}

func (l *scale) Bottoms() Bounds { return Bounds{1, 2} }
func (l *scale) Tops() Bounds    { return Bounds{1, 1} }
func (l *scale) InPlace() bool   { return true }

func (l *scale) Setup(bottom, _ []*blob.Blob) error {
	var shape []int
	if len(bottom) > 1 {
		shape = bottom[1].Shape()
	} else {
		var err error
		if shape, err = l.factorShape(bottom[0]); err != nil {
			return err
		}
		f := l.param.GetFiller()
		if f == nil {
			f = &proto.FillerParameter{Value: gproto.Float32(1)}
		}
		if err := l.newParam(f, shape...); err != nil {
			return err
		}
	}
	if l.param.GetBiasTerm() {
		return l.newParam(l.param.GetBiasFiller(), shape...)
	}
	return nil
}

// factorShape is the shape of num_axes axes of the bottom from axis on, all
// of them where it is -1.
func (l *scale) factorShape(b *blob.Blob) ([]int, error) {
	n := int(l.param.GetNumAxes())
	if n == 0 {
		return nil, nil
	}
	first, err := l.axis("scale_param.axis", l.axisParam, b)
	if err != nil {
		return nil, err
	}
	last := b.NumAxes()
	if n > 0 {
		last = first + n
	}
	if last > b.NumAxes() {
		return nil, l.errorf("scale_param: axis %d and num_axes %d reach past the %d axes of shape %v", l.axisParam, n, b.NumAxes(), b.Shape())
	}
	return b.Shape()[first:last], nil
}

func (l *scale) factors(bottom []*blob.Blob) *blob.Blob {
	if len(bottom) > 1 {
		return bottom[1]
	}
	return l.params[0]
}

// bias returns the bias, nil where there is none.
func (l *scale) bias() *blob.Blob {
	if !l.param.GetBiasTerm() {
		return nil
	}
	return l.params[len(l.params)-1]
}

func (l *scale) Reshape(bottom, top []*blob.Blob) error {
	b, f := bottom[0], l.factors(bottom)
	axis := 0
	if f.NumAxes() > 0 { // a single factor fits wherever it is put
		var err error
		if axis, err = l.axis("scale_param.axis", l.axisParam, b); err != nil {
			return err
		}
	}
	end := axis + f.NumAxes()
	if end > b.NumAxes() || !alike(b.Shape()[axis:end], f.Shape(), -1) {
		return l.errorf("factors of shape %v do not fit a bottom of shape %v from axis %d on", f.Shape(), b.Shape(), axis)
	}
	if bias := l.bias(); bias != nil && bias.Count() != f.Count() {
		return l.errorf("the factors have shape %v, but the bias was made for %v", f.Shape(), bias.Shape())
	}
	l.outer, l.dim, l.inner = b.CountFrom(0, axis), f.Count(), b.CountFrom(end, b.NumAxes())
	if top[0] == b {
		l.kept.ReshapeLike(b)
	} else {
		top[0].ReshapeLike(b)
	}
	return nil
}

func (l *scale) Forward(bottom, top []*blob.Blob) error {
	x, y, f := bottom[0].Data(), top[0].Data(), l.factors(bottom).Data()
	if top[0] == bottom[0] {
		copy(l.kept.Data(), x)
	}
	var bias []float32
	if b := l.bias(); b != nil {
		bias = b.Data()
	}
	if l.inner == 1 {
		l.forwardRows(x, y, f, bias)
		return nil
	}
	for i := 0; i < len(x); i += l.inner {
		k := i / l.inner % l.dim
		if bias != nil {
			affine(y[i:i+l.inner], f[k], x[i:i+l.inner], bias[k])
		} else {
			scaled(y[i:i+l.inner], f[k], x[i:i+l.inner])
		}
	}
	return nil
}

// forwardRows is Forward where the factors reach to the last axis.
func (l *scale) forwardRows(x, y, f, bias []float32) {
	for i := 0; i < len(x); i += l.dim {
		multiply(y[i:i+l.dim], x[i:i+l.dim], f)
		if bias != nil {
			add(y[i:i+l.dim], y[i:i+l.dim], bias)
		}
	}
}

func (l *scale) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	dy := top[0].Diff()
	if b := l.bias(); b != nil {
		l.reduce(b.Diff(), dy, nil)
	}
	x := bottom[0].Data()
	if top[0] == bottom[0] {
		x = l.kept.Data()
	}
	if len(bottom) == 1 {
		l.reduce(l.params[0].Diff(), dy, x)
	} else if propagate[1] {
		clear(bottom[1].Diff())
		l.reduce(bottom[1].Diff(), dy, x)
	}
	if propagate[0] {
		l.backwardBottom(bottom[0].Diff(), dy, l.factors(bottom).Data())
	}
	return nil
}

func (l *scale) backwardBottom(dx, dy, f []float32) {
	if l.inner == 1 {
		for i := 0; i < len(dy); i += l.dim {
			multiply(dx[i:i+l.dim], dy[i:i+l.dim], f)
		}
		return
	}
	for i := 0; i < len(dy); i += l.inner {
		scaled(dx[i:i+l.inner], f[i/l.inner%l.dim], dy[i:i+l.inner])
	}
}

// reduce adds to each element of dst the sum of dy·x over all that it was
// broadcast to; x of nil is 1.
func (l *scale) reduce(dst, dy, x []float32) {
	if l.inner == 1 {
		for i := 0; i < len(dy); i += l.dim {
			if row := dy[i : i+l.dim]; x == nil {
				add(dst, dst, row)
			} else {
				addProduct(dst, row, x[i:i+l.dim])
			}
		}
		return
	}
	for k := range dst {
		total := 0.0
		for o := range l.outer {
			i := (o*l.dim + k) * l.inner
			if row := dy[i : i+l.inner]; x == nil {
				total += sum(row)
			} else {
				total += dot(row, x[i:i+l.inner])
			}
		}
		dst[k] += float32(total)
	}
}
