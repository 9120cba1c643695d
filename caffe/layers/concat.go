package layers

import (
	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
)

func init() {
	register("Concat", newConcat)
	register("Slice", newSlice)
}

// joint is a blob whose parts along one axis are other blobs: the arithmetic
// of Concat and Slice, which are each other's backward.
type joint struct {
	base
	axisParam int
	legacy    bool // the axis is the older concat_dim or slice_dim
	outer     int  // extents before the axis
	chunk     []int
}

// axisOf returns the axis of b and an error that names the field it came from.
func (l *joint) axisOf(b *blob.Blob, field, older string) (int, error) {
	if l.legacy {
		field = older
	}
	return l.axis(field, l.axisParam, b)
}

// measure notes how the parts lie in the whole.
func (l *joint) measure(whole *blob.Blob, axis int, parts []*blob.Blob) {
	l.outer = whole.CountFrom(0, axis)
	l.chunk = l.chunk[:0]
	for _, p := range parts {
		l.chunk = append(l.chunk, p.CountFrom(axis, p.NumAxes()))
	}
}

// part calls f with each piece of the whole that belongs to part k, and the
// piece of the part; w and p are their values.
func (l *joint) part(k int, w, p []float32, f func(w, p []float32)) {
	off, stride, n := 0, 0, l.chunk[k]
	for i, c := range l.chunk {
		if i < k {
			off += c
		}
		stride += c
	}
	for o := range l.outer {
		at := o*stride + off
		f(w[at:at+n], p[o*n:(o+1)*n])
	}
}

func toPart(w, p []float32)  { copy(p, w) }
func toWhole(w, p []float32) { copy(w, p) }

// concat joins its bottoms along an axis. A single bottom shares its memory
// with the top.
type concat struct{ joint }

func newConcat(p *proto.LayerParameter, env Env) (Layer, error) {
	q := p.GetConcatParam()
	l := &concat{joint{base: newBase(p, env), axisParam: int(q.GetAxis())}}
	if q != nil && q.ConcatDim != nil {
		if q.Axis != nil {
			return nil, l.errorf("concat_param has both axis and the older concat_dim: leave one out")
		}
		l.axisParam, l.legacy = int(q.GetConcatDim()), true
	}
	return l, nil
}

func (l *concat) Bottoms() Bounds { return Bounds{1, -1} }
func (l *concat) Tops() Bounds    { return Bounds{1, 1} }

func (l *concat) Setup(_, _ []*blob.Blob) error { return nil }

func (l *concat) Reshape(bottom, top []*blob.Blob) error {
	axis, err := l.axisOf(bottom[0], "concat_param.axis", "concat_dim")
	if err != nil {
		return err
	}
	shape := append([]int(nil), bottom[0].Shape()...)
	for i, b := range bottom[1:] {
		if !alike(shape, b.Shape(), axis) {
			return l.errorf("bottom %d has shape %v, which does not fit shape %v of bottom 0: all axes but axis %d must be equal",
				i+1, b.Shape(), bottom[0].Shape(), axis)
		}
		shape[axis] += b.Shape()[axis]
	}
	if err := l.reshape(0, top[0], shape...); err != nil {
		return err
	}
	l.measure(top[0], axis, bottom)
	return nil
}

// alike reports whether two shapes are equal but for one axis.
func alike(a, b []int, axis int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if i != axis && a[i] != b[i] {
			return false
		}
	}
	return true
}

func (l *concat) Forward(bottom, top []*blob.Blob) error {
	if len(bottom) == 1 {
		top[0].ShareData(bottom[0])
		return nil
	}
	for i, b := range bottom {
		l.part(i, top[0].Data(), b.Data(), toWhole)
	}
	return nil
}

func (l *concat) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	for i, b := range bottom {
		switch {
		case !propagate[i]:
		case len(bottom) == 1:
			b.ShareDiff(top[0])
		default:
			l.part(i, top[0].Diff(), b.Diff(), toPart)
		}
	}
	return nil
}

// slice cuts its bottom into tops along an axis: at the slice points, or into
// equal parts where there are none. A single top shares the bottom's memory.
type slice struct {
	joint
	points []int
}

func newSlice(p *proto.LayerParameter, env Env) (Layer, error) {
	q := p.GetSliceParam()
	l := &slice{joint: joint{base: newBase(p, env), axisParam: int(q.GetAxis())}}
	for _, at := range q.GetSlicePoint() {
		l.points = append(l.points, int(at))
	}
	if q != nil && q.SliceDim != nil {
		if q.Axis != nil {
			return nil, l.errorf("slice_param has both axis and the older slice_dim: leave one out")
		}
		l.axisParam, l.legacy = int(q.GetSliceDim()), true
	}
	return l, nil
}

func (l *slice) Bottoms() Bounds { return Bounds{1, 1} }
func (l *slice) Tops() Bounds    { return Bounds{1, -1} }

func (l *slice) Setup(_, _ []*blob.Blob) error { return nil }

func (l *slice) Reshape(bottom, top []*blob.Blob) error {
	axis, err := l.axisOf(bottom[0], "slice_param.axis", "slice_dim")
	if err != nil {
		return err
	}
	extents, err := l.extents(bottom[0].Shape()[axis], axis, len(top))
	if err != nil {
		return err
	}
	shape := append([]int(nil), bottom[0].Shape()...)
	for i, t := range top {
		shape[axis] = extents[i]
		if err := l.reshape(i, t, shape...); err != nil {
			return err
		}
	}
	l.measure(bottom[0], axis, top)
	return nil
}

// extents returns the extent of each top along the axis, whose is n.
func (l *slice) extents(n, axis, tops int) ([]int, error) {
	if len(l.points) == 0 {
		if n%tops != 0 {
			return nil, l.errorf("%d tops do not divide extent %d of axis %d: give the cuts as slice_point", tops, n, axis)
		}
		even := make([]int, tops)
		for i := range even {
			even[i] = n / tops
		}
		return even, nil
	}
	if len(l.points) != tops-1 {
		return nil, l.errorf("%d slice_point for %d tops: there must be one fewer than tops", len(l.points), tops)
	}
	var es []int
	prev := 0
	for _, at := range append(l.points[:len(l.points):len(l.points)], n) {
		if at <= prev {
			return nil, l.errorf("slice_point %v must rise and lie within extent %d of axis %d", l.points, n, axis)
		}
		es = append(es, at-prev)
		prev = at
	}
	return es, nil
}

func (l *slice) Forward(bottom, top []*blob.Blob) error {
	if len(top) == 1 {
		top[0].ShareData(bottom[0])
		return nil
	}
	for i, t := range top {
		l.part(i, bottom[0].Data(), t.Data(), toPart)
	}
	return nil
}

func (l *slice) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if !propagate[0] {
		return nil
	}
	if len(top) == 1 {
		bottom[0].ShareDiff(top[0])
		return nil
	}
	for i, t := range top {
		l.part(i, bottom[0].Diff(), t.Diff(), toWhole)
	}
	return nil
}
