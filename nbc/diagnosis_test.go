package nbc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/schedule"
)

// mute is a transport without notices.
type mute struct{ nbc.Transport }

// stuck starts n engines with the given options, runs f on each, and returns how
// each ended, on a fake clock, so that the speed of the machine does not matter. An
// engine is closed when all have ended.
func stuck(t *testing.T, n int, opts nbc.Options, wrap func(nbc.Transport) nbc.Transport, f func(e *nbc.Engine) error) []error {
	t.Helper()
	errs := make([]error, n)
	synctest.Test(t, func(t *testing.T) {
		w := inproc.NewWorld(n, inproc.Options{})
		engines := make([]*nbc.Engine, n)
		var wg sync.WaitGroup
		for r := range n {
			open := func() (nbc.Transport, error) {
				inner, err := w.Open(r)()
				return wrap(inner), err
			}
			var err error
			if engines[r], err = nbc.Start(open, host(t), opts); err != nil {
				t.Fatal(err)
			}
			wg.Go(func() { errs[r] = f(engines[r]) })
		}
		wg.Wait()
		for _, e := range engines {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return errs
}

// strictly are options with a deadline that late ranks do not extend.
func strictly(d time.Duration) nbc.Options { return nbc.Options{Deadline: d, MaxDeadline: d} }

// outside waits until the engine has failed, as a rank does that never calls.
func outside(e *nbc.Engine) error {
	<-e.Failed()
	return e.Err()
}

func asIs(t nbc.Transport) nbc.Transport { return t }

// reductionOf binds a reduction to count elements of its own.
func reductionOf(count int) nbc.Binding {
	buf := mem.Of(make([]float32, count))
	return nbc.Binding{Name: "reduce", In: buf, Out: buf}
}

// reduction runs a chain reduction with the binding's other fields as given.
func reduction(t *testing.T, e *nbc.Engine, b nbc.Binding) error {
	buf := reductionOf(40)
	b.In, b.Out = buf.In, buf.Out
	r, err := e.Prepare(chainReduce(t, e.Rank(), e.Size(), 40, 10), b)
	if err != nil {
		return err
	}
	defer r.Close()
	return errors.Join(r.Start(), r.Wait(context.Background()))
}

// TestTheChainLeadsToTheCulprit: every rank of a chain waits for the next, and
// the last one never comes. The error has it in its structure and in its text.
func TestTheChainLeadsToTheCulprit(t *testing.T) {
	defer goleak.VerifyNone(t)
	const n, last = 5, 4
	errs := stuck(t, n, strictly(2*time.Second), asIs, func(e *nbc.Engine) error {
		if e.Rank() == last {
			return outside(e)
		}
		return reduction(t, e, nbc.Binding{Name: "reduce", Instance: 812})
	})
	for r, err := range errs[:last] {
		text := fmt.Sprint(err)
		for _, want := range []string{
			fmt.Sprintf("rank %d waits for chunk 0 of reduce#812 from rank %d", r, r+1),
			"rank 4 has not entered reduce#812",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("rank %d says %q, without %q", r, text, want)
			}
		}
		var deadline *nbc.DeadlineError
		if !errors.As(err, &deadline) {
			continue // another's was over first
		}
		found := deadline.Culprits()
		if len(found) != 1 || found[0].Rank != last || found[0].Status != nbc.NotEntered {
			t.Errorf("rank %d found %+v", r, found)
		}
		if len(deadline.Edges) != 1 || deadline.Edges[0].Peer != r+1 || deadline.Edges[0].Instance != 812 {
			t.Errorf("rank %d waits for %+v", r, deadline.Edges)
		}
	}
}

// TestWhereThePeerIsInstead: the peer waits in another collective, which is
// said; and what that one waits for is found too. Where the peer's deadline is over
// first, it has failed when it is asked last, and its reason says the same.
func TestWhereThePeerIsInstead(t *testing.T) {
	const there = "rank 1 waits for chunk 0 of reduce#1 from rank 2"
	for _, c := range []struct {
		own, peer time.Duration
		want      string
	}{
		{2 * time.Second, 4 * time.Second, "rank 1 has not entered reduce#2 (" + there + ")"},
		{4 * time.Second, 2 * time.Second, there},
		{2 * time.Second, 2 * time.Second, there},
	} {
		t.Run(fmt.Sprintf("%v, %v", c.own, c.peer), func(t *testing.T) {
			defer goleak.VerifyNone(t)
			errs := stuck(t, 3, nbc.Options{}, asIs, func(e *nbc.Engine) error {
				switch e.Rank() {
				case 0:
					return reduction(t, e, nbc.Binding{Name: "reduce", Instance: 2, Deadline: c.own})
				case 1: // in the first still, whose last rank never comes
					return reduction(t, e, nbc.Binding{Name: "reduce", Instance: 1, Deadline: c.peer})
				}
				return outside(e)
			})
			for _, want := range []string{c.want, "rank 2 has not entered reduce#1"} {
				if !strings.Contains(fmt.Sprint(errs[0]), want) {
					t.Errorf("rank 0 says %q, without %q", errs[0], want)
				}
			}
		})
	}
}

// TestTheChainComesBack: the peer waits in another collective for the very rank that asks, which waits there for a third.
func TestTheChainComesBack(t *testing.T) {
	defer goleak.VerifyNone(t)
	waits := func(e *nbc.Engine, b nbc.Binding, on int) error {
		s, err := schedule.Parse(fmt.Sprintf("rank %d of 3 count 40 scratch 0\n0: recv in[0:40] from %d #0\n", e.Rank(), on))
		if err != nil {
			return err
		}
		plan, err := nbc.Compile(s)
		if err != nil {
			return err
		}
		b.Name, b.In = "gather", mem.Of(make([]float32, 40))
		r, err := e.Prepare(plan, b)
		if err != nil {
			return err
		}
		defer r.Close()
		return errors.Join(r.Start(), r.Wait(context.Background()))
	}
	first, later := nbc.Binding{Instance: 1, Deadline: time.Minute}, nbc.Binding{Instance: 2, Deadline: 2 * time.Second}
	errs := stuck(t, 3, strictly(time.Minute), asIs, func(e *nbc.Engine) error {
		switch e.Rank() {
		case 0:
			var g errgroup.Group
			g.Go(func() error { return waits(e, later, 1) })
			g.Go(func() error { return waits(e, first, 2) })
			return g.Wait()
		case 1:
			return waits(e, first, 0)
		}
		return outside(e)
	})
	for _, want := range []string{"gather#2 did not end", "rank 1 has not entered gather#2 (rank 1 waits for chunk 0", "rank 2 has not entered gather#1"} {
		if !strings.Contains(fmt.Sprint(errs[0]), want) {
			t.Errorf("rank 0 says %q, without %q", errs[0], want)
		}
	}
}

// TestAnExecutionOfAPersistentRequest tells the second execution from the first.
func TestAnExecutionOfAPersistentRequest(t *testing.T) {
	defer goleak.VerifyNone(t)
	errs := stuck(t, 2, strictly(time.Second), asIs, func(e *nbc.Engine) error {
		buf := mem.Of(make([]float32, 40))
		r, err := e.Prepare(chainReduce(t, e.Rank(), 2, 40, 10), nbc.Binding{Name: "reduce", Instance: 3, In: buf, Out: buf})
		if err != nil {
			return err
		}
		defer r.Close()
		if err := errors.Join(r.Start(), r.Wait(context.Background())); err != nil {
			return err
		}
		if e.Rank() == 1 {
			return outside(e)
		}
		return errors.Join(r.Start(), r.Wait(context.Background()))
	})
	if want := "rank 1 has not entered reduce#3 (the last it started is reduce#3)"; !strings.Contains(fmt.Sprint(errs[0]), want) {
		t.Errorf("rank 0 says %q, without %q", errs[0], want)
	}
}

// TestWithoutNotices there is the blocking edge alone, and calls that differ
// still do not mix.
func TestWithoutNotices(t *testing.T) {
	defer goleak.VerifyNone(t)
	errs := stuck(t, 2, strictly(300*time.Millisecond), func(t nbc.Transport) nbc.Transport { return mute{t} }, func(e *nbc.Engine) error {
		return reduction(t, e, nbc.Binding{Name: "reduce", Op: mem.Ops[e.Rank()]})
	})
	var deadline *nbc.DeadlineError
	if err := errors.Join(errs...); !errors.As(err, &deadline) || len(deadline.Peers) > 0 {
		t.Errorf("ended with %v", err)
	}
}

// TestTypesAndOps: no two calls that differ in type or op alone match.
func TestTypesAndOps(t *testing.T) {
	defer goleak.VerifyNone(t)
	errs := stuck(t, 2, strictly(time.Minute), asIs, func(e *nbc.Engine) error {
		b := nbc.Binding{Name: "reduce", Call: "reduce of 40 elements", Datatype: []mem.Datatype{mem.Float32, mem.Int32}[e.Rank()]}
		return reduction(t, e, b)
	})
	for r, err := range errs {
		for _, want := range []string{"rank 0 called reduce of 40 elements, f32 sum", "rank 1 called reduce of 40 elements, i32 sum"} {
			if !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("rank %d says %q, without %q", r, err, want)
			}
		}
	}
	var mismatch *nbc.MismatchError
	if err := errors.Join(errs...); !errors.As(err, &mismatch) {
		t.Errorf("ended with %v", err)
	}
}

// TestEdgesSayWhatIsMoved: what an edge is about comes before the message's own name, and so does its server.
func TestEdgesSayWhatIsMoved(t *testing.T) {
	for want, e := range map[string]nbc.Edge{
		"rank 2 waits for chunk 7 of reduce#812 from rank 1":                                   {},
		"rank 2 waits for rank 1 to take chunk 7 of reduce#812":                                {Sending: true},
		"rank 2 waits for slice 17 of fc6 from rank 1 (chunk 7 of reduce#812)":                 {About: "slice 17 of fc6"},
		"rank 2 waits for slice 17 of fc6 from rank 1, its server (chunk 7 of reduce#812)":     {About: "slice 17 of fc6", Server: true},
		"rank 2 waits for rank 1, its server, to take slice 17 of fc6 (chunk 7 of reduce#812)": {About: "slice 17 of fc6", Server: true, Sending: true},
	} {
		e.Rank, e.Peer, e.Op, e.Request = 2, 1, "chunk 7", "reduce#812"
		if got := e.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
