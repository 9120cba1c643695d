package omb

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/collectivestest"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
)

// clockwork is a subject whose calls take a time of their own on each rank, and which notes how many it is asked for at once.
type clockwork struct {
	subject
	takes float64 // µs
	runs  []int
}

func (s *clockwork) run(_ context.Context, _ *testCase, _ int, _ *work, out []sample) error {
	for i := range out {
		out[i].total = s.takes
	}
	s.runs = append(s.runs, len(out))
	return nil
}

// TestSettle: a turn begins with as many calls as fill --settle on the slowest rank, on all ranks alike, and they are not
// measured; of an algorithm whose single call takes much longer there are none.
func TestSettle(t *testing.T) {
	errs := collectivestest.World(2, inproc.NewWorld(2, inproc.Options{}).Open, nbc.Options{}, func(comm *collectives.Comm, _ *nbc.Engine) error {
		r := &runner{program: program(t, "osu_reduce"), comm: comm}
		r.opts = Options{Iterations: 3, IterationsLarge: 3, Settle: 5 * time.Millisecond}
		short, long := &clockwork{takes: float64(100 * (1 + comm.Rank()))}, &clockwork{takes: 30000}
		c := &testCase{program: r.program, opts: &r.opts, bytes: 1 << 16, rank: comm.Rank(), size: 2}
		all, err := r.turns(t.Context(), c, []subject{short, long}, make([]*work, 2))
		if err != nil {
			return err
		}
		if want := []int{1, 1, 25, 1, 25, 1, 25, 1}; !slices.Equal(short.runs, want) {
			t.Errorf("rank %d: calls of 100 and 200 µs: runs of %v, want %v", comm.Rank(), short.runs, want)
		}
		if want := []int{1, 1, 1, 1, 1}; !slices.Equal(long.runs, want) {
			t.Errorf("rank %d: calls of 30 ms: runs of %v, want %v", comm.Rank(), long.runs, want)
		}
		for i, s := range all {
			if len(s.samples) != 3 {
				t.Errorf("rank %d: %d calls of subject %d are measured, want 3", comm.Rank(), len(s.samples), i)
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// TestInputsAreWritten: with --inputs written every rank that gives something writes it before each call of a turn, and nobody
// writes anything else; otherwise nobody writes.
func TestInputsAreWritten(t *testing.T) {
	for _, c := range []struct {
		program string
		gives   bool // a rank that is not the root
	}{{"osu_bcast", false}, {"osu_scatter", false}, {"osu_reduce", true}, {"osu_iallreduce", true}, {"osu_allgather", true}, {"osu_alltoall", true}} {
		for _, inputs := range []string{kept, written} {
			errs := collectivestest.World(2, inproc.NewWorld(2, inproc.Options{}).Open, nbc.Options{}, func(comm *collectives.Comm, _ *nbc.Engine) error {
				p := program(t, c.program)
				o := defaults(p)
				o.Inputs, o.Min, o.Max = inputs, 256, 256
				o.Types = mpiTypes[:1]
				r, err := newRunner(t.Context(), comm, p, o, io.Discard, io.Discard)
				if err != nil {
					return err
				}
				test := r.cases(o.Types[0])[0]
				given := arguments(test, 0).Given(comm.Rank())
				if got, want := given.Len() > 0, comm.Rank() == 0 || c.gives; got != want {
					t.Errorf("%s: rank %d gives something: %v, want %v", p.Name, comm.Rank(), got, want)
				}
				before := slices.Clone(mem.Bytes(given))
				if err := r.subjects[0].prepare(test); err != nil {
					return err
				}
				if err := r.subjects[0].run(t.Context(), test, 0, nil, make([]sample, 3)); err != nil { // an odd number of times
					return err
				}
				r.subjects[0].release()
				if got, want := !slices.Equal(before, mem.Bytes(given)), given.Len() > 0 && inputs == written; got != want {
					t.Errorf("%s, %s: what rank %d gives was written: %v, want %v", p.Name, inputs, comm.Rank(), got, want)
				}
				return r.close(t.Context())
			})
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
		}
	}
}

// Nodes that share a machine share its cores.
func TestCoreEach(t *testing.T) {
	for _, c := range []struct {
		name          string
		nodes         []int
		hosted, cores int
		want          bool
	}{
		{"two ranks, two cores", []int{0, 0}, 1, 2, true},
		{"four ranks, two cores", []int{0, 0, 0, 0}, 1, 2, false},
		{"four machines", []int{0, 1, 2, 3}, 1, 1, true},
		{"four nodes of one machine", []int{0, 1, 2, 3}, 4, 2, false},
		{"of one with a core for each", []int{0, 1, 2, 3}, 4, 4, true},
		{"two and two nodes on two machines", []int{0, 1, 2, 3}, 2, 2, true},
		{"uneven nodes, two on a machine", []int{0, 0, 0, 1, 2, 2}, 2, 4, false},
		{"more said to be hosted than there are", []int{0, 1}, 8, 2, true},
	} {
		if got := coreEach(c.nodes, c.hosted, c.cores); got != c.want {
			t.Errorf("%s: a core for each rank: %v, want %v", c.name, got, c.want)
		}
	}
}
