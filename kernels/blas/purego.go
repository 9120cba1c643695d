//go:build !openblas || !cgo

package blas

import (
	"runtime"
	"sync/atomic"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

var (
	impl    gonum.Implementation
	threads atomic.Int32
)

// Optimized reports whether an optimized library does the work.
const Optimized = false

// Name returns "gonum (pure Go)".
func Name() string { return "gonum (pure Go)" }

// SetThreads makes later calls use at most n threads, at least one. gonum
// knows one and all: any n above 1 means GOMAXPROCS.
func SetThreads(n int) { threads.Store(int32(max(n, 1))) }

// Threads returns how many threads a call may use.
func Threads() int {
	if threads.Load() == 1 {
		return 1
	}
	return runtime.GOMAXPROCS(0)
}

// serialSide is an extent of c that gonum multiplies without starting
// goroutines: it does so below 4 blocks of 64×64. The sum over k is taken in
// the same order either way, so the split does not show in the bits.
const serialSide = 64

func gemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	if threads.Load() != 1 || m <= serialSide && n <= serialSide {
		impl.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	const wide = 3 * serialSide
	for i := 0; i < m; i += serialSide {
		ai := i * lda
		if tA != blas.NoTrans {
			ai = i
		}
		for j := 0; j < n; j += wide {
			bj := j
			if tB != blas.NoTrans {
				bj = j * ldb
			}
			impl.Sgemm(tA, tB, min(serialSide, m-i), min(wide, n-j), k, alpha, a[ai:], lda, b[bj:], ldb, beta, c[i*ldc+j:], ldc)
		}
	}
}
