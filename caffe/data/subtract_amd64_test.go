package data

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The AVX2 loops give the portable one's bits, at every length, also where
// they need several calls, and write nothing else.
func TestSubtract_EqualsPortable(t *testing.T) {
	if !hasAVX2 {
		t.Skip("this processor lacks AVX2")
	}
	r := rand.New(rand.NewPCG(1, 2))
	lengths := []int{pieceLanes - 1, pieceLanes, pieceLanes + 1, pieceLanes + 8, 2*pieceLanes + 13}
	for n := range 150 {
		lengths = append(lengths, n)
	}
	for _, n := range lengths {
		src, means := make([]byte, n), make([]float32, n)
		for i := range src {
			src[i], means[i] = byte(r.Uint32()), r.Float32()*255
		}
		for _, m := range [][]float32{nil, means} {
			for _, mirrored := range []bool{false, true} {
				const guard = 7
				got, want := make([]float32, n+2*guard), make([]float32, n+2*guard)
				subtract(got[guard:guard+n], src, m, 103.94, 0.017, mirrored)
				subtractPortable(want[guard:guard+n], src, m, 103.94, 0.017, mirrored)
				for i := range want {
					if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
						t.Fatalf("%d values, mean image %v, mirrored %v: value %d is %v, want %v", n, m != nil, mirrored, i-guard, got[i], want[i])
					}
				}
			}
		}
	}
}
