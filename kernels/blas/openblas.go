//go:build cgo

package blas

/*
#cgo linux LDFLAGS: -ldl
#cgo noescape scaffe_gemm
#cgo nocallback scaffe_gemm
#include <dlfcn.h>
#include <stddef.h>

// What is called of OpenBLAS, as its cblas.h declares it.
enum { row_major = 101, as_it_is = 111, transposed = 112 };
static char *(*get_config)(void), *(*get_corename)(void);
static void (*set_num_threads)(int);
static int (*get_num_threads)(void);
static void (*sgemm)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);

// open_library returns 0 where there is no OpenBLAS, or one that lacks something.
static int open_library(void) {
  static const struct { const char *name; void *at; } symbols[] = {
    {"openblas_get_config", &get_config}, {"openblas_get_corename", &get_corename},
    {"openblas_set_num_threads", &set_num_threads}, {"openblas_get_num_threads", &get_num_threads},
    {"cblas_sgemm", &sgemm},
  };
  static const char *const names[] = {"libopenblas.so.0", "libopenblas.so", "libopenblas.dylib"};
  void *library = NULL;
  for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
    library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (!library) return 0;
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
    if (!(*(void **)symbols[i].at = dlsym(library, symbols[i].name))) return 0;
  return 1;
}

static const char *scaffe_config(void) { return get_config(); }
static const char *scaffe_corename(void) { return get_corename(); }
static void scaffe_set_threads(int n) { set_num_threads(n); }
static int scaffe_threads(void) { return get_num_threads(); }
static int trans(int t) { return t ? transposed : as_it_is; }
static void scaffe_gemm(int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc) {
  sgemm(row_major, trans(ta), trans(tb), m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
*/
import "C"

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// opened is OpenBLAS, which stays open.
type opened struct{}

// openBLAS opens it, to use so many threads; nil where it is not installed. While it is loaded it starts as many as its variable
// says, otherwise one for each core, and each keeps a core busy for a tenth of a second before it sleeps.
func openBLAS(threads int) library {
	if before, set := os.LookupEnv(threadsEnv); before != strconv.Itoa(threads) {
		_ = os.Setenv(threadsEnv, strconv.Itoa(threads)) // also C's
		if set {
			defer os.Setenv(threadsEnv, before)
		} else {
			defer os.Unsetenv(threadsEnv)
		}
	}
	if C.open_library() == 0 {
		return nil
	}
	return opened{}
}

func (opened) name() string {
	version := ""
	// The configuration reads "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH …".
	if f := strings.Fields(C.GoString(C.scaffe_config())); len(f) > 1 {
		version = " " + f[1]
	}
	return fmt.Sprintf("OpenBLAS%s (%s)", version, C.GoString(C.scaffe_corename()))
}

func (opened) setThreads(n int) { C.scaffe_set_threads(C.int(n)) }
func (opened) threads() int     { return int(C.scaffe_threads()) }

func (opened) gemm(transA, transB bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	C.scaffe_gemm(flag(transA), flag(transB), C.int(m), C.int(n), C.int(k), C.float(alpha), first(a), C.int(lda), first(b), C.int(ldb), C.float(beta), first(c), C.int(ldc))
}

func first(x []float32) *C.float { return (*C.float)(&x[0]) }

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
