package layers

import (
	"math"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/vec"
)

func init() { register("SoftmaxWithLoss", newSoftmaxLoss) }

// softmaxLoss is the multinomial logistic loss of the softmax of bottom 0:
// -Σ log p[label], divided by the normalizer. Its second top, where there is
// one, is the probabilities.
type softmaxLoss struct {
	lossBase
	axisParam int
	norm      normalizer
	softmaxer
	prob    blob.Blob
	divisor float64
}

func newSoftmaxLoss(p *proto.LayerParameter, env Env) (Layer, error) {
	return &softmaxLoss{
		lossBase:  lossBase{newBase(p, env)},
		axisParam: int(p.GetSoftmaxParam().GetAxis()),
		norm:      newNormalizer(p.GetLossParam(), proto.LossParameter_VALID),
	}, nil
}

func (l *softmaxLoss) Tops() Bounds { return Bounds{1, 2} }

// BatchMean says whether the loss is divided by what grows with the batch; the
// probabilities are not.
func (l *softmaxLoss) BatchMean(top int) bool { return top == 0 && l.norm.mean() }

func (l *softmaxLoss) Reshape(bottom, top []*blob.Blob) error {
	if err := l.shapeLoss(bottom, top); err != nil {
		return err
	}
	a, err := l.axis("softmax_param.axis", l.axisParam, bottom[0])
	if err != nil {
		return err
	}
	l.softmaxer.reshape(bottom[0], a)
	if want := l.outer * l.inner; bottom[1].Count() != want {
		return l.errorf("%d labels (shape %v) for %d predictions (shape %v along axis %d): there must be one for each",
			bottom[1].Count(), bottom[1].Shape(), want, bottom[0].Shape(), a)
	}
	l.prob.ReshapeLike(bottom[0])
	if len(top) > 1 {
		top[1].ReshapeLike(bottom[0])
	}
	return nil
}

func (l *softmaxLoss) Forward(bottom, top []*blob.Blob) error {
	prob := l.prob.Data()
	l.softmaxer.forward(bottom[0].Data(), prob)
	loss, valid := 0.0, 0
	for i, v := range bottom[1].Data() {
		if l.norm.ignores(v) {
			continue
		}
		at, err := l.at(v, i)
		if err != nil {
			return err
		}
		loss -= math.Log(max(float64(prob[at]), smallestNormal))
		valid++
	}
	l.divisor = l.norm.divisor(l.outer, l.inner, valid)
	top[0].Data()[0] = float32(loss / l.divisor)
	if len(top) > 1 {
		top[1].ShareData(&l.prob)
	}
	return nil
}

// smallestNormal is C's FLT_MIN, below which a probability is not taken.
const smallestNormal = 0x1p-126

// at returns the index of label v, the i-th, in the probabilities.
func (l *softmaxLoss) at(v float32, i int) (int, error) {
	c := labelOf(v)
	if c < 0 || c >= l.channels {
		return 0, l.badLabel(v, i, l.channels)
	}
	return (i/l.inner*l.channels+c)*l.inner + i%l.inner, nil
}

func (l *softmaxLoss) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if err := l.noLabelGradient(propagate); err != nil || !propagate[0] {
		return err
	}
	g := float32(float64(top[0].Diff()[0]) / l.divisor)
	dx := bottom[0].Diff()
	vec.Scale(dx, g, l.prob.Data())
	for i, v := range bottom[1].Data() {
		if l.norm.ignores(v) {
			l.clear(dx, i)
			continue
		}
		at, err := l.at(v, i)
		if err != nil {
			return err
		}
		dx[at] -= g
	}
	return nil
}

// clear zeroes the gradients of the i-th prediction.
func (l *softmaxLoss) clear(dx []float32, i int) {
	first := i/l.inner*l.channels*l.inner + i%l.inner
	for c := range l.channels {
		dx[first+c*l.inner] = 0
	}
}
