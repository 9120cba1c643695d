package pixels

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/cpuid/v2"
)

// The AVX2 loops give the portable one's bits, at every length, also where
// they need several calls, and write nothing else.
func TestBytes_EqualsPortable(t *testing.T) {
	if !cpuid.CPU.Supports(cpuid.AVX2) {
		t.Skip("this processor lacks AVX2")
	}
	defer func(was bool) { avx2 = was }(avx2)
	avx2 = true
	r := rand.New(rand.NewPCG(1, 2))
	lengths := []int{pieceMost - 1, pieceMost, pieceMost + 1, pieceMost + 8, 2*pieceMost + 13}
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
				row := Row{Means: m, Mean: 103.94, Scale: 0.017, Mirror: mirrored}
				row.Bytes(got[guard:], src)
				portable(row, want[guard:guard+n], src)
				for i := range want {
					if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
						t.Fatalf("%d values, mean image %v, mirrored %v: value %d is %v, want %v", n, m != nil, mirrored, i-guard, got[i], want[i])
					}
				}
			}
		}
	}
}
