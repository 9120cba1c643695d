package backoff

import "testing"

func TestPause(t *testing.T) {
	b := Backoff{Spins: 3, Yields: 2}
	for round := range 2 {
		for look := range 8 {
			if sleep := b.Pause(); sleep != (look >= 5) {
				t.Errorf("round %d, look %d in vain: time to sleep is %v", round, look, sleep)
			}
		}
		b.Reset()
	}
	if !(&Backoff{}).Pause() {
		t.Error("the zero value does not sleep at once")
	}
}

func TestSpins(t *testing.T) {
	for _, c := range []struct{ cores, ranks, want int }{{1, 1, 0}, {2, 1, Spare}, {7, 4, 0}, {8, 4, Spare}} {
		if got := Spins(c.cores, c.ranks); got != c.want {
			t.Errorf("%d cores, %d ranks: %d spins, want %d", c.cores, c.ranks, got, c.want)
		}
	}
}
