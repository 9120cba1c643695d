//go:build onednn && cgo

package dnn

/*
#cgo noescape dnn_gemm
#cgo nocallback dnn_gemm
#include "shim.h"
*/
import "C"

import (
	"fmt"

	"github.com/scaffe/scaffe/kernels/blas"
)

// Gemm computes c = alpha·op(a)·op(b) + beta·c with the arguments and meaning
// of blas.Gemm. All extents are at least 1.
func Gemm(transA, transB bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) error {
	if err := blas.Fits(transA, transB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc); err != nil {
		return fmt.Errorf("dnn: %w", err)
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
