//go:build openblas && cgo

package blas

/*
#cgo LDFLAGS: -lopenblas
extern char *openblas_get_config(void);
extern char *openblas_get_corename(void);
extern void openblas_set_num_threads(int);
extern int openblas_get_num_threads(void);
*/
import "C"

import (
	"fmt"
	"strings"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/netlib/blas/netlib"
)

var impl netlib.Implementation

func gemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	impl.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Optimized reports whether an optimized library does the work.
const Optimized = true

// Name returns the implementation, its version and the processor kernels it
// chose: "OpenBLAS 0.3.21 (Zen)".
func Name() string {
	version := ""
	// The configuration reads "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH …".
	if f := strings.Fields(C.GoString(C.openblas_get_config())); len(f) > 1 {
		version = " " + f[1]
	}
	return fmt.Sprintf("OpenBLAS%s (%s)", version, C.GoString(C.openblas_get_corename()))
}

// SetThreads makes later calls use at most n threads, at least one.
func SetThreads(n int) { C.openblas_set_num_threads(C.int(max(n, 1))) }

// Threads returns how many threads a call may use.
func Threads() int { return int(C.openblas_get_num_threads()) }
