package topk

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// plain is the definition: sort by magnitude, then by position.
func plain(k int, x []float32) []int32 {
	all := make([]int32, len(x))
	for i := range all {
		all[i] = int32(i)
	}
	bits := func(i int32) uint32 { return math.Float32bits(x[i]) &^ (1 << 31) }
	slices.SortStableFunc(all, func(a, b int32) int { return int(int64(bits(b)) - int64(bits(a))) })
	all = all[:k]
	slices.Sort(all)
	return all
}

// Every selection is what sorting gives, of any bits: zeros of both signs, numbers that are
// denormal, infinite or not numbers, and many that are equal.
func TestLargestIsWhatSortingGives(t *testing.T) {
	var s Selector
	rapid.Check(t, func(t *rapid.T) {
		any := rapid.Uint32()
		few := rapid.SampledFrom([]uint32{0, 1 << 31, 1, 0x3f800000, 0xbf800000, 0x3f800001, 0x3f800200, 0x3f900000, 0x7f800000, 0x7fc00000})
		bits := rapid.SliceOfN(rapid.OneOf(any, few), 0, 300).Draw(t, "bits")
		x := make([]float32, len(bits))
		for i, b := range bits {
			x[i] = math.Float32frombits(b)
		}
		k := rapid.IntRange(0, len(x)).Draw(t, "k")
		index := make([]int32, k)
		s.Largest(index, x)
		if want := plain(k, x); !slices.Equal(index, want) {
			t.Fatalf("the %d largest of %v are at %v, not %v", k, x, index, want)
		}
	})
}

func TestLargestTakesTheFirstOfEqualOnes(t *testing.T) {
	var s Selector
	index := make([]int32, 3)
	s.Largest(index, []float32{-2, 1, 2, 5, 2, -2})
	if want := []int32{0, 2, 3}; !slices.Equal(index, want) {
		t.Errorf("found %v, not %v", index, want)
	}
}

func TestLargestAllocatesNothing(t *testing.T) {
	var s Selector
	x, index := make([]float32, 1000), make([]int32, 10)
	if n := testing.AllocsPerRun(10, func() { s.Largest(index, x) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestLargestRefusesMoreThanThereAre(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("two of one value are found")
		}
	}()
	new(Selector).Largest(make([]int32, 2), make([]float32, 1))
}

func BenchmarkLargest(b *testing.B) {
	x := make([]float32, 1<<22)
	for i := range x {
		x[i] = float32(math.Sin(float64(i) * 1.7))
	}
	for _, part := range []int{4, 1000} {
		index := make([]int32, len(x)/part)
		b.Run(fmt.Sprintf("1of%d", part), func(b *testing.B) {
			var s Selector
			b.SetBytes(int64(4 * len(x)))
			for range b.N {
				s.Largest(index, x)
			}
		})
	}
}
