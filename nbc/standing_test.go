package nbc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/schedule"
)

// nextToStanding starts two engines, of which rank 0's has standing receives that
// nothing ever arrives for, and returns a reduction of 8 floats on each.
func nextToStanding(tb testing.TB, standing int) (engines [2]*nbc.Engine, small [2]*nbc.Request) {
	tb.Helper()
	s, err := schedule.Parse("rank 0 of 2 count 1 scratch 0\n0: recv out[0:1] from 1 #0\n")
	if err != nil {
		tb.Fatal(err)
	}
	receive, err := nbc.Compile(s)
	if err != nil {
		tb.Fatal(err)
	}
	w := inproc.NewWorld(2, inproc.Options{})
	for r := range engines {
		if engines[r], err = nbc.Start(w.Open(r), host(tb), nbc.Options{Deadline: 24 * time.Hour}); err != nil {
			tb.Fatal(err)
		}
		b := reductionOf(8)
		b.Instance = 1
		if small[r], err = engines[r].Prepare(chainReduce(tb, r, 2, 8, 8), b); err != nil {
			tb.Fatal(err)
		}
	}
	one := mem.Of(make([]float32, 1))
	for i := range standing {
		r, err := engines[0].Prepare(receive, nbc.Binding{Name: "standing", Comm: 1, Instance: uint32(i), Out: one})
		if err == nil {
			err = r.Start()
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	return engines, small
}

// once runs the small reduction on both ranks.
func once(small [2]*nbc.Request) error {
	var errs [2]error
	for r := range small {
		errs[r] = small[r].Start()
	}
	for r := range small {
		errs[r] = errors.Join(errs[r], small[r].Wait(context.Background()))
	}
	return errors.Join(errs[:]...)
}

// TestStandingReceivesAreSeldomLookedAt: the cost of other requests does not grow with
// their number.
func TestStandingReceivesAreSeldomLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const standing, runs = 1000, 200
		engines, small := nextToStanding(t, standing)
		defer func() {
			for _, e := range engines {
				_ = e.Close()
			}
		}()
		time.Sleep(time.Minute)
		before := nbc.Looked(engines[0])
		for range runs {
			if err := once(small); err != nil {
				t.Fatal(err)
			}
		}
		if n := nbc.Looked(engines[0]) - before; n > 3*(standing+1) {
			t.Errorf("looked at %d requests in %d runs next to %d", n, runs, standing)
		}
	})
}

// BenchmarkStanding measures a reduction of 8 floats next to standing receives.
func BenchmarkStanding(b *testing.B) {
	for _, standing := range []int{0, 1000, 16000} {
		b.Run(fmt.Sprint(standing), func(b *testing.B) {
			engines, small := nextToStanding(b, standing)
			for b.Loop() {
				if err := once(small); err != nil {
					b.Fatal(err)
				}
			}
			for _, e := range engines {
				_ = e.Close()
			}
		})
	}
}
