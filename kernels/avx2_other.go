//go:build !amd64

package kernels

import "runtime"

// nativePath returns the SIMD path, or why there is none.
func nativePath() (p path, lacks string) {
	return path{}, runtime.GOARCH + " has no AVX2"
}
