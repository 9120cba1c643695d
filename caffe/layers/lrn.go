package layers

import (
	"math"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/blas"
	"github.com/scaffe/scaffe/kernels/nn"
)

func init() {
	register("LRN", func(p *proto.LayerParameter, env Env) (Layer, error) {
		return &lrn{base: newBase(p, env), p: p.GetLrnParam()}, nil
	})
}

// lrn is Caffe's local response normalization (Krizhevsky et al. 2012,
// section 3.3): top = bottom · scale^−beta, where scale is
//
//   - k + alpha/n · (sum of squares over n = local_size neighboring channels)
//     for ACROSS_CHANNELS,
//   - 1 + alpha · (mean of squares over local_size × local_size neighbors in
//     the plane, zeros beyond it) for WITHIN_CHANNEL.
//
// Bottom and top are [N, C, H, W].
type lrn struct {
	base
	p           *proto.LRNParameter
	within      bool
	half        int // neighbors on either side
	alpha, beta float32
	k           float32
	power       func(dst, scale []float32) // dst = scale^−beta

	scale      []float32
	scales     blob.Blob // the same on a GPU
	acc        []float32 // a plane
	work       []float32 // a plane, or with ACROSS_CHANNELS one per neighbor
	sums       []float32 // WITHIN_CHANNEL: a row
	zeros      []float32 // a plane
	rows, cols []span    // WITHIN_CHANNEL
}

// usual says that package nn has the loops: the exponent that every published
// net uses.
func (l *lrn) usual() bool { return !l.within && l.beta == 0.75 }

// Bottoms says one.
func (l *lrn) Bottoms() Bounds { return Bounds{1, 1} }

// Tops says one.
func (l *lrn) Tops() Bounds { return Bounds{1, 1} }

// Setup checks the parameters.
func (l *lrn) Setup(bottom, top []*blob.Blob) error {
	size := int(l.p.GetLocalSize())
	if size%2 == 0 {
		return l.errorf("local_size %d is not odd", size)
	}
	l.half, l.alpha, l.beta, l.k = size/2, l.p.GetAlpha(), l.p.GetBeta(), l.p.GetK()
	switch r := l.p.GetNormRegion(); r {
	case proto.LRNParameter_ACROSS_CHANNELS:
		l.alpha /= float32(size)
	case proto.LRNParameter_WITHIN_CHANNEL:
		l.within = true
		if l.k != 1 {
			return l.errorf("k: %g is for ACROSS_CHANNELS; WITHIN_CHANNEL adds 1", l.k)
		}
	default:
		return l.errorf("norm_region %v is not supported", r)
	}
	l.power = negativePower(l.beta)
	return nil
}

// Reshape sizes the top and the scales.
func (l *lrn) Reshape(bottom, top []*blob.Blob) error {
	b := bottom[0]
	if b.NumAxes() != 4 {
		return l.errorf("bottom shape %v has %d axes; LRN needs 4 (N, C, H, W)", b.Shape(), b.NumAxes())
	}
	top[0].ReshapeLike(b)
	l.scale = ensure(l.scale, b.Count())
	plane, size := b.CountFrom(2, 4), 2*l.half+1
	l.acc = ensure(l.acc, plane)
	l.zeros = ensure(l.zeros, plane)
	if !l.within {
		l.work = ensure(l.work, min(size, b.Dim(1))*plane)
	} else {
		l.work = ensure(l.work, plane)
		l.sums = ensure(l.sums, b.Dim(3))
		l.rows = spans(l.rows[:0], b.Dim(2), size, l.half, 1, true)
		l.cols = spans(l.cols[:0], b.Dim(3), size, l.half, 1, true)
	}
	return nil
}

// Forward writes the top's values and keeps the scales.
func (l *lrn) Forward(bottom, top []*blob.Blob) error {
	x, y := bottom[0].Data(), top[0].Data()
	if l.usual() {
		image := bottom[0].CountFrom(1, 4)
		for p := 0; p < len(x) && image > 0; p += image {
			q := p + image
			l.usualForward(y[p:q], x[p:q], l.scale[p:q])
		}
		return nil
	}
	if l.within {
		l.scaleWithin(x)
	} else {
		for image := bottom[0].CountFrom(1, 4); len(x) > 0 && image > 0; x = x[image:] {
			l.scaleAcross(x[:image], l.scale[len(l.scale)-len(x):])
		}
		x = bottom[0].Data()
	}
	l.power(y, l.scale)
	for i, v := range x {
		y[i] *= v
	}
	return nil
}

// channel returns channel c of an image, zeros where there is none.
func (l *lrn) channel(image []float32, c int) []float32 {
	plane := len(l.acc)
	if c < 0 || c*plane >= len(image) {
		return l.zeros
	}
	return image[c*plane:][:plane]
}

// usualForward computes one image.
func (l *lrn) usualForward(y, x, scale []float32) {
	clear(l.acc)
	for c := range l.half { // those that the sum of channel 0 has besides the last
		for i, v := range l.channel(x, c) {
			l.acc[i] += float32(v * v)
		}
	}
	for c := range len(x) / len(l.acc) {
		nn.LRN(l.channel(y, c), l.channel(scale, c), l.channel(x, c), l.channel(x, c+l.half), l.channel(x, c-l.half), l.acc, l.k, l.alpha)
	}
}

