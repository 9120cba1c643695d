package tune

import (
	"testing"

	"github.com/scaffe/scaffe/collectives/spec"
)

// The specs that this package writes itself are specs, of every layout.
func TestOwnSpecs(t *testing.T) {
	for _, n := range []int{1, 2, 9, 64} {
		for _, ppn := range []int{1, 2, 8} {
			l := spec.LayoutOf(spec.NodesOf(n, ppn))
			for _, s := range append(levels(l), chainSizes(l)...) {
				if err := s.Validate(); err != nil {
					t.Errorf("%v: %v", s, err)
				}
			}
		}
	}
}

// The best of the own specs stays in the race, however fast the library is.
func TestRace(t *testing.T) {
	times := [][]float64{{1}, {9}, {5}, {40}}
	if left := race(times, []int{0, 1, 2, 3}, 1, 0); len(left) != 2 || left[0] != 0 || left[1] != 2 {
		t.Errorf("left are %v", left)
	}
	if left := race(times, []int{0, 1, 2, 3}, 2, 0); len(left) != 4 {
		t.Errorf("between the cuts left are %v", left)
	}
}
