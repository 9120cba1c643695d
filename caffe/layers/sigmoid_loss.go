package layers

import (
	"math"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/vec"
)

func init() { register("SigmoidCrossEntropyLoss", newSigmoidLoss) }

// sigmoidLoss is the cross-entropy -Σ t·log p + (1-t)·log(1-p) between the
// sigmoid p of bottom 0 and the targets t of bottom 1, divided by the
// normalizer (the batch size where loss_param says nothing).
type sigmoidLoss struct {
	lossBase
	norm    normalizer
	divisor float64
}

func newSigmoidLoss(p *proto.LayerParameter, env Env) (Layer, error) {
	return &sigmoidLoss{
		lossBase: lossBase{newBase(p, env)},
		norm:     newNormalizer(p.GetLossParam(), proto.LossParameter_BATCH_SIZE),
	}, nil
}

// BatchMean says whether the loss is divided by what grows with the batch.
func (l *sigmoidLoss) BatchMean(int) bool { return l.norm.mean() }

func (l *sigmoidLoss) Reshape(bottom, top []*blob.Blob) error {
	if err := l.shapeLoss(bottom, top); err != nil {
		return err
	}
	if bottom[0].Count() != bottom[1].Count() {
		return l.errorf("%d targets (shape %v) for %d predictions (shape %v): there must be one for each",
			bottom[1].Count(), bottom[1].Shape(), bottom[0].Count(), bottom[0].Shape())
	}
	return nil
}

func (l *sigmoidLoss) Forward(bottom, top []*blob.Blob) error {
	target := bottom[1].Data()
	loss, valid := 0.0, 0
	for i, v := range bottom[0].Data() {
		if l.norm.ignores(target[i]) {
			continue
		}
		// log(1 + exp(-|x|)) cannot overflow, whatever the sign of x.
		x := float64(v)
		loss += max(x, 0) - x*float64(target[i]) + math.Log1p(math.Exp(-math.Abs(x)))
		valid++
	}
	batch := bottom[0].Dim(0)
	l.divisor = l.norm.divisor(batch, bottom[0].Count()/max(1, batch), valid)
	top[0].Data()[0] = float32(loss / l.divisor)
	return nil
}

func (l *sigmoidLoss) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if err := l.noLabelGradient(propagate); err != nil || !propagate[0] {
		return err
	}
	g := float32(float64(top[0].Diff()[0]) / l.divisor)
	target, dx := bottom[1].Data(), bottom[0].Diff()
	vec.Sigmoid(dx, bottom[0].Data())
	for i, y := range dx {
		if dx[i] = g * (y - target[i]); l.norm.ignores(target[i]) {
			dx[i] = 0
		}
	}
	return nil
}
