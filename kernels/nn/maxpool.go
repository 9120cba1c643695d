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

	words []uint64 // portable: one plane and one row

	vector         bool
	stride, kernel int
	from, to       int // the outputs of a row with whole windows
	keys, at       []int32
	value          []float32 // a row of outputs
	mask           []int32
}

// slack is how many elements beyond what they use the AVX2 loops read and
// write.
const slack = 32

// NewMaxPool prepares pooling of planes of the given height and width: rows
// and cols are the windows of the output's rows and columns, none empty, all within
// the plane, in ascending order.
func NewMaxPool(rows, cols []Span, height, width int) *MaxPool {
	p := &MaxPool{rows: slices.Clone(rows), cols: slices.Clone(cols), width: width}
	p.kernel, p.stride, p.from, p.to = regular(cols)
	if p.vector = avx2 && p.to > p.from && width >= lanes && (p.stride == 1 || p.stride == 2); p.vector {
		p.keys, p.at = make([]int32, width+slack), make([]int32, width+slack)
		p.value, p.mask = make([]float32, len(cols)+slack), make([]int32, len(cols)+slack)
	} else {
		p.words = make([]uint64, (height+1)*width)
	}
	return p
}

// regular finds the run of outputs [from, to) whose windows are kernel long
// and stride apart: all that padding and border do not cut. There is none
// where the windows are otherwise irregular.
func regular(cols []Span) (kernel, stride, from, to int) {
	for _, c := range cols {
		kernel = max(kernel, c.Hi-c.Lo)
	}
	long := func(c Span) bool { return c.Hi-c.Lo == kernel }
	if from = slices.IndexFunc(cols, long); from < 0 {
		return
	}
	for to = from + 1; to < len(cols) && long(cols[to]); to++ {
		step := cols[to].Lo - cols[to-1].Lo
		if stride == 0 {
			stride = step
		}
		if step != stride {
			break
		}
	}
	return kernel, max(stride, 1), from, to
}

// Plane writes the maxima of a plane to dst and their positions in it, counted
// row by row, to mask.
func (p *MaxPool) Plane(dst []float32, mask []int32, src []float32) {
	if !p.vector {
		p.portable(dst, mask, src)
		return
	}
	outs := len(p.cols)
	for i, r := range p.rows {
		p.overRows(src, r)
		n := (p.to - p.from + lanes - 1) &^ (lanes - 1)
		first := p.cols[p.from].Lo
		columns := maxColumns1
		if p.stride == 2 {
			columns = maxColumns2
		}
		columns(&p.value[p.from], &p.mask[p.from], &src[0], &p.keys[first], &p.at[first], n, p.kernel)
		for j := range p.from {
			p.window(j, src)
		}
		for j := p.to; j < outs; j++ {
			p.window(j, src)
		}
		copy(dst[i*outs:][:outs], p.value)
		copy(mask[i*outs:][:outs], p.mask)
	}
}

// overRows sets keys and at to each column's maximum over rows r and its
// position. The last register overlaps the one before it.
func (p *MaxPool) overRows(src []float32, r Span) {
	w, n := p.width, whole(p.width)
	first := r.Lo * w
	src = src[first : r.Hi*w]
	maxRows(&p.keys[0], &p.at[0], &src[0], n, r.Hi-r.Lo, w, first)
	if n < w {
		x := w - lanes
		maxRows(&p.keys[x], &p.at[x], &src[x], lanes, r.Hi-r.Lo, w, first+x)
	}
}

// window finds output j, whose window is irregular.
func (p *MaxPool) window(j int, src []float32) {
	c := p.cols[j]
	key, at := p.keys[c.Lo], p.at[c.Lo]
	for x := c.Lo + 1; x < c.Hi; x++ {
		if k := p.keys[x]; k > key || k == key && p.at[x] < at {
			key, at = k, p.at[x]
		}
	}
	p.value[j], p.mask[j] = src[at], at
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
