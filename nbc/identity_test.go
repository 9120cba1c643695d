package nbc_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// TestOneIdentityOneRequest: what could not be told apart is refused when it is
// made, not when it runs.
func TestOneIdentityOneRequest(t *testing.T) {
	ring(t, 1, func() nbc.Device { return host(t) }, func(e *nbc.Engine) error {
		buf := mem.Of(make([]float32, 100))
		prepare := func(comm uint64, instance uint32) (*nbc.Request, error) {
			return e.Prepare(chainReduce(t, 0, 1, 100, 10), nbc.Binding{Name: "reduce", In: buf, Out: buf, Comm: comm, Instance: instance})
		}
		first, err := prepare(1<<40, 7)
		if err != nil {
			return err
		}
		refused := func(err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), "reduce#7: another open request is collective 7 of communicator 1099511627776: close it first") {
				t.Errorf("the second of one identity: %v", err)
			}
		}
		_, err = prepare(1<<40, 7)
		refused(err)
		persistent, err := prepare(1<<40, 7|nbc.Persistent)
		if err != nil {
			return err
		}
		other, err := prepare(1<<41, 7)
		if err != nil {
			return err
		}
		defer other.Close()
		refused(func() error {
			moved, err := prepare(1<<40, 8)
			if err == nil {
				defer moved.Close()
				moved.Detach()
				err = moved.RunAs(context.Background(), 7, false)
			}
			return err
		}())
		first.Close()
		first.Close()
		persistent.Close()
		if err := first.Start(); err == nil {
			t.Error("a closed request was started")
		}
		again, err := prepare(1<<40, 7)
		if err != nil {
			return err
		}
		again.Detach()
		if err := again.RunAs(context.Background(), 9, true); err != nil {
			return err
		}
		third, err := prepare(1<<40, 7) // which Detach gave back
		if err != nil {
			return err
		}
		again.Close()
		third.Close()
		return nil
	})
}

// TestCloseInFlight: a request that is closed while it runs gives its number back
// when it ends.
func TestCloseInFlight(t *testing.T) {
	const n = 2
	ring(t, n, func() nbc.Device { return host(t) }, func(e *nbc.Engine) error {
		buf := mem.Of(make([]float32, 100))
		prepare := func() (*nbc.Request, error) {
			return e.Prepare(chainReduce(t, e.Rank(), n, 100, 10), nbc.Binding{Name: "reduce", In: buf, Out: buf, Instance: 1})
		}
		r, err := prepare()
		if err != nil {
			return err
		}
		if err := r.Start(); err != nil {
			return err
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.Wait(ended)
		r.Close()
		if err := r.Wait(context.Background()); err != nil {
			return err
		}
		next, err := prepare()
		if err != nil {
			return err
		}
		defer next.Close()
		return errors.Join(next.Start(), next.Wait(context.Background()))
	})
}
