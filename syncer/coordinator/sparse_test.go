package coordinator

import "testing"

// Lin et al., section 3.3: 75, 93.75, 98.4, 99.6 % while warming up, each for as long, and then 99.9 %.
func TestWarmUp(t *testing.T) {
	for _, k := range []struct {
		s    Sparse
		want map[int]float64 // by iteration
	}{
		{Sparse{0.999, 8}, map[int]float64{0: 0.75, 1: 0.75, 2: 0.9375, 4: 0.984375, 6: 0.99609375, 7: 0.99609375, 8: 0.999, 9: 0.999, 1 << 40: 0.999}},
		{Sparse{0.999, 3}, map[int]float64{0: 0.75, 1: 0.9375, 2: 0.984375, 3: 0.999}},
		{Sparse{0.999, 0}, map[int]float64{0: 0.999}},
		{Sparse{0.95, 8}, map[int]float64{0: 0.75, 2: 0.9375, 4: 0.95, 6: 0.95, 8: 0.95}},
		{Sparse{0.5, 8}, map[int]float64{0: 0.5, 7: 0.5, 8: 0.5}},
	} {
		for iter, want := range k.want {
			if got := k.s.Stages()[k.s.Stage(iter)]; got != want {
				t.Errorf("%+v: iteration %d has a sparsity of %v, not %v", k.s, iter, got, want)
			}
		}
	}
}

func TestCount(t *testing.T) {
	for _, k := range []struct {
		n        int
		sparsity float64
		want     int
	}{{1000, 0.999, 1}, {1001, 0.999, 2}, {143_667_240, 0.999, 143_668}, {10, 0.999, 1}, {0, 0.5, 0}, {7, 0, 7}, {100, 0.75, 25}, {101, 0.75, 26}} {
		if got := Count(k.n, k.sparsity); got != k.want {
			t.Errorf("of %d values at %v, %d are sent, not %d", k.n, k.sparsity, got, k.want)
		}
	}
}
