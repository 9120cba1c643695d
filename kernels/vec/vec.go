package vec

import "github.com/scaffe/scaffe/kernels"

// vectorPiece is how many elements one call of a loop does at most: the
// runtime cannot stop a goroutine inside assembly, and a collection would wait
// for it.
const vectorPiece = 1 << 16

// useAVX2 says whether the vector functions take the AVX2 loops: where the
// processor has them and SCAFFE_KERNELS does not forbid it. Tests change it.
var useAVX2 = kernels.HasAVX2()

// vectorOp is an elementwise operation. Its loops compute dst from a, b, the
// old dst and the constants, as vectorOps says.
type vectorOp int

const (
	opAdd vectorOp = iota
	opMul
	opScale
	opAddScaled
	opAddMul
	opAffine
	opAffineKeep
	opNormalize
	opNormalizeBoth
	opNormalizeGrad
	opSigmoidGrad
	opTanhGrad
	opTakeGreater
	opWhere
	opExp
	opSigmoid
	opTanh
	vectorOps
)

// vectorLoop is a generated loop over n elements. What the operation does not
// use may be nil.
type vectorLoop func(dst, keep, a, b *float32, n int, c0, c1, c2 float32)

// each runs op over the elements of dst. The others are as long or not used.
func each(op vectorOp, dst, keep, a, b []float32, c0, c1, c2 float32) {
	if !useAVX2 {
		portableVectors[op](dst, keep, a, b, c0, c1, c2)
		return
	}
	loop := avx2Vectors[op]
	for at := 0; at < len(dst); at += vectorPiece {
		n := min(vectorPiece, len(dst)-at)
		loop(&dst[at], place(keep, at), place(a, at), place(b, at), n, c0, c1, c2)
	}
}

// place returns the address of element i, nil for a slice that ends before.
func place(s []float32, i int) *float32 {
	if i < len(s) {
		return &s[i]
	}
	return nil
}

// Add sets dst = a + b.
func Add(dst, a, b []float32) { each(opAdd, dst, nil, a[:len(dst)], b[:len(dst)], 0, 0, 0) }

// Mul sets dst = a·b, element by element.
func Mul(dst, a, b []float32) { each(opMul, dst, nil, a[:len(dst)], b[:len(dst)], 0, 0, 0) }

// Scale sets dst = c·a.
func Scale(dst []float32, c float32, a []float32) {
	if c == 1 {
		copy(dst, a[:len(dst)])
		return
	}
	each(opScale, dst, nil, a[:len(dst)], nil, c, 0, 0)
}

// AddScaled sets dst = dst + c·a.
func AddScaled(dst []float32, c float32, a []float32) {
	each(opAddScaled, dst, nil, a[:len(dst)], nil, c, 0, 0)
}

// AddMul sets dst = dst + a·b, element by element.
func AddMul(dst, a, b []float32) { each(opAddMul, dst, nil, a[:len(dst)], b[:len(dst)], 0, 0, 0) }

// Affine sets dst = c·a + b.
func Affine(dst []float32, c float32, a []float32, b float32) {
	each(opAffine, dst, nil, a[:len(dst)], nil, c, b, 0)
}

// AffineKeep is Affine and copies a to keep in the same pass; dst may be a.
func AffineKeep(dst, keep []float32, c float32, a []float32, b float32) {
	each(opAffineKeep, dst, keep[:len(dst)], a[:len(dst)], nil, c, b, 0)
}

// Normalize sets dst = (a − mean)·inv.
func Normalize(dst, a []float32, mean, inv float32) {
	each(opNormalize, dst, nil, a[:len(dst)], nil, mean, inv, 0)
}

// NormalizeBoth is Normalize into dst and also into both.
func NormalizeBoth(dst, both, a []float32, mean, inv float32) {
	each(opNormalizeBoth, dst, both[:len(dst)], a[:len(dst)], nil, mean, inv, 0)
}

// NormalizeGrad sets dst = (dy − mean − slope·y)·inv: the gradient of a batch
// normalisation, whose output is y (Ioffe and Szegedy 2015, section 3).
func NormalizeGrad(dst, dy, y []float32, mean, slope, inv float32) {
	each(opNormalizeGrad, dst, nil, dy[:len(dst)], y[:len(dst)], mean, slope, inv)
}

// SigmoidGrad sets dst = dy·y·(1−y): the gradient of Sigmoid, whose output is y.
func SigmoidGrad(dst, dy, y []float32) {
	each(opSigmoidGrad, dst, nil, dy[:len(dst)], y[:len(dst)], 0, 0, 0)
}

// TanhGrad sets dst = dy·(1−y²): the gradient of Tanh, whose output is y.
func TanhGrad(dst, dy, y []float32) {
	each(opTanhGrad, dst, nil, dy[:len(dst)], y[:len(dst)], 0, 0, 0)
}

// TakeGreater sets dst = a and from = mark where a is greater than dst: one
// step of a maximum that remembers where it came from.
func TakeGreater(dst, from, a []float32, mark float32) {
	each(opTakeGreater, dst, from[:len(dst)], a[:len(dst)], nil, mark, 0, 0)
}

// Where sets dst = a where from is mark, and 0 elsewhere.
func Where(dst, a, from []float32, mark float32) {
	each(opWhere, dst, nil, a[:len(dst)], from[:len(dst)], mark, 0, 0)
}
