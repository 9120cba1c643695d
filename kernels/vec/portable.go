package vec

import "math"

// The vector loops in plain Go. Each is the operation that vector.go documents
// under the name; the conversions forbid fused multiply-adds.

var portableVectors = [vectorOps]func(dst, keep, a, b []float32, c0, c1, c2 float32){
	opAdd: func(dst, _, a, b []float32, _, _, _ float32) {
		a, b = a[:len(dst)], b[:len(dst)]
		for i := range dst {
			dst[i] = a[i] + b[i]
		}
	},
	opMul: func(dst, _, a, b []float32, _, _, _ float32) {
		a, b = a[:len(dst)], b[:len(dst)]
		for i := range dst {
			dst[i] = a[i] * b[i]
		}
	},
	opScale: func(dst, _, a, _ []float32, c, _, _ float32) {
		a = a[:len(dst)]
		for i := range dst {
			dst[i] = c * a[i]
		}
	},
	opAddScaled: func(dst, _, a, _ []float32, c, _, _ float32) {
		a = a[:len(dst)]
		for i := range dst {
			dst[i] += float32(c * a[i])
		}
	},
	opAddMul: func(dst, _, a, b []float32, _, _, _ float32) {
		a, b = a[:len(dst)], b[:len(dst)]
		for i := range dst {
			dst[i] += float32(a[i] * b[i])
		}
	},
	opAffine: func(dst, _, a, _ []float32, c, b, _ float32) {
		a = a[:len(dst)]
		for i := range dst {
			dst[i] = float32(c*a[i]) + b
		}
	},
	opAffineKeep: func(dst, keep, a, _ []float32, c, b, _ float32) {
		a, keep = a[:len(dst)], keep[:len(dst)]
		for i := range dst {
			x := a[i]
			keep[i] = x
			dst[i] = float32(c*x) + b
		}
	},
	opNormalize: func(dst, _, a, _ []float32, mean, inv, _ float32) {
		a = a[:len(dst)]
		for i := range dst {
			dst[i] = (a[i] - mean) * inv
		}
	},
	opNormalizeBoth: func(dst, both, a, _ []float32, mean, inv, _ float32) {
		a, both = a[:len(dst)], both[:len(dst)]
		for i := range dst {
			y := (a[i] - mean) * inv
			both[i] = y
			dst[i] = y
		}
	},
	opNormalizeGrad: func(dst, _, dy, y []float32, mean, slope, inv float32) {
		dy, y = dy[:len(dst)], y[:len(dst)]
		for i := range dst {
			dst[i] = (dy[i] - mean - float32(slope*y[i])) * inv
		}
	},
	opSigmoidGrad: func(dst, _, dy, y []float32, _, _, _ float32) {
		dy, y = dy[:len(dst)], y[:len(dst)]
		for i, v := range y {
			dst[i] = float32(dy[i]*v) * (1 - v)
		}
	},
	opTanhGrad: func(dst, _, dy, y []float32, _, _, _ float32) {
		dy, y = dy[:len(dst)], y[:len(dst)]
		for i, v := range y {
			dst[i] = dy[i] * (1 - float32(v*v))
		}
	},
	opTakeGreater: func(dst, from, a, _ []float32, mark, _, _ float32) {
		a, from = a[:len(dst)], from[:len(dst)]
		m := math.Float32bits(mark)
		for i, old := range dst { // integers, which the compiler moves without a branch
			x := a[i]
			bits, f := math.Float32bits(old), math.Float32bits(from[i])
			greater := math.Float32bits(x)
			if x > old {
				bits = greater
			}
			if x > old {
				f = m
			}
			dst[i], from[i] = math.Float32frombits(bits), math.Float32frombits(f)
		}
	},
	opWhere: func(dst, _, a, from []float32, mark, _, _ float32) {
		a, from = a[:len(dst)], from[:len(dst)]
		for i := range dst {
			bits := math.Float32bits(a[i])
			if from[i] != mark {
				bits = 0
			}
			dst[i] = math.Float32frombits(bits)
		}
	},
	opExp: func(dst, _, a, _ []float32, shift, _, _ float32) {
		a = a[:len(dst)]
		for i := range dst {
			dst[i] = exp32(a[i] - shift)
		}
	},
	opSigmoid: func(dst, _, a, _ []float32, _, _, _ float32) {
		a = a[:len(dst)]
		for i := range dst {
			dst[i] = sigmoid32(a[i])
		}
	},
	opTanh: func(dst, _, a, _ []float32, _, _, _ float32) {
		a = a[:len(dst)]
		for i := range dst {
			dst[i] = tanh32(a[i])
		}
	},
}
