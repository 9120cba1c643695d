package nbc_test

import (
	"errors"
	"testing"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// Who asks is told once of each execution, how it ended, whoever waits for it beside, and may then start the next at once.
func TestStartTelling(t *testing.T) {
	ring(t, 2, func() nbc.Device { return host(t) }, func(e *nbc.Engine) error {
		in, out := make([]float32, 1000), make([]float32, 1000)
		r, err := e.Prepare(chainReduce(t, e.Rank(), 2, 1000, 100), nbc.Binding{
			Name: "reduce", Call: "reduce", In: mem.Of(in), Out: mem.Of(out), Datatype: mem.Float32, Op: mem.Sum, Comm: 1, Instance: 1,
		})
		if err != nil {
			return err
		}
		type end struct {
			round int
			err   error
		}
		told := make(chan end, 2)
		for round := range 500 {
			if err := r.StartTelling(func(err error) { told <- end{round, err} }); err != nil {
				return err
			}
			if round%2 == 1 {
				if err := r.Wait(t.Context()); err != nil {
					return err
				}
			}
			select {
			case e := <-told:
				if e.err != nil || e.round != round {
					return errors.Join(errors.New("another execution's end was told"), e.err)
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
		r.Close()
		if err := r.StartTelling(func(err error) { told <- end{err: err} }); err == nil {
			return errors.New("a closed request was started")
		}
		if len(told) != 0 {
			return errors.New("it was told of what nobody asked")
		}
		return nil
	})
}
