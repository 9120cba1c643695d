package selection_test

import (
	"testing"

	"pgregory.net/rapid"

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

// What is chosen is what all candidates lead to, though those that cannot be it are not simulated to their end.
func TestChosenIsTheFirstCandidate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := selection.Default()
		s.Model.Inter.Latency *= rapid.Float64Range(0.1, 10).Draw(t, "latency")
		s.Model.Inter.Bandwidth *= rapid.Float64Range(0.1, 10).Draw(t, "bandwidth")
		s.Model.Cores = float64(rapid.IntRange(0, 4).Draw(t, "cores"))
		l := spec.LayoutOf(spec.NodesOf(rapid.IntRange(1, 6).Draw(t, "nodes"), rapid.IntRange(1, 3).Draw(t, "ranks of a node")))
		q := selection.Query{
			Collective: rapid.SampledFrom([]schedule.Collective{schedule.Reduce, schedule.Bcast, schedule.Allreduce, schedule.Allgather, schedule.ReduceScatter}).Draw(t, "collective"),
			Bytes:      4 << rapid.IntRange(0, 23).Draw(t, "size"), Type: mem.Float32, Library: rapid.Bool().Draw(t, "library"),
		}
		got, err := s.Select(l, q, spec.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		if want := s.Candidates(l, q)[0].Spec.String(); got.Text != want {
			t.Errorf("%s is chosen, the first candidate is %s", got.Text, want)
		}
	})
}
