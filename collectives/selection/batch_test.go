package selection_test

import (
	"testing"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// A batch answers as its selector does, whatever it has been asked before.
func TestBatch(t *testing.T) {
	s := selection.Default()
	batch := s.Batch()
	for _, nodes := range [][]int{spec.NodesOf(4, 1), spec.NodesOf(2, 2), spec.NodesOf(1, 3)} {
		l := spec.LayoutOf(nodes)
		for _, buffers := range []selection.BufferKind{selection.Registered, selection.Unregistered} {
			for _, v := range []schedule.Collective{schedule.Reduce, schedule.Allreduce} {
				for _, bytes := range []int{4 << 10, 3 << 20, 48 << 20, 64 << 20} {
					q := selection.Query{Collective: v, Bytes: bytes, Type: mem.Float32, Buffers: buffers}
					got, err := batch.Select(l, q, spec.Spec{})
					if err != nil {
						t.Fatal(err)
					}
					want, err := s.Select(l, q, spec.Spec{})
					if err != nil {
						t.Fatal(err)
					}
					if got.Text != want.Text {
						t.Errorf("%v of %d bytes, %v, %v: the batch chooses %s, the selector %s", v, bytes, l, buffers, got.Text, want.Text)
					}
					took, alone := batch.Predict(l, q, want.Spec), selection.Predict(v, bytes, want.Spec, l, s.Model, buffers)
					if took != alone {
						t.Errorf("%v of %d bytes by %s, %v, %v: the batch predicts %v s, the selector %v s", v, bytes, want.Text, l, buffers, took, alone)
					}
				}
			}
		}
	}
}
