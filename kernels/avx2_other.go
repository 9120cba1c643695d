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

// copyAround cannot.
func copyAround(addresses, unsafe.Pointer, int) bool { return false }
