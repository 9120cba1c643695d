//go:build !amd64

package kernels

import (
	"runtime"
	"unsafe"
)

// nativePath returns the SIMD path, or why there is none.
func nativePath() (p path, lacks string) {
	return path{}, runtime.GOARCH + " has no AVX2"
}

// moveAround copies n > 0 bytes that lie apart.
func moveAround(dst, src unsafe.Pointer, n int) { copyPortable(dst, src, n) }
