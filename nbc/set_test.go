package nbc_test

import (
	"fmt"
	"testing"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// A set returns each of its requests once, and keeps no ends of executions before, of which the last is awaited without it.
func TestASetForgetsWhatEndedBefore(t *testing.T) {
	for _, size := range []int{1, 3} {
		ring(t, 2, func() nbc.Device { return host(t) }, func(e *nbc.Engine) error {
			requests := make([]*nbc.Request, size)
			for i := range requests {
				r, err := e.Prepare(chainReduce(t, e.Rank(), 2, 1000, 100), nbc.Binding{
					Name: "reduce", Call: "reduce", In: mem.Of(make([]float32, 1000)), Out: mem.Of(make([]float32, 1000)),
					Datatype: mem.Float32, Op: mem.Sum, Comm: 1, Instance: uint32(1 + i),
				})
				if err != nil {
					return err
				}
				requests[i] = r
			}
			s := nbc.NewSet(requests...)
			defer s.Close()
			for range 100 {
				if err := s.Start(); err != nil {
					return err
				}
				seen := make([]bool, size)
				for range requests {
					i, err := s.Next(t.Context())
					if err != nil {
						return err
					}
					if seen[i] {
						return fmt.Errorf("request %d is returned twice", i)
					}
					seen[i] = true
				}
			}
			if n := nbc.Kept(s); n > 2*size { // an end may come after the next Start
				return fmt.Errorf("after 100 executions of %d requests %d ends are kept", size, n)
			}
			return nil
		})
	}
}
