package blas

import (
	"os"
	"strconv"

	"gonum.org/v1/gonum/blas"
)

// threadsEnv is OpenBLAS's own variable; this package honors it for both
// implementations.
const threadsEnv = "OPENBLAS_NUM_THREADS"

// init runs after the implementation's variables are set.
func init() {
	n, err := strconv.Atoi(os.Getenv(threadsEnv))
	if err != nil || n < 1 {
		n = 1
	}
	SetThreads(n)
}

func transpose(t bool) blas.Transpose {
	if t {
		return blas.Trans
	}
	return blas.NoTrans
}

// Gemm computes c = alpha·op(a)·op(b) + beta·c, where op(a) is m×k, op(b) is
// k×n, c is m×n, and op transposes where trans says so: a is then stored as
// k×m, b as n×k. Where beta is 0, c is only written, whatever it held.
func Gemm(transA, transB bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	if m == 0 || n == 0 {
		return
	}
	if k == 0 {
		scaleRows(m, n, beta, c, ldc)
		return
	}
	gemm(transpose(transA), transpose(transB), m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// scaleRows computes c = beta·c: what remains of a product without terms,
// which the implementations treat differently.
func scaleRows(m, n int, beta float32, c []float32, ldc int) {
	for i := range m {
		if row := c[i*ldc : i*ldc+n]; beta == 0 {
			clear(row)
		} else {
			Scal(beta, row)
		}
	}
}

// Gemv computes y = alpha·op(a)·x + beta·y, where a is stored as m×n, and x
// and y are as long as op(a) has columns and rows.
func Gemv(transA bool, m, n int, alpha float32, a []float32, lda int, x []float32, beta float32, y []float32) {
	rows, cols := m, n
	if transA {
		rows, cols = n, m
	}
	if rows == 0 {
		return
	}
	if cols == 0 {
		scaleRows(1, rows, beta, y, rows)
		return
	}
	if beta == 0 {
		clear(y[:rows]) // some implementations would keep a NaN
	}
	impl.Sgemv(transpose(transA), m, n, alpha, a, lda, x, 1, beta, y, 1)
}

// Axpy computes y += alpha·x over the elements of x; y is at least as long.
func Axpy(alpha float32, x, y []float32) {
	if len(x) > 0 {
		impl.Saxpy(len(x), alpha, x, 1, y[:len(x)], 1)
	}
}

// Scal computes x *= alpha.
func Scal(alpha float32, x []float32) {
	if len(x) > 0 {
		impl.Sscal(len(x), alpha, x, 1)
	}
}

// Dot returns the sum of x[i]·y[i] over the elements of x.
func Dot(x, y []float32) float32 {
	if len(x) == 0 {
		return 0
	}
	return impl.Sdot(len(x), x, 1, y[:len(x)], 1)
}

// Asum returns the sum of |x[i]|.
func Asum(x []float32) float32 {
	if len(x) == 0 {
		return 0
	}
	return impl.Sasum(len(x), x, 1)
}

// Nrm2 returns the Euclidean norm of x.
func Nrm2(x []float32) float32 {
	if len(x) == 0 {
		return 0
	}
	return impl.Snrm2(len(x), x, 1)
}
