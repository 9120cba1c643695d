package tune

import (
	"errors"
	"testing"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/collectivestest"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/schedule"
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

// TestInputsAreWritten: each rank that gives something writes it before each call, as a program does.
func TestInputsAreWritten(t *testing.T) {
	errs := collectivestest.World(2, inproc.NewWorld(2, inproc.Options{}).Open, nbc.Options{}, func(comm *collectives.Comm, _ *nbc.Engine) error {
		s := &sweep{Config: Config{Min: 256, Max: 256, Type: mem.Float32}.Defaults(), comm: comm}
		if err := s.buffers(t.Context()); err != nil {
			return err
		}
		for _, v := range []schedule.Collective{schedule.Reduce, schedule.Bcast} {
			given := s.in
			if v == schedule.Bcast {
				given = s.out
			}
			before := mem.Bytes(given)[0]
			if _, err := s.once(t.Context(), job{collective: v, bytes: 256}, parse("linear")); err != nil {
				return err
			}
			if written := mem.Bytes(given)[0] != before; v == schedule.Reduce && !written || comm.Rank() == 0 && !written {
				t.Errorf("%v: rank %d gives what it gave before", v, comm.Rank())
			}
		}
		s.free()
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}
