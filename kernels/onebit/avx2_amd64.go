package onebit

import "github.com/scaffe/scaffe/kernels"

//go:generate go run -tags generate internal/gen/asm.go -out avx2_loops_amd64.s -stubs avx2_loops_amd64.go -pkg onebit

// useAVX2 says whether the AVX2 loops run; tests change it.
var useAVX2 = kernels.HasAVX2()

// whole is how many of n columns the AVX2 loops take.
func whole(n int) int {
	if !useAVX2 {
		return 0
	}
	return n &^ (bitsPerWord - 1)
}
