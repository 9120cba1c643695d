package nn

import "math"

// The portable loops of a rectifier compare bits, because the compiler turns an
// integer selection into a conditional move, and no predictor could guess a branch
// on the sign of x. As unsigned integers the bits of a float32 lie in
// (0, 1<<31) above 0, and from 1<<31 (−0) to minusInf below, the negative NaNs
// beyond.
const minusInf = 0xff800000

// ReLU writes y = max(x, 0); a NaN stays one. y may be x.
func ReLU(y, x []float32) {
	y = y[:len(x)]
	if avx2 {
		for len(x) >= lanes {
			n := piece(len(x))
			reluForward(&y[0], &x[0], n)
			y, x = y[n:], x[n:]
		}
	}
	reluPortable(y, x)
}

func reluPortable(y, x []float32) {
	for i, v := range x {
		b := math.Float32bits(v)
		if b-1<<31 <= minusInf-1<<31 {
			b = 0
		}
		y[i] = math.Float32frombits(b)
	}
}

// ReLUGradient writes dx = dy where x is above 0, and 0 elsewhere. x may be
// the function's value instead. dx may be dy.
func ReLUGradient(dx, dy, x []float32) {
	dx, dy = dx[:len(x)], dy[:len(x)]
	if avx2 {
		for len(x) >= lanes {
			n := piece(len(x))
			reluBackward(&dx[0], &dy[0], &x[0], n)
			dx, dy, x = dx[n:], dy[n:], x[n:]
		}
	}
	reluGradientPortable(dx, dy, x)
}

func reluGradientPortable(dx, dy, x []float32) {
	for i, v := range x {
		d := math.Float32bits(dy[i])
		if math.Float32bits(v)-1 >= 1<<31-1 {
			d = 0
		}
		dx[i] = math.Float32frombits(d)
	}
}
