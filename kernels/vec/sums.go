package vec

import "math"

// Lanes is a sum in the making: element i of every slice that is added goes
// to lane i modulo 16, in float64, so that the order of the additions does not
// depend on the processor. The zero value is an empty sum.
type Lanes [16]float64

// Total returns the sum, by adding the upper half of the lanes to the lower
// until one is left.
func (l *Lanes) Total() float64 {
	t := *l
	for half := len(t) / 2; half > 0; half /= 2 {
		for i := range half {
			t[i] += t[i+half]
		}
	}
	return t[0]
}

// Add adds the elements of x.
func (l *Lanes) Add(x []float32) {
	for len(x) > 0 {
		n := whole(len(x))
		if n > 0 {
			sumLanes(&l[0], nil, &x[0], nil, n, 0)
		} else {
			n = min(len(x), len(l))
			for i, v := range x[:n] {
				l[i] += float64(v)
			}
		}
		x = x[n:]
	}
}

// whole returns how many of n elements the AVX2 loops do in one call.
func whole(n int) int {
	if !useAVX2 {
		return 0
	}
	return min(n&^15, vectorPiece)
}

// AddSquares adds the squares of the elements of x, each exact.
func (l *Lanes) AddSquares(x []float32) {
	for len(x) > 0 {
		n := whole(len(x))
		if n > 0 {
			squareLanes(&l[0], nil, &x[0], nil, n, 0)
		} else {
			n = min(len(x), len(l))
			for i, v := range x[:n] {
				l[i] += float64(v) * float64(v)
			}
		}
		x = x[n:]
	}
}

// AddDot adds the products of the elements of a and b, each exact; b is as
// long as a.
func (l *Lanes) AddDot(a, b []float32) {
	b = b[:len(a)]
	for len(a) > 0 {
		n := whole(len(a))
		if n > 0 {
			dotLanes(&l[0], nil, &a[0], &b[0], n, 0)
		} else {
			n = min(len(a), len(l))
			y := b[:n]
			for i, v := range a[:n] {
				l[i] += float64(v) * float64(y[i])
			}
		}
		a, b = a[n:], b[n:]
	}
}

// AddMoments adds the elements of x less shift to sum, and the squares of
// those differences to squares, in one pass. With one of the elements as
// shift, mean and variance come out of them to nearly all digits of a float64,
// however far from 0 the elements lie.
func AddMoments(sum, squares *Lanes, x []float32, shift float32) {
	s := float64(shift)
	for len(x) > 0 {
		n := whole(len(x))
		if n > 0 {
			momentLanes(&sum[0], &squares[0], &x[0], nil, n, s)
		} else {
			n = min(len(x), len(sum))
			for i, v := range x[:n] {
				d := float64(v) - s
				sum[i] += d
				squares[i] += float64(d * d)
			}
		}
		x = x[n:]
	}
}

// AddSumDot adds the elements of a to sum, and their products with those of
// b, which is as long, to dot, in one pass.
func AddSumDot(sum, dot *Lanes, a, b []float32) {
	b = b[:len(a)]
	for len(a) > 0 {
		n := whole(len(a))
		if n > 0 {
			sumDotLanes(&sum[0], &dot[0], &a[0], &b[0], n, 0)
		} else {
			n = min(len(a), len(sum))
			y := b[:n]
			for i, v := range a[:n] {
				sum[i] += float64(v)
				dot[i] += float64(v) * float64(y[i])
			}
		}
		a, b = a[n:], b[n:]
	}
}

// Sum returns the sum of the elements of x, in the order of Lanes.
func Sum(x []float32) float64 {
	var l Lanes
	l.Add(x)
	return l.Total()
}

// SumSquares returns the sum of the squares of the elements of x, in the order
// of Lanes.
func SumSquares(x []float32) float64 {
	var l Lanes
	l.AddSquares(x)
	return l.Total()
}

// Dot returns the sum of a[i]·b[i], in the order of Lanes; b is as long as a.
func Dot(a, b []float32) float64 {
	var l Lanes
	l.AddDot(a, b)
	return l.Total()
}

// Max returns the largest element of x, leaving out NaNs, +0 where the largest
// is a zero, and -Inf where there is nothing else.
func Max(x []float32) float32 {
	m := float32(math.Inf(-1))
	for useAVX2 && len(x) >= 32 {
		n := min(len(x)&^31, vectorPiece)
		m = max(m, largestF32s(&x[0], n))
		x = x[n:]
	}
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m + 0 // -0 + 0 is +0
}

// FirstNotFinite returns the index of the first element of x that is NaN or
// infinite, -1 if there is none.
func FirstNotFinite(x []float32) int {
	at := 0
	for useAVX2 && len(x)-at >= 32 {
		n := min((len(x)-at)&^31, vectorPiece)
		finite := finiteF32s(&x[at], n)
		if at += finite; finite < n {
			break
		}
	}
	for i, v := range x[at:] {
		if math.Float32bits(v)&0x7f800000 == 0x7f800000 {
			return at + i
		}
	}
	return -1
}
