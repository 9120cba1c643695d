package selection_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// What the cost model chooses, and in how many microseconds it thinks that this is
// done, for layouts and sizes that people have; -rewrite writes it anew. Each case is
//
//	select nodes=4 ppn=2 cores=2
//	inter.bandwidth=1.25e+08
//	----
//	…a line for every collective, size and kind of buffers
func TestGolden(t *testing.T) {
	datadriven.RunTest(t, "testdata/selections", func(t *testing.T, d *datadriven.TestData) string {
		var nodes, ppn, cores int
		d.ScanArgs(t, "nodes", &nodes)
		d.ScanArgs(t, "ppn", &ppn)
		d.ScanArgs(t, "cores", &cores)
		s := selection.Default()
		for _, line := range strings.Fields(d.Input) {
			name, value, _ := strings.Cut(line, "=")
			if err := s.Model.Set(name, value); err != nil {
				d.Fatalf(t, "%v", err)
			}
		}
		s.Model = s.Model.On(cores)
		l := spec.LayoutOf(spec.NodesOf(nodes, ppn))
		var b strings.Builder
		for _, c := range schedule.Collectives {
			for _, bytes := range []int{4, 4 << 10, 64 << 10, 1 << 20, 64 << 20} {
				for _, kind := range []selection.BufferKind{selection.Registered, selection.Unregistered} {
					q := selection.Query{Collective: c, Bytes: bytes, Type: mem.Float32, Buffers: kind, Blocking: true, Library: kind == selection.Registered}
					all := s.Candidates(l, q)
					fmt.Fprintf(&b, "%v %s %v: %v, %.5g µs; next %v, %.5g µs\n", c, units.FormatBytes(bytes), kind, all[0].Spec, 1e6*all[0].Seconds, all[min(1, len(all)-1)].Spec, 1e6*all[min(1, len(all)-1)].Seconds)
				}
			}
		}
		return b.String()
	})
}
