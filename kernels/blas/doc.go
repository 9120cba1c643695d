// Package blas multiplies matrices: all dense linear algebra of the project goes
// through it, float32 and row-major throughout.
//
// There are two implementations: OpenBLAS, several times faster, which a program built with cgo
// opens when it first multiplies, where it is installed; otherwise gonum's own pure Go, which
// needs nothing. Name says which one a program has. It is not linked, since the threads it starts
// when it is loaded keep their cores busy for a tenth of a second, in programs that never multiply
// and in every rank at once.
//
// A matrix is a slice and a leading dimension: element (i, j) of the stored
// matrix a is a[i*lda+j]. Extents of zero are fine. Nothing here allocates
// while SetThreads is 1, the default: each rank of a training run has one core,
// not a whole machine. For a fixed number of threads the
// same call gives the same bits.
//
// Mismatched extents are a programming error and panic, as an index out of
// range does.
//
//	c := make([]float32, 2*2)
//	a := []float32{1, 2, 3, 4, 5, 6}                     // 2×3
//	blas.Gemm(false, true, 2, 2, 3, 1, a, 3, a, 3, 0, c, 2) // c = a·aᵀ
package blas
