//go:build !amd64

package nn

// avx2 says whether the AVX2 loops run; elsewhere there are none, and what
// follows is only named.
const avx2 = false

const (
	lanes     = 8
	pieceMost = 1
)

func whole(int) int   { return 0 }
func piece(n int) int { return n }

func reluForward(_, _ *float32, _ int)                                    {}
func reluBackward(_, _, _ *float32, _ int)                                {}
func lrnForward(_, _, _, _, _, _ *float32, _ int, _, _ float32)           {}
func lrnRatio(_, _, _, _, _ *float32, _ int)                              {}
func lrnBackward(_, _, _, _, _, _ *float32, _ int, _ float32)             {}
func maxRows(_, _ *int32, _ *float32, _, _, _, _ int)                     {}
func maxColumns1(_ *float32, _ *int32, _ *float32, _, _ *int32, _, _ int) {}
func maxColumns2(_ *float32, _ *int32, _ *float32, _, _ *int32, _, _ int) {}
