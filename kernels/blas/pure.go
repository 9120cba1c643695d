package blas

import (
	"runtime"
	"sync/atomic"
)

// pure is gonum's implementation in Go.
type pure struct {
	most atomic.Int32 // threads
}

func (*pure) name() string { return "gonum (pure Go)" }

// gonum knows one thread and all: any n above 1 means GOMAXPROCS.
func (p *pure) setThreads(n int) { p.most.Store(int32(n)) }

func (p *pure) threads() int {
	if p.most.Load() == 1 {
		return 1
	}
	return runtime.GOMAXPROCS(0)
}

// serialSide is an extent of c that gonum multiplies without starting
// goroutines: it does so below 4 blocks of 64×64. The sum over k is taken in
// the same order either way, so the split does not show in the bits.
const serialSide = 64

func (p *pure) gemm(transA, transB bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	tA, tB := transpose(transA), transpose(transB)
	if p.most.Load() != 1 || m <= serialSide && n <= serialSide {
		vectors.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	const wide = 3 * serialSide
	for i := 0; i < m; i += serialSide {
		ai := i * lda
		if transA {
			ai = i
		}
		for j := 0; j < n; j += wide {
			bj := j
			if transB {
				bj = j * ldb
			}
			vectors.Sgemm(tA, tB, min(serialSide, m-i), min(wide, n-j), k, alpha, a[ai:], lda, b[bj:], ldb, beta, c[i*ldc+j:], ldc)
		}
	}
}
