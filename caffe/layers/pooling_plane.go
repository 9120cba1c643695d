package layers

import "github.com/scaffe/scaffe/kernels/nn"

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

// inside returns the windows as package nn has them.
func inside(s []span) []nn.Span {
	in := make([]nn.Span, len(s))
	for i, v := range s {
		in[i] = nn.Span{Lo: v.lo, Hi: v.hi}
	}
	return in
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
