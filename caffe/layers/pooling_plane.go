package layers

import (
	"math"
	"slices"
)

// span is the input range [lo, hi) of one output along an axis, and its
// length before what lies in the padding was cut off.
type span struct{ lo, hi, full int }

// spans appends the windows along an axis of n elements to s: none where the
// kernel does not fit.
func spans(s []span, n, kernel, pad, stride int, up bool) []span {
	room := n + 2*pad - kernel
	if up {
		room += stride - 1
	}
	if room < 0 || n == 0 {
		return s
	}
	for i := range room/stride + 1 {
		lo := i*stride - pad
		if lo >= n {
			break
		}
		hi := min(lo+kernel, n+pad)
		s = append(s, span{max(lo, 0), min(hi, n), hi - lo})
	}
	return s
}

// maxPlane writes the maximum and its position for each window of a plane.
//
// Values and positions travel together as integers that order as the values
// do, and backwards by position among equals, so that the maximum is found
// without a branch that depends on the data: first over rows, then over
// columns.
func (l *pooling) maxPlane(src, dst []float32, mask []int32) {
	w := l.win.w
	keys := l.keys[w : w+len(src)]
	orderKeys(keys, src)
	for i, r := range l.rows {
		row := keys[r.lo*w:][:w]
		if r.hi-r.lo > 1 {
			over := l.keys[:w]
			maxInto(over, row, keys[(r.lo+1)*w:][:w])
			for y := r.lo + 2; y < r.hi; y++ {
				maxInto(over, over, keys[y*w:][:w])
			}
			row = over
		}
		out := mask[i*len(l.cols):][:len(l.cols)]
		for j, c := range l.cols {
			var best uint64
			switch in := row[c.lo:c.hi]; len(in) {
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
	for i, p := range mask {
		dst[i] = src[p]
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

// averagePlane writes the mean of each window of a plane whose rows are as
// long as sums.
func averagePlane(src, dst []float32, rows, cols []span, sums []float32) {
	w := len(sums)
	for i, r := range rows {
		copy(sums, src[r.lo*w:])
		for y := r.lo + 1; y < r.hi; y++ {
			for x, v := range src[y*w:][:w] {
				sums[x] += v
			}
		}
		out := dst[i*len(cols):][:len(cols)]
		for j, c := range cols {
			sum := float32(0)
			for _, v := range sums[c.lo:c.hi] {
				sum += v
			}
			out[j] = sum / float32(r.full*c.full)
		}
	}
}

// spreadPlane adds the gradient of averagePlane to dx.
func spreadPlane(dx, dy []float32, rows, cols []span, sums []float32) {
	w := len(sums)
	for i, r := range rows {
		clear(sums)
		in := dy[i*len(cols):][:len(cols)]
		for j, c := range cols {
			v := in[j] / float32(r.full*c.full)
			part := sums[c.lo:c.hi]
			for x := range part {
				part[x] += v
			}
		}
		for y := r.lo; y < r.hi; y++ {
			row := dx[y*w:][:w]
			for x, v := range sums {
				row[x] += v
			}
		}
	}
}
