package nn

import (
	"math"
	"slices"
)

// Span is the range [Lo, Hi) of the inputs along an axis that an output sees.
type Span struct{ Lo, Hi int }

// MaxPool finds the maximum of each window of a plane and its position. It may
// be used by one goroutine at a time.
//
// Among equal values (−0 is +0) it takes the first in row-major order. A NaN
// with a clear sign bit is greater than any number.
type MaxPool struct {
	rows, cols []Span
	width      int
	words      []uint64 // portable: one plane and one row
	vector     *maxVectors
}

// maxVectors is what the AVX2 loops need beside: a row's keys, integers that
// order as the values do, and their positions, both with what lies in the
// padding on either side, which never wins.
type maxVectors struct {
	columns        func(dst *float32, mask *int32, src *float32, keys, positions *int32, n, kernel int)
	kernel, pad, n int // n outputs, in whole registers
	keys, at       []int32
	value          []float32 // a row of outputs, where it does not fit behind the others
	mask           []int32
}

// NewMaxPool prepares pooling of planes of the given height and width: rows
// and cols are the windows of the output's rows and columns, none empty, all within
// the plane, in ascending order.
func NewMaxPool(rows, cols []Span, height, width int) *MaxPool {
	p := &MaxPool{rows: slices.Clone(rows), cols: slices.Clone(cols), width: width}
	if p.vector = newMaxVectors(cols, height, width); p.vector == nil {
		p.words = make([]uint64, (height+1)*width)
	}
	return p
}

// newMaxVectors returns nil where the AVX2 loops do not fit.
func newMaxVectors(cols []Span, height, width int) *maxVectors {
	kernel, stride, start, ok := regular(cols, width)
	if !avx2 || !ok || stride > 2 || width < lanes {
		return nil
	}
	v := &maxVectors{
		columns: maxColumns1, kernel: kernel, pad: -start,
		n: (len(cols) + lanes - 1) &^ (lanes - 1),
	}
	if stride == 2 {
		v.columns = maxColumns2
	}
	// The loops read whole registers.
	v.keys = make([]int32, v.pad+max(width, v.n*stride)+kernel+2*lanes)
	v.at = make([]int32, len(v.keys))
	for i := range v.keys {
		v.keys[i], v.at[i] = math.MinInt32, int32(height*width-1)
	}
	v.value, v.mask = make([]float32, v.n), make([]int32, v.n)
	return v
}

// regular finds the kernel, stride and start (at most 0) of windows that are
// all alike before what lies outside the axis of n elements was cut off.
func regular(s []Span, n int) (kernel, stride, start int, ok bool) {
	for _, w := range s {
		kernel = max(kernel, w.Hi-w.Lo)
	}
	first := slices.IndexFunc(s, func(w Span) bool { return w.Hi-w.Lo == kernel })
	stride = 1
	if len(s) > 1 { // the last windows are the least likely to be cut on the left
		stride = max(1, s[len(s)-1].Lo-s[len(s)-2].Lo)
	}
	if first < 0 {
		return 0, 0, 0, false
	}
	start = s[first].Lo - first*stride
	for i, w := range s {
		if lo := start + i*stride; w != (Span{max(lo, 0), min(lo+kernel, n)}) {
			return 0, 0, 0, false
		}
	}
	return kernel, stride, start, start <= 0
}

// Plane writes the maxima of a plane to dst and their positions in it, counted
// row by row, to mask.
func (p *MaxPool) Plane(dst []float32, mask []int32, src []float32) {
	v, outs := p.vector, len(p.cols)
	if v == nil {
		p.portable(dst, mask, src)
		return
	}
	for i, r := range p.rows {
		v.overRows(src, p.width, r)
		at := i * outs
		if at+v.n <= len(dst) && at+v.n <= len(mask) { // what is too much is overwritten by the next row
			v.columns(&dst[at], &mask[at], &src[0], &v.keys[0], &v.at[0], v.n, v.kernel)
			continue
		}
		v.columns(&v.value[0], &v.mask[0], &src[0], &v.keys[0], &v.at[0], v.n, v.kernel)
		copy(dst[at:at+outs], v.value)
		copy(mask[at:at+outs], v.mask)
	}
}

// overRows sets keys and at to each column's maximum over rows r and its
// position. The last register overlaps the one before it.
func (v *maxVectors) overRows(src []float32, width int, r Span) {
	first, n := r.Lo*width, width&^(lanes-1)
	src = src[first : r.Hi*width]
	maxRows(&v.keys[v.pad], &v.at[v.pad], &src[0], n, r.Hi-r.Lo, width, first)
	if n < width {
		x := width - lanes
		maxRows(&v.keys[v.pad+x], &v.at[v.pad+x], &src[x], lanes, r.Hi-r.Lo, width, first+x)
	}
}

// portable lets values and positions travel together as integers that order as
// the values do, and backwards by position among equals, so that the maximum is
// found without a branch that depends on the data: first over rows, then
// over columns.
func (p *MaxPool) portable(dst []float32, mask []int32, src []float32) {
	w := p.width
	keys := p.words[w : w+len(src)]
	orderKeys(keys, src)
	for i, r := range p.rows {
		row := keys[r.Lo*w:][:w]
		if r.Hi-r.Lo > 1 {
			over := p.words[:w]
			maxInto(over, row, keys[(r.Lo+1)*w:][:w])
			for y := r.Lo + 2; y < r.Hi; y++ {
				maxInto(over, over, keys[y*w:][:w])
			}
			row = over
		}
		out := mask[i*len(p.cols):][:len(p.cols)]
		for j, c := range p.cols {
			var best uint64
			switch in := row[c.Lo:c.Hi]; len(in) {
			case 3: // the widths of nearly every net
				best = max(in[0], in[1], in[2])
			case 2:
				best = max(in[0], in[1])
			default:
				best = slices.Max(in)
			}
			out[j] = int32(^uint32(best))
		}
	}
	for i, at := range mask[:len(p.rows)*len(p.cols)] {
		dst[i] = src[at]
	}
}

// orderKeys writes keys that order as (value, −position): in the upper half
// the value's bits, which order as integers once those of negative numbers
// are turned round and the sign is flipped.
func orderKeys(keys []uint64, src []float32) {
	keys = keys[:len(src)]
	for i, v := range src {
		bits := int32(math.Float32bits(v + 0)) // −0 + 0 is +0, its equal
		bits ^= int32(uint32(bits>>31)>>1) ^ math.MinInt32
		keys[i] = uint64(uint32(bits))<<32 | uint64(^uint32(i))
	}
}

func maxInto(dst, a, b []uint64) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = max(a[i], b[i])
	}
}
