package sfb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/collectivestest"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/kernels/factors"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/syncer"
)

// Section 3.2's example: a layer of 4096×4096, 32 samples on each of 8 nodes. Every node
// sends and receives 3.67 million values in all, by the engine's count.
func TestPoseidon_BytesOfTheWorkedExample(t *testing.T) {
	const side, k, nodes = 4096, 32, 8
	for _, text := range []string{"linear", "ring"} {
		algorithm, err := spec.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		w := inproc.NewWorld(nodes, inproc.Options{})
		errs := collectivestest.World(nodes, w.Open, nbc.Options{}, func(c *collectives.Comm, _ *nbc.Engine) error {
			m := Matrix{Shape: factors.Shape{Out: side, In: side}, Rows: slices.Repeat([]int{k}, nodes), Passes: 1, Weights: schedule.Range{Len: side * side}}
			diff, err := mem.TryAlloc(4 * side * side)
			if err != nil {
				return err
			}
			s, err := New(c, syncer.Bucket{Diff: diff}, []Matrix{m}, collectives.With(algorithm))
			if err != nil {
				return err
			}
			defer s.Close()
			before := c.Payload()
			if err := s.Push(); err != nil {
				return err
			}
			if err := s.matrices[0].gather.Wait(context.Background()); err != nil {
				return err
			}
			s.next = 0 // what is counted has moved; the product is not computed
			after := c.Payload()
			values := (after.Sent - before.Sent + after.Received - before.Received) / 4
			if values != 3_670_016 { // 2K(P1−1)(M+N)
				return fmt.Errorf("%s: %d values", text, values)
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	}
}
