package layers

import (
	"slices"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/blas"
)

func init() {
	register("InnerProduct", func(p *proto.LayerParameter, env Env) (Layer, error) {
		return &innerProduct{base: newBase(p, env), p: p.GetInnerProductParam()}, nil
	})
}

// innerProduct is Caffe's InnerProduct: the axes from axis on are one vector
// of K elements, each of the M vectors gives num_output = N sums:
// top [M, N] = bottom [M, K] · weightsᵀ + bias.
//
// Params: weights [N, K], or [K, N] with transpose, then the bias [N] unless
// bias_term is false.
type innerProduct struct {
	base
	p       *proto.InnerProductParameter
	axis    int
	m, n, k int
	ones    []float32 // m of them
}

// Bottoms says one.
func (l *innerProduct) Bottoms() Bounds { return Bounds{1, 1} }

// Tops says one.
func (l *innerProduct) Tops() Bounds { return Bounds{1, 1} }

// Setup makes the parameters.
func (l *innerProduct) Setup(bottom, top []*blob.Blob) error {
	b := bottom[0]
	axis, err := l.base.axis("axis", int(l.p.GetAxis()), b)
	if err != nil {
		return err
	}
	l.axis, l.n, l.k = axis, int(l.p.GetNumOutput()), b.CountFrom(axis, b.NumAxes())
	if l.n == 0 {
		return l.errorf("num_output is missing or 0")
	}
	if l.k == 0 {
		return l.errorf("bottom shape %v has no elements from axis %d on", b.Shape(), axis)
	}
	shape := []int{l.n, l.k}
	if l.p.GetTranspose() {
		shape = []int{l.k, l.n}
	}
	if err := l.newParam(l.p.GetWeightFiller(), shape...); err != nil {
		return err
	}
	if l.p.GetBiasTerm() {
		return l.newParam(l.p.GetBiasFiller(), l.n)
	}
	return nil
}

// Reshape sizes the top.
func (l *innerProduct) Reshape(bottom, top []*blob.Blob) error {
	b := bottom[0]
	if b.NumAxes() <= l.axis || b.CountFrom(l.axis, b.NumAxes()) != l.k {
		return l.errorf("bottom shape %v does not have the %d elements from axis %d on that the weights of shape %v need", b.Shape(), l.k, l.axis, l.params[0].Shape())
	}
	l.m = b.CountFrom(0, l.axis)
	l.ones = ensure(l.ones, l.m)
	set(l.ones, 1)
	top[0].Reshape(append(slices.Clone(b.Shape()[:l.axis]), l.n)...)
	return nil
}

// Forward writes the top's values.
func (l *innerProduct) Forward(bottom, top []*blob.Blob) error {
	x, y, w := bottom[0].Data(), top[0].Data(), l.params[0].Data()
	clear(y)
	if len(l.params) > 1 {
		bias := l.params[1].Data()
		for i := range l.m {
			copy(y[i*l.n:], bias)
		}
	}
	if l.p.GetTranspose() {
		blas.Gemm(false, false, l.m, l.n, l.k, 1, x, l.k, w, l.n, 1, y, l.n)
	} else {
		blas.Gemm(false, true, l.m, l.n, l.k, 1, x, l.k, w, l.k, 1, y, l.n)
	}
	return nil
}

// Backward adds to the parameters' gradients and writes the bottom's.
func (l *innerProduct) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	x, dy := bottom[0].Data(), top[0].Diff()
	w, dw := l.params[0].Data(), l.params[0].Diff()
	transposed := l.p.GetTranspose()
	if transposed {
		blas.Gemm(true, false, l.k, l.n, l.m, 1, x, l.k, dy, l.n, 1, dw, l.n)
	} else {
		blas.Gemm(true, false, l.n, l.k, l.m, 1, dy, l.n, x, l.k, 1, dw, l.k)
	}
	if len(l.params) > 1 {
		blas.Gemv(true, l.m, l.n, 1, dy, l.n, l.ones, 1, l.params[1].Diff())
	}
	switch {
	case !propagate[0]:
	case transposed:
		blas.Gemm(false, true, l.m, l.k, l.n, 1, dy, l.n, w, l.n, 0, bottom[0].Diff(), l.k)
	default:
		blas.Gemm(false, false, l.m, l.k, l.n, 1, dy, l.n, w, l.k, 0, bottom[0].Diff(), l.k)
	}
	return nil
}
