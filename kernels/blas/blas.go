package blas

import (
	"cmp"
	"fmt"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

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
	if err := Fits(transA, transB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc); err != nil {
		panic(err)
	}
	chosen().gemm(transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Fits returns an error where the matrices of a product (Gemm) reach beyond slices of so many elements: no implementation
// would notice.
func Fits(transA, transB bool, m, n, k int, lenA, lda, lenB, ldb, lenC, ldc int) error {
	ra, ca, rb, cb := m, k, k, n
	if transA {
		ra, ca = ca, ra
	}
	if transB {
		rb, cb = cb, rb
	}
	return cmp.Or(fits("a", ra, ca, lda, lenA), fits("b", rb, cb, ldb, lenB), fits("c", m, n, ldc, lenC))
}

// fits is that of one matrix.
func fits(name string, rows, cols, ld, elems int) error {
	if rows < 1 || cols < 1 || ld < cols || (rows-1)*ld+cols > elems {
		return fmt.Errorf("matrix %s, %d×%d with rows %d apart, does not fit %d elements", name, rows, cols, ld, elems)
	}
	return nil
}

// scaleRows computes c = beta·c: what remains of a product without terms,
// which the implementations treat differently.
func scaleRows(m, n int, beta float32, c []float32, ldc int) {
	for i := range m {
		if row := c[i*ldc : i*ldc+n]; beta == 0 {
			clear(row)
		} else {
			vectors.Sscal(n, beta, row, 1)
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
		clear(y[:rows]) // gonum would keep a NaN
	}
	vectors.Sgemv(transpose(transA), m, n, alpha, a, lda, x, 1, beta, y, 1)
}

// Axpy computes y += alpha·x over the elements of x; y is at least as long.
func Axpy(alpha float32, x, y []float32) {
	if len(x) > 0 {
		vectors.Saxpy(len(x), alpha, x, 1, y, 1)
	}
}

// vectors does what memory's bandwidth limits.
var vectors gonum.Implementation

func transpose(t bool) blas.Transpose {
	if t {
		return blas.Trans
	}
	return blas.NoTrans
}
