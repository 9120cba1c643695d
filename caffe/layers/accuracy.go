package layers

import (
	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
)

func init() { register("Accuracy", newAccuracy) }

// accuracy is the share of predictions whose label is among the top_k highest
// scores. Other classes with the same score, and scores that are no number,
// count as higher. Its second top, where there is one, is the accuracy of
// each class, 0 for a class that did not occur.
type accuracy struct {
	base
	topK, axisParam, ignore int
	hasIgnore               bool
	outer, classes, inner   int
	seen                    []int // of each class
}

func newAccuracy(p *proto.LayerParameter, env Env) (Layer, error) {
	q := p.GetAccuracyParam()
	l := &accuracy{
		base: newBase(p, env), topK: int(q.GetTopK()), axisParam: int(q.GetAxis()),
		ignore: int(q.GetIgnoreLabel()), hasIgnore: q != nil && q.IgnoreLabel != nil,
	}
	if l.topK < 1 {
		return nil, l.errorf("top_k must be at least 1")
	}
	return l, nil
}

func (l *accuracy) Bottoms() Bounds     { return Bounds{2, 2} }
func (l *accuracy) Tops() Bounds        { return Bounds{1, 2} }
func (l *accuracy) NoBackward(int) bool { return true }
func (l *accuracy) BatchMean(int) bool  { return true }

func (l *accuracy) Setup(_, _ []*blob.Blob) error { return nil }

func (l *accuracy) Reshape(bottom, top []*blob.Blob) error {
	b := bottom[0]
	a, err := l.axis("accuracy_param.axis", l.axisParam, b)
	if err != nil {
		return err
	}
	l.outer, l.classes, l.inner = b.CountFrom(0, a), b.Shape()[a], b.CountFrom(a+1, b.NumAxes())
	if l.topK > l.classes {
		return l.errorf("top_k %d is more than the %d classes along axis %d of shape %v", l.topK, l.classes, a, b.Shape())
	}
	if bottom[1].Count() != l.outer*l.inner {
		return l.errorf("%d labels (shape %v) for %d predictions (shape %v along axis %d): there must be one for each",
			bottom[1].Count(), bottom[1].Shape(), l.outer*l.inner, b.Shape(), a)
	}
	if len(top) > 1 {
		if err := l.reshape(1, top[1], l.classes); err != nil {
			return err
		}
		l.seen = make([]int, l.classes)
	}
	return l.reshape(0, top[0])
}

func (l *accuracy) Forward(bottom, top []*blob.Blob) error {
	var each []float32
	if len(top) > 1 {
		each = top[1].Data()
		clear(each)
		clear(l.seen)
	}
	right, count := 0, 0
	x := bottom[0].Data()
	for i, v := range bottom[1].Data() {
		c := labelOf(v)
		if l.hasIgnore && c == l.ignore {
			continue
		}
		if c < 0 || c >= l.classes {
			return l.badLabel(v, i, l.classes)
		}
		hit := l.hit(x, i, c)
		count++
		if hit {
			right++
		}
		if each == nil {
			continue
		}
		l.seen[c]++
		if hit {
			each[c]++
		}
	}
	top[0].Data()[0] = float32(float64(right) / float64(max(1, count)))
	for c := range each {
		each[c] /= float32(max(1, l.seen[c]))
	}
	return nil
}

// hit reports whether fewer than topK other classes score at least as high as
// class c in the i-th prediction.
func (l *accuracy) hit(x []float32, i, c int) bool {
	first := i/l.inner*l.classes*l.inner + i%l.inner
	score := x[first+c*l.inner]
	better := 0
	for k := range l.classes {
		if k != c && !(x[first+k*l.inner] < score) {
			better++
		}
	}
	return better < l.topK
}

func (l *accuracy) Backward(_ []*blob.Blob, propagate []bool, _ []*blob.Blob) error {
	for _, p := range propagate {
		if p {
			return l.errorf("an accuracy has no gradient")
		}
	}
	return nil
}
