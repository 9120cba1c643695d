package replay_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/replay"
	"github.com/scaffe/scaffe/replay/workload"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// What auto chooses for built-in profiles, how many choices it weighs, and what it predicts, as it was recorded; -rewrite
// writes it anew. Of a case
//
//	auto profile=vgg19-titanx servers=all
//
// there is a line for each number of nodes and each network.
func TestRecordedChoices(t *testing.T) {
	if testing.Short() {
		t.Skip("these are predictions, a second for each, and ten with the race detector")
	}
	datadriven.RunTest(t, "testdata/choices", func(t *testing.T, d *datadriven.TestData) string {
		var profile, serving string
		d.ScanArgs(t, "profile", &profile)
		d.ScanArgs(t, "servers", &serving)
		p, err := workload.Builtin(profile)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, nodes := range []int{8, 16} {
			for _, rate := range []float64{1.25e9, 1.25e8} { // bytes a second
				s := selection.Default()
				s.Model.Inter.Bandwidth = rate
				c := coordinator.Config{Nodes: spec.NodesOf(nodes, 1), Workers: coordinator.Places{All: true}, Servers: coordinator.Places{All: true}, MaySlice: coordinator.DefaultSlice}
				if serving == "apart" {
					c.Workers, c.Servers = coordinator.Places{}, coordinator.Places{}
					for r := range nodes {
						who := &c.Workers
						if r >= nodes/2 {
							who = &c.Servers
						}
						who.Ranks = append(who.Ranks, r)
					}
				}
				a, err := replay.Schemes(p, c, coordinator.Asked{Default: coordinator.Auto}, s)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&b, "%d nodes, %g Gbit/s: %v, slice %v; %d weighed, %v, with slices %v\n", nodes, 8*rate/1e9, a.Chosen(), a.Book.Slice, a.Iterations.Tried, a.Iterations.Chosen, a.Iterations.Cut)
			}
		}
		return b.String()
	})
}
