//go:build onednn && cgo

package dnn

/*
#cgo noescape dnn_gemm
#cgo nocallback dnn_gemm
#include "shim.h"
*/
import "C"

import "fmt"

// Gemm computes c = alpha·op(a)·op(b) + beta·c with the arguments and meaning
// of blas.Gemm. All extents are at least 1.
func Gemm(transA, transB bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) error {
	if err := gemmExtents(transA, transB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc); err != nil {
		return err
	}
	if _, err := engine(); err != nil {
		return err
	}
	s := C.dnn_gemm(letter(transA), letter(transB), C.long(m), C.long(n), C.long(k), C.float(alpha),
		(*C.float)(&a[0]), C.long(lda), (*C.float)(&b[0]), C.long(ldb), C.float(beta), (*C.float)(&c[0]), C.long(ldc))
	if s != C.dnnl_success {
		return fmt.Errorf("dnn: product of %d×%d and %d×%d: %w", m, k, k, n, status(s))
	}
	return nil
}

func letter(trans bool) C.char {
	if trans {
		return 'T'
	}
	return 'N'
}

// gemmExtents refuses what would reach beyond the slices.
func gemmExtents(transA, transB bool, m, n, k, lenA, lda, lenB, ldb, lenC, ldc int) error {
	rows, cols := m, k
	if transA {
		rows, cols = cols, rows
	}
	brows, bcols := k, n
	if transB {
		brows, bcols = bcols, brows
	}
	for _, x := range []struct {
		name                  string
		rows, cols, ld, elems int
	}{{"a", rows, cols, lda, lenA}, {"b", brows, bcols, ldb, lenB}, {"c", m, n, ldc, lenC}} {
		if x.rows < 1 || x.cols < 1 || x.ld < x.cols || (x.rows-1)*x.ld+x.cols > x.elems {
			return fmt.Errorf("dnn: matrix %s, %d×%d with rows %d apart, does not fit %d elements", x.name, x.rows, x.cols, x.ld, x.elems)
		}
	}
	return nil
}
