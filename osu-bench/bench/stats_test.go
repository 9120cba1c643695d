package bench

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
	if got, want := median(xs), (Interval{5.5, 2, 9, true}); got != want {
		t.Errorf("median of 1 to 10 is %+v, want %+v", got, want)
	}
	if got, want := median([]float64{3, 1, 2}), (Interval{2, 1, 3, false}); got != want {
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
			if m := median(xs); m.Low <= 2 && 2 <= m.High {
				held++
			}
		}
		if share := float64(held) / samples; share < 0.94 {
			t.Errorf("%d values: %.3f of the intervals hold the median", n, share)
		}
	}
}

func TestCompare(t *testing.T) {
	first := Interval{100, 95, 105, true}
	for _, c := range []struct {
		i    Interval
		want Verdict
	}{
		{Interval{50, 49, 51, true}, Faster},
		{Interval{200, 190, 210, true}, Slower},
		{Interval{104, 103, 107, true}, Same},
		{Interval{90, 80, 95, true}, Same}, // they touch
		{Interval{50, 49, 51, false}, Same},
	} {
		if got := compare(c.i, first); got != c.want {
			t.Errorf("%+v against %+v: %s, want %s", c.i, first, got, c.want)
		}
	}
	if got := compare(Interval{50, 49, 51, true}, Interval{100, 95, 105, false}); got != Same {
		t.Errorf("against an uncertain first: %s", got)
	}
}

func TestPercentile(t *testing.T) {
	xs := make([]float64, 200)
	for i := range xs {
		xs[i] = float64(i + 1)
	}
	for p, want := range map[int]float64{1: 2, 50: 100, 90: 180, 99: 198, 100: 200} {
		if got := percentile(xs, p); got != want {
			t.Errorf("P%d of 1 to 200 is %v, want %v", p, got, want)
		}
	}
	if got := percentile([]float64{7}, 1); got != 7 {
		t.Errorf("P1 of one value is %v", got)
	}
}

func TestOverlap(t *testing.T) {
	for _, c := range []struct{ overall, compute, pure, want float64 }{
		{100, 100, 50, 100}, // hidden
		{150, 100, 50, 0},   // in sequence
		{125, 100, 50, 50},
		{300, 100, 50, 0}, // worse than in sequence
	} {
		if got := overlap(c.overall, c.compute, c.pure); got != c.want {
			t.Errorf("overlap(%v, %v, %v) = %v, want %v", c.overall, c.compute, c.pure, got, c.want)
		}
	}
}

func TestBusFactor(t *testing.T) {
	for name, want := range map[string]float64{"osu_reduce": 1, "osu_bcast": 1, "osu_allreduce": 1.5, "osu_iallreduce": 1.5, "osu_reduce_local": 1, "osu_bw": 1} {
		if got := busFactor(program(t, name), 4); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
