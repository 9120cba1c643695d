package tune

import (
	"errors"
	"math"
	"slices"
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

// A small call settles before it counts, a large one, or one of which nothing is known, counts by itself.
func TestBurst(t *testing.T) {
	for seconds, want := range map[float64][2]int{math.Inf(1): {0, 1}, 3e-3: {0, 1}, 1e-3: {1, 1}, 100e-6: {5, 5}, 1e-6: {50, 50}, 0: {50, 50}} {
		if settling, counted := burst(seconds); settling != want[0] || counted != want[1] {
			t.Errorf("%g s: %d calls, and %d that count, want %v", seconds, settling, counted, want)
		}
	}
}

// The best of the own specs stays in the race, however fast the library is; a bad moment drops nobody.
func TestRace(t *testing.T) {
	r := newRace(job{specs: []spec.Spec{parse(spec.Library), parse("ring"), parse("linear"), parse("direct")}})
	r.times, r.rounds = [][]float64{{1}, {9}, {5}, {40}}, 1
	if r.drop(); !slices.Equal(r.left, []int{0, 2}) {
		t.Errorf("left are %v", r.left)
	}
	r = newRace(r.job)
	r.times, r.rounds = [][]float64{{1, 9, 9}, {9, 9, 9}, {99, 99, 1.5}, {5, 3, 5}}, 2
	if r.drop(); len(r.left) != 4 {
		t.Errorf("between the cuts left are %v", r.left)
	}
	r.rounds = minRounds
	if r.drop(); !slices.Equal(r.left, []int{0, 2}) {
		t.Errorf("after some rounds left are %v", r.left)
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
