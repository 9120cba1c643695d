//go:build !amd64

package vec

// There are no AVX2 loops: useAVX2 is false, and nothing below is called.

var (
	avx2Vectors [vectorOps]vectorLoop
	avx2Updates [updateRules][2][2]updateLoop
)

func sumLanes(_, _ *float64, _, _ *float32, _ int, _ float64)    {}
func squareLanes(_, _ *float64, _, _ *float32, _ int, _ float64) {}
func dotLanes(_, _ *float64, _, _ *float32, _ int, _ float64)    {}
func momentLanes(_, _ *float64, _, _ *float32, _ int, _ float64) {}
func sumDotLanes(_, _ *float64, _, _ *float32, _ int, _ float64) {}
func largestF32s(*float32, int) float32                          { return 0 }
func finiteF32s(*float32, int) int                               { return 0 }
