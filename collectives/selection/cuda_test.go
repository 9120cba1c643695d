package selection

import (
	"slices"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// On a GPU's memory chunks are large, and nothing gives a call to the MPI library.
func TestCUDA(t *testing.T) {
	const mib = 1 << 20
	for _, l := range []spec.Layout{{Ranks: 2, Nodes: 1, PPN: 2}, {Ranks: 8, Nodes: 4, PPN: 2}} {
		for _, v := range []schedule.Collective{schedule.Reduce, schedule.Bcast, schedule.Allreduce} {
			q := Query{Collective: v, Bytes: 256 * mib, Type: mem.Float32, Buffers: CUDA, Blocking: true, Library: true}
			var chunks []int
			for _, c := range Default().Candidates(l, q) {
				chunks = append(chunks, c.Spec.Levels[len(c.Spec.Levels)-1].Chunk)
			}
			if slices.Max(chunks) != 16*mib || slices.Min(chunks) < mib/2 {
				t.Errorf("%v, %v: chunks from %d to %d", v, l, slices.Min(chunks), slices.Max(chunks))
			}
			q.Bytes = 64
			for _, c := range Default().Candidates(l, q) {
				if c.Spec.IsLibrary() {
					t.Errorf("%v of 64 bytes, %v: the library is a candidate", v, l)
				}
			}
		}
	}
}

// A table has rules for it; one that names the library is for others.
func TestCUDATable(t *testing.T) {
	const text = "scaffe-table 2\n" +
		"collective=allreduce spec=mpi\n" +
		"collective=allreduce buffer=cuda spec=ring,chunk=16M\n" +
		"collective=allreduce buffer=unregistered spec=binomial\n"
	table, err := ParseTable("t", text)
	if err != nil {
		t.Fatal(err)
	}
	if table.String() != text {
		t.Errorf("read and written again:\n%s", table)
	}
	s := Default()
	s.Sources = []Source{{Name: "t", Table: table}}
	l := spec.Layout{Ranks: 8, Nodes: 4, PPN: 2}
	q := Query{Collective: schedule.Allreduce, Bytes: 1 << 20, Type: mem.Float32, Buffers: CUDA, Blocking: true, Library: true}
	if c, err := s.Select(l, q, spec.Spec{}); err != nil || c.Text != "ring,chunk=16M" {
		t.Errorf("%v, %v", c, err)
	}
	library, err := spec.Parse(spec.Library)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Select(l, q, library); err == nil || !strings.Contains(err.Error(), "cuda memory") {
		t.Errorf("a call that asks for the library: %v", err)
	}
	if _, err := Always(library).Select(l, q, spec.Spec{}); err == nil || !strings.Contains(err.Error(), "cuda memory") {
		t.Errorf("--algorithm mpi: %v", err)
	}
}
