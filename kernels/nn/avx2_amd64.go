package nn

import "github.com/scaffe/scaffe/kernels"

//go:generate go run -tags generate internal/gen/asm.go -out avx2_loops_amd64.s -stubs avx2_loops_amd64.go -pkg nn

// avx2 says whether the AVX2 loops run; tests change it.
var avx2 = kernels.HasAVX2()

const (
	lanes = 8 // float32 in a register

	// pieceMost is how many elements one call of a loop does at most: the
	// runtime cannot stop a goroutine inside assembly, and a collection would
	// wait for it.
	pieceMost = 1 << 16
)

// whole is the part of n elements that fills registers, 0 where the AVX2
// loops do not run.
func whole(n int) int {
	if !avx2 {
		return 0
	}
	return n &^ (lanes - 1)
}

// piece is how much of n elements, lanes or more, the next call does.
func piece(n int) int { return min(n&^(lanes-1), pieceMost) }
