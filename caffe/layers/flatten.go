package layers

import (
	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
)

func init() {
	register("Flatten", newFlatten)
	register("Reshape", newReshape)
}

// view is a layer whose top is its bottom's memory in another shape.
type view struct{ base }

func (l *view) Bottoms() Bounds { return Bounds{1, 1} }
func (l *view) Tops() Bounds    { return Bounds{1, 1} }

// SharesMemory says that the top is the bottom's memory.
func (l *view) SharesMemory() (data, diff bool) { return true, true }

func (l *view) Forward(bottom, top []*blob.Blob) error {
	top[0].ShareData(bottom[0])
	return nil
}

// Backward makes the bottom's gradient the top's memory, and not the other
// way round in Reshape, so that a net which only runs forward never allocates
// gradients.
func (l *view) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if propagate[0] {
		bottom[0].ShareDiff(top[0])
	}
	return nil
}

// flatten makes one axis of the axes from axis to end_axis.
type flatten struct {
	view
	first, last int
}

func newFlatten(p *proto.LayerParameter, env Env) (Layer, error) {
	q := p.GetFlattenParam()
	return &flatten{view{newBase(p, env)}, int(q.GetAxis()), int(q.GetEndAxis())}, nil
}

func (l *flatten) Setup(_, _ []*blob.Blob) error { return nil }

func (l *flatten) Reshape(bottom, top []*blob.Blob) error {
	b := bottom[0]
	first, err := l.axis("flatten_param.axis", l.first, b)
	if err != nil {
		return err
	}
	last, err := l.axis("flatten_param.end_axis", l.last, b)
	if err != nil {
		return err
	}
	if last < first {
		return l.errorf("end_axis %d lies before axis %d for a bottom of shape %v", l.last, l.first, b.Shape())
	}
	shape := append([]int(nil), b.Shape()[:first]...)
	shape = append(shape, b.CountFrom(first, last+1))
	return l.base.reshape(0, top[0], append(shape, b.Shape()[last+1:]...)...)
}

// reshape replaces num_axes axes from axis on by the given ones, among which 0
// keeps the bottom's extent and -1 is worked out from the others.
type reshape struct {
	view
	dims           []int
	start, numAxes int
	inferred       int // index of the -1 in dims, or -1
}

func newReshape(p *proto.LayerParameter, env Env) (Layer, error) {
	q := p.GetReshapeParam()
	l := &reshape{view: view{newBase(p, env)}, start: int(q.GetAxis()), numAxes: int(q.GetNumAxes()), inferred: -1}
	for i, d := range q.GetShape().GetDim() {
		switch {
		case d < -1:
			return nil, l.errorf("reshape_param.shape: dim %d is below -1", d)
		case d == -1 && l.inferred >= 0:
			return nil, l.errorf("reshape_param.shape: only one dim may be -1")
		case d == -1:
			l.inferred = i
		}
		l.dims = append(l.dims, int(d))
	}
	if l.numAxes < -1 {
		return nil, l.errorf("reshape_param.num_axes %d is below -1", l.numAxes)
	}
	return l, nil
}

func (l *reshape) Setup(_, _ []*blob.Blob) error { return nil }

func (l *reshape) Reshape(bottom, top []*blob.Blob) error {
	b := bottom[0]
	start, end, err := l.replaced(b)
	if err != nil {
		return err
	}
	shape := append([]int(nil), b.Shape()[:start]...)
	known := b.CountFrom(0, start) * b.CountFrom(end, b.NumAxes())
	for i, d := range l.dims {
		if d == 0 {
			if start+i >= b.NumAxes() {
				return l.errorf("dim %d of reshape_param.shape is 0, but bottom shape %v has no axis %d to keep", i, b.Shape(), start+i)
			}
			d = b.Shape()[start+i]
		}
		shape = append(shape, d)
		if d != -1 {
			known *= d
		}
	}
	if l.inferred >= 0 {
		if known == 0 || b.Count()%known != 0 {
			return l.errorf("%d values (shape %v) do not divide by the product %d of the given dims: no value for the -1", b.Count(), b.Shape(), known)
		}
		shape[start+l.inferred] = b.Count() / known
	} else if known != b.Count() {
		return l.errorf("shape %v has %d values, but the bottom has %d (shape %v)", append(shape, b.Shape()[end:]...), known, b.Count(), b.Shape())
	}
	return l.base.reshape(0, top[0], append(shape, b.Shape()[end:]...)...)
}

// replaced returns the range of the bottom's axes that the new ones replace.
// An axis of -1 is behind the last one.
func (l *reshape) replaced(b *blob.Blob) (start, end int, err error) {
	n := b.NumAxes()
	if start = l.start; start < 0 {
		start += n + 1
	}
	if start < 0 || start > n {
		return 0, 0, l.errorf("reshape_param.axis %d is out of range [%d, %d] for a bottom of shape %v", l.start, -n-1, n, b.Shape())
	}
	if end = n; l.numAxes >= 0 {
		end = start + l.numAxes
	}
	if end > n {
		return 0, 0, l.errorf("reshape_param: axis %d and num_axes %d reach past the %d axes of shape %v", l.start, l.numAxes, n, b.Shape())
	}
	return start, end, nil
}