// usualBackward computes one image's gradient. Each channel's ratio is kept
// until the sum has run past it.
func (l *lrn) usualBackward(x, dx, y, dy, scale []float32) {
	plane := len(l.acc)
	clear(l.acc)
	channels := len(x) / plane
	kept := func(c int) []float32 { return l.work[c*plane%len(l.work):][:plane] }
	for c := -l.half; c < channels; c++ {
		if in := c + l.half; in < channels {
			nn.LRNRatio(kept(in), l.acc, l.channel(y, in), l.channel(dy, in), l.channel(scale, in))
		}
		if c < 0 {
			continue
		}
		out := l.zeros
		if old := c - l.half; old >= 0 {
			out = kept(old)
		}
		nn.LRNGradient(l.channel(dx, c), l.channel(x, c), l.channel(dy, c), l.channel(scale, c), out, l.acc, 2*l.alpha*l.beta)
	}
}

// scaleAcross writes the scales of one image with a sum that runs over the
// channels.
func (l *lrn) scaleAcross(x, scale []float32) {
	plane := len(l.acc)
	clear(l.acc)
	channels := len(x) / plane
	for c := -l.half; c < channels; c++ {
		if in := c + l.half; in < channels {
			for i, v := range x[in*plane:][:plane] {
				l.acc[i] += v * v
			}
		}
		if c < 0 {
			continue
		}
		out := scale[c*plane:][:plane]
		for i, a := range l.acc {
			out[i] = l.k + l.alpha*a
		}
		if old := c - l.half; old >= 0 {
			for i, v := range x[old*plane:][:plane] {
				l.acc[i] -= v * v
			}
		}
	}
}

func (l *lrn) scaleWithin(x []float32) {
	plane := len(l.acc)
	for p := 0; p < len(x); p += plane {
		for i, v := range x[p:][:plane] {
			l.work[i] = v * v
		}
		out := l.scale[p:][:plane]
		averagePlane(l.work, out, l.rows, l.cols, l.sums)
		for i, a := range out {
			out[i] = 1 + l.alpha*a
		}
	}
}

// Backward writes the bottom's gradient: with p = scale^−beta, y = x·p,
//
//	dx = dy·p − 2·alpha·beta·x·(sum or mean over the same window of dy·y/scale)
func (l *lrn) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if !propagate[0] {
		return nil
	}
	x, dx, y, dy := bottom[0].Data(), bottom[0].Diff(), top[0].Data(), top[0].Diff()
	unit := bottom[0].CountFrom(1, 4)
	back := l.usualBackward
	if !l.usual() {
		l.power(dx, l.scale)
		for i, d := range dy {
			dx[i] *= d
		}
		back = l.backAcross
	}
	if l.within {
		unit, back = len(l.acc), l.backWithin
	}
	for p := 0; p < len(x); p += unit {
		q := p + unit
		back(x[p:q], dx[p:q], y[p:q], dy[p:q], l.scale[p:q])
	}
	return nil
}

// backAcross adds the second term for one image. Each channel's ratio is kept
// until the sum has run past it.
func (l *lrn) backAcross(x, dx, y, dy, scale []float32) {
	plane, factor := len(l.acc), 2*l.alpha*l.beta
	clear(l.acc)
	channels := len(x) / plane
	kept := func(c int) []float32 { return l.work[c*plane%len(l.work):][:plane] }
	for c := -l.half; c < channels; c++ {
		if in := c + l.half; in < channels {
			p, q := in*plane, (in+1)*plane
			ratio(kept(in), y[p:q], dy[p:q], scale[p:q])
			blas.Axpy(1, kept(in), l.acc)
		}
		if c < 0 {
			continue
		}
		xs, out := x[c*plane:][:plane], dx[c*plane:][:plane]
		for i, a := range l.acc {
			out[i] -= factor * xs[i] * a
		}
		if old := c - l.half; old >= 0 {
			blas.Axpy(-1, kept(old), l.acc)
		}
	}
}

// backWithin adds the second term for one plane.
func (l *lrn) backWithin(x, dx, y, dy, scale []float32) {
	ratio(l.work, y, dy, scale)
	clear(l.acc)
	spreadPlane(l.acc, l.work, l.rows, l.cols, l.sums)
	factor := 2 * l.alpha * l.beta
	for i, a := range l.acc {
		dx[i] -= factor * x[i] * a
	}
}

// ratio computes dst = y·dy/scale.
func ratio(dst, y, dy, scale []float32) {
	y, dy, scale = y[:len(dst)], dy[:len(dst)], scale[:len(dst)]
	for i := range dst {
		dst[i] = y[i] * dy[i] / scale[i]
	}
}

// negativePower returns the function dst = scale^−beta; square roots serve
// the exponent that every published net uses.
func negativePower(beta float32) func(dst, scale []float32) {
	if beta == 0.75 {
		return func(dst, scale []float32) {
			for i, s := range scale {
				r := float32(math.Sqrt(float64(s)))
				dst[i] = 1 / (r * float32(math.Sqrt(float64(r))))
			}
		}
	}
	return func(dst, scale []float32) {
		for i, s := range scale {
			dst[i] = float32(math.Pow(float64(s), -float64(beta)))
		}
	}
}
