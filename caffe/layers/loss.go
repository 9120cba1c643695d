package layers

import (
	"math"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
)

// lossBase is what the loss layers have in common: two bottoms, of which the
// second is the labels or targets, and a scalar top. Backward scales its
// gradient by the top's diff, into which the net puts the loss weight.
type lossBase struct{ base }

func (l *lossBase) Bottoms() Bounds       { return Bounds{2, 2} }
func (l *lossBase) Tops() Bounds          { return Bounds{1, 1} }
func (l *lossBase) NoBackward(i int) bool { return i == 1 }

// IsLoss says that the first top is a loss.
func (l *lossBase) IsLoss() bool { return true }

// Setup has nothing to make.
func (l *lossBase) Setup(_, _ []*blob.Blob) error { return nil }

// shapeLoss makes the first top a scalar and checks that both bottoms have as
// many items.
func (l *lossBase) shapeLoss(bottom, top []*blob.Blob) error {
	if bottom[0].Dim(0) != bottom[1].Dim(0) {
		return l.errorf("the bottoms have %d and %d items (shapes %v and %v)", bottom[0].Dim(0), bottom[1].Dim(0), bottom[0].Shape(), bottom[1].Shape())
	}
	return l.reshape(0, top[0])
}

// noLabelGradient refuses a gradient for bottom 1.
func (l *base) noLabelGradient(propagate []bool) error {
	if propagate[1] {
		return l.errorf("no gradient for bottom 1, which holds labels")
	}
	return nil
}

// normalizer divides a loss as loss_param says.
type normalizer struct {
	mode      proto.LossParameter_NormalizationMode
	hasIgnore bool
	ignore    int
}

// newNormalizer reads loss_param. Where it sets no normalization, the older
// normalize decides between VALID and BATCH_SIZE, and what is the layer's
// default where it sets neither.
func newNormalizer(p *proto.LossParameter, byDefault proto.LossParameter_NormalizationMode) normalizer {
	n := normalizer{mode: byDefault}
	if p == nil {
		return n
	}
	switch {
	case p.Normalization != nil:
		n.mode = p.GetNormalization()
	case p.Normalize != nil && p.GetNormalize():
		n.mode = proto.LossParameter_VALID
	case p.Normalize != nil:
		n.mode = proto.LossParameter_BATCH_SIZE
	}
	n.hasIgnore, n.ignore = p.IgnoreLabel != nil, int(p.GetIgnoreLabel())
	return n
}

// ignores reports whether label v is the one to leave out.
func (n *normalizer) ignores(v float32) bool { return n.hasIgnore && labelOf(v) == n.ignore }

// mean reports whether the loss is divided by what grows with the batch.
func (n *normalizer) mean() bool { return n.mode != proto.LossParameter_NONE }

// divisor is what the loss of batch items with inner outputs each, valid of
// which count, is divided by: never less than 1.
func (n *normalizer) divisor(batch, inner, valid int) float64 {
	d := 1
	switch n.mode {
	case proto.LossParameter_FULL:
		d = batch * inner
	case proto.LossParameter_VALID:
		d = valid
	case proto.LossParameter_BATCH_SIZE:
		d = batch
	}
	return float64(max(1, d))
}

// labelOf returns the integer that a label stands for, cut towards 0 as in
// Caffe, and the smallest integer for what is none.
func labelOf(v float32) int {
	if !(v > math.MinInt32 && v < math.MaxInt32) {
		return math.MinInt
	}
	return int(v)
}

// badLabel is the error of a label that is not a class.
func (l *base) badLabel(v float32, item, classes int) error {
	return l.errorf("label %g (value %d of bottom 1) is not a class from 0 to %d", v, item, classes-1)
}
