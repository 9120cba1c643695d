package layers

import (
	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/vec"
)

func init() {
	register("EuclideanLoss", func(p *proto.LayerParameter, env Env) (Layer, error) {
		return &euclideanLoss{lossBase: lossBase{newBase(p, env)}}, nil
	})
}

// euclideanLoss is Σ (a - b)² / 2N over the N items of its bottoms, both of
// which take a gradient.
type euclideanLoss struct {
	lossBase
	diff blob.Blob // a - b
}

func (l *euclideanLoss) NoBackward(int) bool { return false }

// BatchMean says that the loss is divided by the number of items.
func (l *euclideanLoss) BatchMean(int) bool { return true }

func (l *euclideanLoss) Reshape(bottom, top []*blob.Blob) error {
	if err := l.shapeLoss(bottom, top); err != nil {
		return err
	}
	if bottom[0].Count() != bottom[1].Count() {
		return l.errorf("the bottoms have %d and %d values (shapes %v and %v): their items must be equally large",
			bottom[0].Count(), bottom[1].Count(), bottom[0].Shape(), bottom[1].Shape())
	}
	l.diff.ReshapeLike(bottom[0])
	return nil
}

func (l *euclideanLoss) Forward(bottom, top []*blob.Blob) error {
	a, d := bottom[0].Data(), l.diff.Data()
	b := bottom[1].Data()[:len(a)]
	for i, v := range a {
		d[i] = v - b[i]
	}
	top[0].Data()[0] = float32(vec.SumSquares(d) / 2 / float64(max(1, bottom[0].Dim(0))))
	return nil
}

func (l *euclideanLoss) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	g := top[0].Diff()[0] / float32(max(1, bottom[0].Dim(0)))
	for i, sign := range []float32{1, -1} {
		if propagate[i] {
			vec.Scale(bottom[i].Diff(), sign*g, l.diff.Data())
		}
	}
	return nil
}
