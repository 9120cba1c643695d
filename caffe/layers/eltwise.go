package layers

import (
	"slices"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/vec"
)

func init() { register("Eltwise", newEltwise) }

// eltwise is the product, the weighted sum or the maximum of its bottoms,
// element by element.
type eltwise struct {
	base
	op     proto.EltwiseParameter_EltwiseOp
	coeff  []float32
	stable bool
	winner []float32 // MAX: the number of the bottom that each element came from
	from   blob.Blob // the same on a GPU
}

func newEltwise(p *proto.LayerParameter, env Env) (Layer, error) {
	q := p.GetEltwiseParam()
	l := &eltwise{base: newBase(p, env), op: q.GetOperation(), coeff: slices.Clone(q.GetCoeff()), stable: q.GetStableProdGrad()}
	if len(l.coeff) > 0 && l.op != proto.EltwiseParameter_SUM {
		return nil, l.errorf("coeff is for operation SUM, not %v", l.op)
	}
	return l, nil
}

func (l *eltwise) Bottoms() Bounds { return Bounds{2, -1} }
func (l *eltwise) Tops() Bounds    { return Bounds{1, 1} }

func (l *eltwise) Setup(bottom, _ []*blob.Blob) error {
	if len(l.coeff) == 0 {
		for range bottom {
			l.coeff = append(l.coeff, 1)
		}
	}
	if len(l.coeff) != len(bottom) {
		return l.errorf("%d coeff for %d bottoms: there must be one for each", len(l.coeff), len(bottom))
	}
	return nil
}

func (l *eltwise) Reshape(bottom, top []*blob.Blob) error {
	for i, b := range bottom {
		if !slices.Equal(b.Shape(), bottom[0].Shape()) {
			return l.errorf("bottom %d has shape %v, bottom 0 has %v: they must be equal", i, b.Shape(), bottom[0].Shape())
		}
	}
	top[0].ReshapeLike(bottom[0])
	if n := top[0].Count(); l.op == proto.EltwiseParameter_MAX && cap(l.winner) < n {
		l.winner = make([]float32, n)
	}
	return nil
}

func (l *eltwise) Forward(bottom, top []*blob.Blob) error {
	y := top[0].Data()
	switch l.op {
	case proto.EltwiseParameter_PROD:
		inPieces(len(y), func(i, j int) { multiplyAll(y[i:j], bottom, i, j) })
	case proto.EltwiseParameter_SUM:
		inPieces(len(y), func(i, j int) { l.sum(y[i:j], bottom, i, j) })
	case proto.EltwiseParameter_MAX:
		l.maximum(y, bottom)
	}
	return nil
}

// multiplyAll sets y to the product of elements i to j of the bottoms.
func multiplyAll(y []float32, bottom []*blob.Blob, i, j int) {
	vec.Mul(y, bottom[0].Data()[i:j], bottom[1].Data()[i:j])
	for _, b := range bottom[2:] {
		vec.Mul(y, y, b.Data()[i:j])
	}
}

// sum sets y to the weighted sum of elements i to j of the bottoms.
func (l *eltwise) sum(y []float32, bottom []*blob.Blob, i, j int) {
	a, b := bottom[0].Data()[i:j], bottom[1].Data()[i:j]
	if l.coeff[0] == 1 && l.coeff[1] == 1 {
		vec.Add(y, a, b)
	} else {
		vec.Scale(y, l.coeff[0], a)
		vec.AddScaled(y, l.coeff[1], b)
	}
	for k, c := range bottom[2:] {
		vec.AddScaled(y, l.coeff[k+2], c.Data()[i:j])
	}
}

// maximum starts with bottom 1, so that it wins a tie with bottom 0, as in
// Caffe, and with any later one.
func (l *eltwise) maximum(y []float32, bottom []*blob.Blob) {
	l.winner = l.winner[:len(y)]
	inPieces(len(y), func(from, to int) {
		top, winner := y[from:to], l.winner[from:to]
		copy(top, bottom[1].Data()[from:to])
		for i := range winner {
			winner[i] = 1
		}
		for i, b := range bottom {
			if i != 1 {
				vec.TakeGreater(top, winner, b.Data()[from:to], float32(i))
			}
		}
	})
}

func (l *eltwise) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	dy := top[0].Diff()
	for i, b := range bottom {
		if !propagate[i] {
			continue
		}
		dx := b.Diff()
		switch l.op {
		case proto.EltwiseParameter_PROD:
			l.prodBackward(top[0], bottom, i)
		case proto.EltwiseParameter_SUM:
			vec.Scale(dx, l.coeff[i], dy)
		case proto.EltwiseParameter_MAX:
			vec.Where(dx, dy, l.winner, float32(i))
		}
	}
	return nil
}

// prodBackward multiplies the top's gradient by the other bottoms, or, where
// stable_prod_grad is false, by the product over bottom i, which is no number
// where that is 0.
func (l *eltwise) prodBackward(top *blob.Blob, bottom []*blob.Blob, i int) {
	dx, dy := bottom[i].Diff(), top.Diff()
	if !l.stable {
		y, x := top.Data(), bottom[i].Data()
		for k := range dx {
			dx[k] = y[k] / x[k] * dy[k]
		}
		return
	}
	inPieces(len(dx), func(from, to int) {
		d, part := dy[from:to], dx[from:to]
		for j, b := range bottom {
			if j != i {
				vec.Mul(part, d, b.Data()[from:to])
				d = part
			}
		}
	})
}
