package nbc_test

import (
	"errors"
	"testing"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// Who asks is told once of each execution: before it has ended, or after, and how.
func TestTell(t *testing.T) {
	ring(t, 2, func() nbc.Device { return host(t) }, func(e *nbc.Engine) error {
		in, out := make([]float32, 1000), make([]float32, 1000)
		r, err := e.Prepare(chainReduce(t, e.Rank(), 2, 1000, 100), nbc.Binding{
			Name: "reduce", Call: "reduce", In: mem.Of(in), Out: mem.Of(out), Datatype: mem.Float32, Op: mem.Sum, Comm: 1, Instance: 1,
		})
		if err != nil {
			return err
		}
		told := make(chan error, 2)
		for round := range 4 {
			if err := r.Start(); err != nil {
				return err
			}
			if round%2 == 1 {
				if err := r.Wait(t.Context()); err != nil {
					return err
				}
			}
			r.Tell(func(err error) { told <- err })
			select {
			case err := <-told:
				if err != nil {
					return err
				}
			case <-time.After(time.Minute):
				return errors.New("nobody was told")
			}
		}
		if err := r.Start(); err != nil { // of which nobody asked
			return err
		}
		if err := r.Wait(t.Context()); err != nil {
			return err
		}
		if len(told) != 0 {
			return errors.New("it was told twice")
		}
		return nil
	})
}
