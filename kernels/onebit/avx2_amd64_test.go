package onebit

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/scaffe/scaffe/kernels"
)

// The AVX2 loops give the portable ones' bits, for every number of columns, wherever these begin, in
// several blocks too, and write nothing else: of values of all kinds, such as −0, and where a column is
// not finite.
func TestAVX2EqualsPortable(t *testing.T) {
	if !kernels.HasAVX2() {
		t.Skip("no AVX2 here")
	}
	type shape struct{ rows, cols, from, to int }
	shapes := []shape{{3, 2*mostBlock + 77, 32, 2*mostBlock + 77}, {2, mostBlock + 1, 0, mostBlock + 1}}
	for n := range 140 {
		shapes = append(shapes, shape{1 + n%9, n + 40, n % 7, n%7 + n}, shape{5, n + 1, 0, n + 1})
	}
	special := []float32{0, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32, -1e-41, math.MaxFloat32 / 4, -7}
	bad := []float32{float32(math.NaN()), float32(math.Inf(1)), math.MaxFloat32}
	r := rand.New(rand.NewPCG(6, 7))
	for i, k := range shapes {
		values, residual := make([]float32, k.rows*k.cols), make([]float32, k.rows*k.cols)
		for j := range values {
			values[j], residual[j] = float32(r.NormFloat64()), float32(r.NormFloat64())
			if r.IntN(5) == 0 {
				values[j], residual[j] = special[r.IntN(len(special))], special[r.IntN(2)]
			}
		}
		if i%3 == 0 {
			values[r.IntN(len(values))] = bad[i/3%len(bad)]
		}
		by := func(avx2 bool) (codes []int32, all [][]float32) {
			defer func(was bool) { useAVX2 = was }(useAVX2)
			useAVX2 = avx2
			m, err := New(k.rows, k.cols)
			if err != nil {
				t.Fatal(err)
			}
			codes = make([]int32, m.Words(k.from, k.to))
			left, out, sum := slices.Clone(residual), slices.Clone(residual), slices.Clone(residual)
			m.Quantise(codes, k.from, k.to, values, left)
			m.Unquantise(out, k.from, k.to, codes)
			m.Add(sum, k.from, k.to, codes)
			return codes, [][]float32{left, out, sum}
		}
		wantCodes, want := by(false)
		gotCodes, got := by(true)
		if !slices.Equal(gotCodes, wantCodes) {
			t.Fatalf("%+v: other codes", k)
		}
		for which := range want {
			for j, x := range want[which] {
				if math.Float32bits(got[which][j]) != math.Float32bits(x) {
					t.Fatalf("%+v: %s %d,%d is %v, not %v", k, []string{"residual", "value", "sum"}[which], j/k.cols, j%k.cols, got[which][j], x)
				}
			}
		}
	}
}
