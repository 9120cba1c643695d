package nbc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/schedule"
)

// blockingLibrary is a transport over a library whose collectives block: call is made
// within Begin.
type blockingLibrary struct {
	nbc.Transport
	call  func()
	ended *[]nbc.Completion
}

func (l blockingLibrary) Supports(nbc.LibraryCall) error { return nil }

func (l blockingLibrary) Begin(tok nbc.Token, c nbc.LibraryCall) error {
	if !c.Blocking {
		return errors.New("the non-blocking form was asked for")
	}
	l.call()
	*l.ended = append(*l.ended, nbc.Completion{Token: tok})
	return nil
}

func (l blockingLibrary) Poll(done []nbc.Completion) (int, error) {
	if n := copy(done, *l.ended); n > 0 {
		*l.ended = (*l.ended)[n:]
		return n, nil
	}
	return l.Transport.Poll(done)
}

// blocked starts n engines over such transports.
func blocked(t *testing.T, n int, opts nbc.Options, call func()) []*nbc.Engine {
	t.Helper()
	w := inproc.NewWorld(n, inproc.Options{})
	var engines []*nbc.Engine
	for r := range n {
		e, err := nbc.Start(func() (nbc.Transport, error) {
			inner, err := w.Open(r)()
			return blockingLibrary{inner, call, new([]nbc.Completion)}, err
		}, host(t), opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		engines = append(engines, e)
	}
	return engines
}

func blockingCall(t *testing.T, e *nbc.Engine) *nbc.Request {
	t.Helper()
	r, err := e.PrepareLibrary(nbc.LibraryCall{Collective: schedule.Allreduce, Blocking: true},
		nbc.Binding{Name: "allreduce", Call: "allreduce of 3 elements", Instance: 12})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestWatchdog: a rank that does not come out of a blocking call of the library ends,
// and says which call it was.
func TestWatchdog(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	said := make(chan error, 1)
	release := make(chan struct{})
	opts := nbc.Options{Deadline: 50 * time.Millisecond, Exit: func(err error) {
		said <- err
		close(release) // a process would end here
	}}
	e := blocked(t, 1, opts, func() { <-release })[0]
	r := blockingCall(t, e)
	defer r.Close()
	if err := r.Run(context.Background()); err != nil {
		t.Error(err)
	}
	text := fmt.Sprint(<-said)
	for _, want := range []string{"rank 0", "allreduce#12", "allreduce of 3 elements", "more than 50ms"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is without %q", text, want)
		}
	}
}

// TestABlockingCallComesAlone: it begins when nothing else is under way on its rank,
// which it would hold up.
func TestABlockingCallComesAlone(t *testing.T) {
	var calls atomic.Int32
	engines := blocked(t, 2, nbc.Options{}, func() { calls.Add(1) })
	var reductions []*nbc.Request
	for _, e := range engines {
		b := reductionOf(40)
		p, err := plan(e.Rank(), 2, 40, 10)
		if err != nil {
			t.Fatal(err)
		}
		r, err := e.Prepare(p, b)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		reductions = append(reductions, r)
	}
	root := engines[0]
	if err := reductions[0].Start(); err != nil {
		t.Fatal(err)
	}
	r := blockingCall(t, root)
	defer r.Close()
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	for range 100 { // turns of the loop
		if err := root.Do(context.Background(), func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if n := calls.Load(); n != 0 {
		t.Fatalf("%d calls began beside a reduction", n)
	}
	if err := errors.Join(reductions[1].Start(), reductions[0].Wait(context.Background()), r.Wait(context.Background())); err != nil {
		t.Fatal(err)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
}
