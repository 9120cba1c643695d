//go:build cuda && cgo && linux && (amd64 || arm64)

package driver

/*
#include <stdlib.h>
#include "libraries.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"
)

// loader finds one of NVIDIA's libraries when it is first asked for. What has been found, or has not, stays so: a file
// that is loaded is not given up.
type loader[T any] struct {
	title    string // as NVIDIA writes it
	env      string // the variable that names another file
	names    func() []string
	load     func(name string) (T, string)
	version  func(T) (text string, major int, err error)
	min, max int // majors
	mu       sync.Mutex
	found    map[string]*found[T] // by the file that was named
}

// found is what a file, or the usual ones, came to.
type found[T any] struct {
	functions T
	library   Library
	err       error
}

// get returns the functions of the library. Where there is none, the error is an ErrNoLibrary.
func (l *loader[T]) get() (T, Library, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	named := os.Getenv(l.env)
	var none T
	if named == NoLibrary {
		return none, Library{}, fmt.Errorf("%w: %s is %s", ErrNoLibrary, l.env, NoLibrary)
	}
	f := l.found[named]
	if f == nil {
		f = new(found[T])
		f.functions, f.library, f.err = l.find(named)
		if l.found == nil {
			l.found = make(map[string]*found[T])
		}
		l.found[named] = f
	}
	return f.functions, f.library, f.err
}

func (l *loader[T]) find(named string) (f T, _ Library, err error) {
	names := []string{named}
	if named == "" {
		names = l.names()
	}
	var reasons []string
	for _, name := range names {
		f, why := l.load(name)
		if why != "" {
			reasons = append(reasons, why) // it has the name
			continue
		}
		text, major, err := l.version(f)
		switch {
		case err != nil:
			err = fmt.Errorf("%s does not tell its version: %w", name, err)
		case major < l.min || major > l.max:
			err = fmt.Errorf("%s is %s %s, and scaffe takes %d to %d", name, l.title, text, l.min, l.max)
		default:
			return f, Library{name, text}, nil
		}
		return f, Library{}, fmt.Errorf("%w: %s names another file, or %s for none", err, l.env, NoLibrary)
	}
	if named == "" {
		return f, Library{}, fmt.Errorf("%w: %s", ErrNoLibrary, strings.Join(reasons, "; "))
	}
	return f, Library{}, fmt.Errorf("%s names no %s: %s", l.env, l.title, strings.Join(reasons, "; "))
}

// loadWith calls one of the C functions that load.
func loadWith[T any](load func(*C.char, **C.char) T, none func(T) bool) func(string) (T, string) {
	return func(name string) (T, string) {
		text := C.CString(name)
		defer C.free(unsafe.Pointer(text))
		var why *C.char
		f := load(text, &why)
		if none(f) {
			return f, C.GoString(why)
		}
		return f, ""
	}
}

// majors returns the names of a library with the majors from most down to least.
func majors(stem string, most, least int) (names []string) {
	for m := most; m >= least; m-- {
		names = append(names, fmt.Sprintf("%s.so.%d", stem, m))
	}
	return names
}

// libraryError is what a call of a library answered.
type libraryError struct {
	call, words string
	code        int
}

func (e libraryError) Error() string { return fmt.Sprintf("%s: %s (%d)", e.call, e.words, e.code) }

// The types of cuBLAS and cuDNN, each of one stream of a context. They are used by one goroutine at a time.
type (
	BLAS struct {
		l *C.scaffe_cublas
		c C.CUcontext
		h unsafe.Pointer
	}
	DNN struct {
		l *C.scaffe_cudnn
		c C.CUcontext
		h unsafe.Pointer
	}
)

var cublas = loader[*C.scaffe_cublas]{
	title: "cuBLAS", env: EnvBLAS, min: 11, max: 13,
	// One for a later CUDA than the driver's does not start.
	names: func() []string {
		var v C.int
		if C.cuDriverGetVersion(&v) != C.CUDA_SUCCESS {
			return nil
		}
		return majors("libcublas", min(13, int(v)/1000), 11)
	},
	load:    loadWith(func(n *C.char, why **C.char) *C.scaffe_cublas { return C.scaffe_cublas_load(n, why) }, func(l *C.scaffe_cublas) bool { return l == nil }),
	version: blasVersion,
}

func blasVersion(l *C.scaffe_cublas) (string, int, error) {
	var v [3]C.int
	if code := C.scaffe_cublas_version(l, &v[0]); code != 0 {
		return "", 0, blasError("cublasGetProperty", code)
	}
	return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]), int(v[0]), nil
}

var blasWords = map[C.int]string{
	1: "CUBLAS_STATUS_NOT_INITIALIZED", 3: "CUBLAS_STATUS_ALLOC_FAILED", 7: "CUBLAS_STATUS_INVALID_VALUE", 8: "CUBLAS_STATUS_ARCH_MISMATCH",
	11: "CUBLAS_STATUS_MAPPING_ERROR", 13: "CUBLAS_STATUS_EXECUTION_FAILED", 14: "CUBLAS_STATUS_INTERNAL_ERROR", 15: "CUBLAS_STATUS_NOT_SUPPORTED",
	16: "CUBLAS_STATUS_LICENSE_ERROR",
}

func blasError(call string, code C.int) error {
	if code == 0 {
		return nil
	}
	words := blasWords[code]
	if words == "" {
		words = "unknown status"
	}
	return libraryError{call, words, int(code)}
}

// FindBLAS says which cuBLAS there is. The driver has been opened.
func FindBLAS() (Library, error) {
	_, of, err := cublas.get()
	return of, err
}

// OpenBLAS makes cuBLAS compute on a stream, with so much memory of the GPU for its own, which is nobody else's until Close.
// Products are of float32, or, with tf32, of what of it the tensor cores take.
func (c Context) OpenBLAS(s Stream, workspace unsafe.Pointer, bytes int, tf32 bool) (*BLAS, error) {
	l, _, err := cublas.get()
	if err != nil {
		return nil, err
	}
	b := &BLAS{l: l, c: c.c}
	if code := C.scaffe_cublas_create(l, c.c, &b.h); code != 0 {
		return nil, blasError("cublasCreate", code)
	}
	math := C.int(0) // CUBLAS_DEFAULT_MATH
	if tf32 {
		math = 3 // CUBLAS_TF32_TENSOR_OP_MATH
	}
	var at *C.char
	if code := C.scaffe_cublas_prepare(l, c.c, b.h, s.s, workspace, C.size_t(bytes), math, &at); code != 0 {
		return nil, errors.Join(blasError(C.GoString(at), code), b.Close())
	}
	return b, nil
}

// Close gives the handle back, when what is on the stream has been done.
func (b *BLAS) Close() error {
	return blasError("cublasDestroy", C.scaffe_cublas_destroy(b.l, b.c, b.h))
}

// Product is one of matrices by columns, as cublasSgemmStridedBatched describes it: c = op(a)·op(b), or c +=, m×n of k terms.
type Product struct {
	TransA, TransB      bool
	M, N, K             int
	LDA, LDB, LDC       int
	Batch               int
	StepA, StepB, StepC int
	A, B, C             unsafe.Pointer
	Add                 bool
}

// Do puts a product on the stream.
func (b *BLAS) Do(p Product) error {
	flag := func(is bool) C.int {
		if is {
			return 1
		}
		return 0
	}
	of := C.scaffe_product{
		ta: flag(p.TransA), tb: flag(p.TransB), m: C.int(p.M), n: C.int(p.N), k: C.int(p.K), lda: C.int(p.LDA), ldb: C.int(p.LDB), ldc: C.int(p.LDC),
		batch: C.int(p.Batch), step_a: C.longlong(p.StepA), step_b: C.longlong(p.StepB), step_c: C.longlong(p.StepC),
		beta: C.float(flag(p.Add)), a: p.A, b: p.B, c: p.C,
	}
	call := "cublasSgemm"
	if p.Batch != 1 {
		call = "cublasSgemmStridedBatched"
	}
	return blasError(call, C.scaffe_cublas_product(b.l, b.c, b.h, &of))
}
