//go:build !amd64

package onebit

// whole is how many of n columns the AVX2 loops take: there are none, and what follows is only named.
func whole(int) int { return 0 }

func sumsF32s(_, _ *float32, _ *uint32, _, _ *float32, _, _ int) {}
func packF32s(_ *int32, _, _, _, _ *float32, _, _ int)           {}
func setF32s(_, _, _ *float32, _ *int32, _, _ int)               {}
func addF32s(_, _, _ *float32, _ *int32, _, _ int)               {}
