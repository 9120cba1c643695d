package layers

import (
	gproto "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/vec"
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
	kept              blob.Blob   // the bottom's values, where in place
	sums, products    []vec.Lanes // of a block of factors
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
	block := blockOf(l.inner)
	l.sums, l.products = make([]vec.Lanes, block), make([]vec.Lanes, block)
	if top[0] == b {
		l.kept.ReshapeLike(b)
	} else {
		top[0].ReshapeLike(b)
	}
	return nil
}

func (l *scale) Forward(bottom, top []*blob.Blob) error {
	x, y, f := bottom[0].Data(), top[0].Data(), l.factors(bottom).Data()
	var bias, kept []float32
	if b := l.bias(); b != nil {
		bias = b.Data()
	}
	if top[0] == bottom[0] {
		kept = l.kept.Data()
	}
	if l.inner == 1 {
		l.forwardRows(x, y, kept, f, bias)
		return nil
	}
	for i, k := 0, 0; i < len(x); i += l.inner {
		j, shift := i+l.inner, float32(0)
		if bias != nil {
			shift = bias[k]
		}
		if kept != nil {
			vec.AffineKeep(y[i:j], kept[i:j], f[k], x[i:j], shift)
		} else {
			vec.Affine(y[i:j], f[k], x[i:j], shift)
		}
		if k++; k == l.dim {
			k = 0
		}
	}
	return nil
}

// forwardRows is Forward where the factors reach to the last axis.
func (l *scale) forwardRows(x, y, kept, f, bias []float32) {
	for i := 0; i < len(x); i += l.dim {
		j := i + l.dim
		if kept != nil {
			copy(kept[i:j], x[i:j])
		}
		vec.Mul(y[i:j], x[i:j], f)
		if bias != nil {
			vec.Add(y[i:j], y[i:j], bias)
		}
	}
}

func (l *scale) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	g := scaleGrads{dy: top[0].Diff(), x: bottom[0].Data(), f: l.factors(bottom).Data()}
	if top[0] == bottom[0] {
		g.x = l.kept.Data()
	}
	if b := l.bias(); b != nil {
		g.dbias = b.Diff()
	}
	if len(bottom) == 1 {
		g.df = l.params[0].Diff()
	} else if propagate[1] {
		g.df = bottom[1].Diff()
		clear(g.df)
	}
	if propagate[0] {
		g.dx = bottom[0].Diff()
	}
	if l.inner == 1 {
		l.backwardRows(g)
		return nil
	}
	for from := 0; from < l.dim; from += len(l.sums) {
		l.backwardFactors(g, from, min(from+len(l.sums), l.dim))
	}
	return nil
}

// scaleGrads are the vectors of a backward pass; what no gradient is asked for
// is nil. dx may be dy.
type scaleGrads struct{ dy, x, f, dx, df, dbias []float32 }

// backwardRows is Backward where the factors reach to the last axis.
func (l *scale) backwardRows(g scaleGrads) {
	for i := 0; i < len(g.dy); i += l.dim {
		j := i + l.dim
		if g.dbias != nil {
			vec.Add(g.dbias, g.dbias, g.dy[i:j])
		}
		if g.df != nil {
			vec.AddMul(g.df, g.dy[i:j], g.x[i:j])
		}
		if g.dx != nil {
			vec.Mul(g.dx[i:j], g.dy[i:j], g.f)
		}
	}
}

// backwardFactors is Backward of what factors from to to are broadcast to, row
// by row, so that a row is in the cache for all three gradients.
func (l *scale) backwardFactors(g scaleGrads, from, to int) {
	clear(l.sums)
	clear(l.products)
	for o := range l.outer {
		for k := from; k < to; k++ {
			i := (o*l.dim + k) * l.inner
			j, sum, dot := i+l.inner, &l.sums[k-from], &l.products[k-from]
			dy := g.dy[i:j]
			switch {
			case g.df != nil && g.dbias != nil:
				vec.AddSumDot(sum, dot, dy, g.x[i:j])
			case g.df != nil:
				dot.AddDot(dy, g.x[i:j])
			case g.dbias != nil:
				sum.Add(dy)
			}
			if g.dx != nil {
				vec.Scale(g.dx[i:j], g.f[k], dy)
			}
		}
	}
	for k := from; k < to; k++ {
		if g.df != nil {
			g.df[k] += float32(l.products[k-from].Total())
		}
		if g.dbias != nil {
			g.dbias[k] += float32(l.sums[k-from].Total())
		}
	}
}
