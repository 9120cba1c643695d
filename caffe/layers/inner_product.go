package layers

import (
	"slices"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/blas"
	"github.com/scaffe/scaffe/kernels/dnn"
	"github.com/scaffe/scaffe/kernels/factors"
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
	flipped bool      // the forward pass computes the top's transpose
	work    []float32 // flipped: bottom and top transposed
	leaves  bool      // the parameters' gradients to those who have the factors
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
	if err := l.reshape(0, top[0], append(slices.Clone(b.Shape()[:l.axis]), l.n)...); err != nil {
		return err
	}
	l.m = b.CountFrom(0, l.axis)
	l.ones = ensure(l.ones, l.m)
	set(l.ones, 1)
	// Transposing costs m·(k+n), packing the weights n·k.
	l.flipped = !l.p.GetTranspose() && l.n >= 8*l.m && l.m > 0
	if l.flipped {
		l.work = ensure(l.work, l.m*(l.k+l.n))
	}
	return nil
}

// Forward writes the top's values.
func (l *innerProduct) Forward(bottom, top []*blob.Blob) error {
	x, y, w := bottom[0].Data(), top[0].Data(), l.params[0].Data()
	if l.flipped {
		return l.flippedForward(x, w, y)
	}
	l.startTop(y)
	if l.p.GetTranspose() {
		return l.wrap(dnn.Product(false, false, l.m, l.n, l.k, x, l.k, w, l.n, 1, y, l.n))
	}
	return l.wrap(dnn.Product(false, true, l.m, l.n, l.k, x, l.k, w, l.k, 1, y, l.n))
}

// startTop writes what the products are added to.
func (l *innerProduct) startTop(y []float32) {
	if len(l.params) < 2 {
		clear(y)
		return
	}
	bias := l.params[1].Data()
	for i := range l.m {
		copy(y[i*l.n:], bias)
	}
}

// flippedForward computes the transpose of the top, weights · bottomᵀ, which
// takes the weights as they lie. The usual form would have them packed
// transposed, which takes as long as the product itself where the batch is
// small.
func (l *innerProduct) flippedForward(x, w, y []float32) error {
	xt, yt := l.work[:l.k*l.m], l.work[l.k*l.m:]
	transpose(xt, x, l.m, l.k)
	if err := dnn.Product(false, false, l.n, l.m, l.k, w, l.k, xt, l.m, 0, yt, l.m); err != nil {
		return l.wrap(err)
	}
	transpose(y, yt, l.n, l.m)
	if len(l.params) > 1 {
		bias := l.params[1].Data()
		for i := range l.m {
			row := y[i*l.n:][:l.n]
			add(row, row, bias)
		}
	}
	return nil
}

// transpose writes the rows×cols matrix src to dst as cols×rows, in squares
// that the cache holds.
func transpose(dst, src []float32, rows, cols int) {
	const side = 16
	for i := 0; i < rows; i += side {
		for j := 0; j < cols; j += side {
			for c := j; c < min(j+side, cols); c++ {
				out := dst[c*rows+i:][:min(side, rows-i)]
				for r := range out {
					out[r] = src[(i+r)*cols+c]
				}
			}
		}
	}
}

// Backward adds to the parameters' gradients and writes the bottom's.
func (l *innerProduct) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	w, dy := l.params[0].Data(), top[0].Diff()
	var err error
	if !l.leaves {
		err = l.paramGradients(bottom[0].Data(), dy)
	}
	switch {
	case !propagate[0] || err != nil:
	case l.p.GetTranspose():
		err = dnn.Product(false, true, l.m, l.k, l.n, dy, l.n, w, l.n, 0, bottom[0].Diff(), l.k)
	default:
		err = dnn.Product(false, false, l.m, l.k, l.n, dy, l.n, w, l.k, 0, bottom[0].Diff(), l.k)
	}
	return l.wrap(err)
}

// paramGradients adds to the gradients of weights and bias.
func (l *innerProduct) paramGradients(x, dy []float32) error {
	if len(l.params) > 1 {
		blas.Gemv(true, l.m, l.n, 1, dy, l.n, l.ones, 1, l.params[1].Diff())
	}
	dw := l.params[0].Diff()
	if l.p.GetTranspose() {
		return dnn.Product(true, false, l.k, l.n, l.m, x, l.k, dy, l.n, 1, dw, l.n)
	}
	return dnn.Product(true, false, l.n, l.k, l.m, dy, l.n, x, l.k, 1, dw, l.k)
}

// FactorShape returns the shape of the weights, and M.
func (l *innerProduct) FactorShape() (shape factors.Shape, rows int) {
	return factors.Shape{Out: l.n, In: l.k, Transposed: l.p.GetTranspose()}, l.m
}

// LeaveGradients has Backward leave out the products that the factors stand for.
func (l *innerProduct) LeaveGradients(leave bool) { l.leaves = leave }

// Factors returns the top's gradients, M×N, and the bottom's values, M×K.
func (l *innerProduct) Factors(top, bottom []*blob.Blob) (u, v []float32) {
	return top[0].HostDiff(), bottom[0].HostData()
}
