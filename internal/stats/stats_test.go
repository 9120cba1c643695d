package stats

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The ranks are those of published tables of the sign test's interval.
func TestMedianKnownAnswers(t *testing.T) {
	for n, want := range map[int]struct {
		k  int
		ok bool
	}{
		1: {0, false}, 2: {0, false}, 5: {0, false}, 6: {0, true}, 8: {0, true}, 9: {1, true}, 10: {1, true},
		12: {2, true}, 15: {3, true}, 20: {5, true}, 25: {7, true}, 30: {9, true}, 50: {17, true}, 100: {39, true}, 1000: {468, true},
	} {
		if k, ok := rank(n); k != want.k || ok != want.ok {
			t.Errorf("rank(%d) = %d, %v, want %d, %v", n, k, ok, want.k, want.ok)
		}
	}
	xs := []float64{10, 1, 9, 2, 8, 3, 7, 4, 6, 5}
	if got, want := Median(xs), (Interval{5.5, 2, 9, true}); got != want {
		t.Errorf("median of 1 to 10 is %+v, want %+v", got, want)
	}
	if got, want := Median([]float64{3, 1, 2}), (Interval{2, 1, 3, false}); got != want {
		t.Errorf("median of three is %+v, want %+v", got, want)
	}
	if !slices.Equal(xs[:3], []float64{10, 1, 9}) {
		t.Error("the values were sorted in place")
	}
}

// The interval holds the true median in at least 95 % of samples, also of a
// distribution with a long tail.
func TestMedianCovers(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{6, 10, 25, 100} {
		const samples = 4000
		held := 0
		for range samples {
			xs := make([]float64, n)
			for i := range xs {
				u := dice.Float64() // its median is 1/2
				xs[i] = 1 / (1 - u) // that of this is 2
			}
			if m := Median(xs); m.Low <= 2 && 2 <= m.High {
				held++
			}
		}
		if share := float64(held) / samples; share < 0.94 {
			t.Errorf("%d values: %.3f of the intervals hold the median", n, share)
		}
	}
}

func TestOverlaps(t *testing.T) {
	a := Interval{100, 95, 105, true}
	for _, c := range []struct {
		b    Interval
		want bool
	}{
		{Interval{50, 49, 51, true}, false},
		{Interval{200, 190, 210, true}, false},
		{Interval{110, 105, 115, true}, true},
		{Interval{100, 99, 101, true}, true},
		{Interval{50, 49, 51, false}, true},
	} {
		if a.Overlaps(c.b) != c.want || c.b.Overlaps(a) != c.want {
			t.Errorf("%v and %v: not %v", a, c.b, c.want)
		}
	}
	if a.String() != "95.00-105.00" || (Interval{}).String() != "?" {
		t.Errorf("%v, %v", a, Interval{})
	}
}
