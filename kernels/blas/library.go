package blas

import (
	"os"
	"strconv"
	"sync"
)

// threadsEnv is OpenBLAS's own variable; this package honors it for both
// implementations.
const threadsEnv = "OPENBLAS_NUM_THREADS"

// library is an implementation of matrix products. Their extents have been checked, and none is 0.
type library interface {
	gemm(transA, transB bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int)
	name() string
	setThreads(n int)
	threads() int
}

// chosen is the implementation of this process, with as many threads as its environment says, else with one.
var chosen = sync.OnceValue(func() library {
	n, err := strconv.Atoi(os.Getenv(threadsEnv))
	if err != nil || n < 1 {
		n = 1
	}
	l := openBLAS(n)
	if l == nil {
		l = new(pure)
	}
	l.setThreads(n)
	return l
})

// Optimized reports whether an optimized library does the work.
func Optimized() bool {
	_, isPure := chosen().(*pure)
	return !isPure
}

// Name returns the implementation, with the version of OpenBLAS and the kernels it chose for
// this processor: "OpenBLAS 0.3.21 (Zen)", or "gonum (pure Go)".
func Name() string { return chosen().name() }

// SetThreads makes later calls use at most n threads, at least one.
func SetThreads(n int) { chosen().setThreads(max(n, 1)) }

// Threads returns how many threads a call may use.
func Threads() int { return chosen().threads() }
