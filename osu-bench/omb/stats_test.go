package omb

import "testing"

func TestCompare(t *testing.T) {
	first := Interval{Median: 100, Low: 95, High: 105, Certain: true}
	for _, c := range []struct {
		i    Interval
		want Verdict
	}{
		{Interval{Median: 50, Low: 49, High: 51, Certain: true}, Faster},
		{Interval{Median: 200, Low: 190, High: 210, Certain: true}, Slower},
		{Interval{Median: 104, Low: 103, High: 107, Certain: true}, Same},
		{Interval{Median: 90, Low: 80, High: 95, Certain: true}, Same}, // they touch
		{Interval{Median: 50, Low: 49, High: 51, Certain: false}, Same},
	} {
		if got := compare(c.i, first); got != c.want {
			t.Errorf("%+v against %+v: %s, want %s", c.i, first, got, c.want)
		}
	}
	if got := compare(Interval{Median: 50, Low: 49, High: 51, Certain: true}, Interval{Median: 100, Low: 95, High: 105, Certain: false}); got != Same {
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
	for name, want := range map[string]float64{"osu_reduce": 1, "osu_bcast": 1, "osu_allreduce": 1.5, "osu_iallreduce": 1.5, "osu_reduce_local": 1, "osu_bw": 1, "osu_allgather": 3, "osu_reduce_scatter": 0.75, "osu_ialltoall": 3} {
		if got := busFactor(program(t, name), 4); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
