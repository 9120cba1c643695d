package nn

import "math"

// The functions below compute one channel of a local response normalisation
// across channels with the exponent 3/4, which every published net uses. acc
// is a sum that runs over the channels, one element for each place in the
// plane: a channel comes in, and another goes out. Beyond the first and the last
// channel, in and out are zeros. Slices are as long as the first; none may
// overlap another.

// LRN adds in² to acc, writes scale = k + alpha·acc and y = x / scale^¾, and
// takes out² from acc.
func LRN(y, scale, x, in, out, acc []float32, k, alpha float32) {
	n := whole(len(y))
	if n > 0 {
		// All are touched before the loop, which does not check.
		_, _, _, _, _ = scale[n-1], x[n-1], in[n-1], out[n-1], acc[n-1]
		for i := 0; i < n; i += pieceMost {
			lrnForward(&y[i], &scale[i], &x[i], &in[i], &out[i], &acc[i], min(n-i, pieceMost), k, alpha)
		}
	}
	lrnPortable(y[n:], scale[n:], x[n:], in[n:], out[n:], acc[n:], k, alpha)
}

func lrnPortable(y, scale, x, in, out, acc []float32, k, alpha float32) {
	n := len(y)
	scale, x, in, out, acc = scale[:n], x[:n], in[:n], out[:n], acc[:n]
	for i := range y {
		// The conversions forbid to fuse a product with a sum.
		a := acc[i] + float32(in[i]*in[i])
		s := k + float32(alpha*a)
		scale[i] = s
		acc[i] = a - float32(out[i]*out[i])
		y[i] = x[i] / power(s)
	}
}

// power returns s^¾.
func power(s float32) float32 {
	r := float32(math.Sqrt(float64(s)))
	return r * float32(math.Sqrt(float64(r)))
}

// LRNRatio writes dst = y·dy/scale and adds it to acc.
func LRNRatio(dst, acc, y, dy, scale []float32) {
	n := whole(len(dst))
	if n > 0 {
		_, _, _, _ = acc[n-1], y[n-1], dy[n-1], scale[n-1]
		for i := 0; i < n; i += pieceMost {
			lrnRatio(&dst[i], &acc[i], &y[i], &dy[i], &scale[i], min(n-i, pieceMost))
		}
	}
	lrnRatioPortable(dst[n:], acc[n:], y[n:], dy[n:], scale[n:])
}

func lrnRatioPortable(dst, acc, y, dy, scale []float32) {
	n := len(dst)
	acc, y, dy, scale = acc[:n], y[:n], dy[:n], scale[:n]
	for i := range dst {
		r := float32(y[i]*dy[i]) / scale[i]
		dst[i] = r
		acc[i] += r
	}
}

// LRNGradient writes dx = dy / scale^¾ − factor·x·acc, and takes out from acc.
func LRNGradient(dx, x, dy, scale, out, acc []float32, factor float32) {
	n := whole(len(dx))
	if n > 0 {
		_, _, _, _, _ = x[n-1], dy[n-1], scale[n-1], out[n-1], acc[n-1]
		for i := 0; i < n; i += pieceMost {
			lrnBackward(&dx[i], &x[i], &dy[i], &scale[i], &out[i], &acc[i], min(n-i, pieceMost), factor)
		}
	}
	lrnGradientPortable(dx[n:], x[n:], dy[n:], scale[n:], out[n:], acc[n:], factor)
}

func lrnGradientPortable(dx, x, dy, scale, out, acc []float32, factor float32) {
	n := len(dx)
	x, dy, scale, out, acc = x[:n], dy[:n], scale[:n], out[:n], acc[:n]
	for i := range dx {
		t := float32(float32(factor*x[i]) * acc[i])
		dx[i] = dy[i]/power(scale[i]) - t
		acc[i] -= out[i]
	}
}
