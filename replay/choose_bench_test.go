package replay

import (
	"fmt"
	"testing"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/replay/workload"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// BenchmarkSchemes is what it costs to choose the schemes of a net's layers on eight nodes and on sixteen.
func BenchmarkSchemes(b *testing.B) {
	for _, name := range []string{"vgg19-titanx", "googlenet-titanx", "inception_v3-titanx", "resnet50-titanx", "resnet152-titanx", "sockeye-p4000"} {
		p, err := workload.Builtin(name)
		if err != nil {
			b.Fatal(err)
		}
		for _, nodes := range []int{8, 16} {
			c := coordinator.Config{Workers: coordinator.Places{All: true}, Servers: coordinator.Places{All: true}, Nodes: spec.NodesOf(nodes, 1), MaySlice: coordinator.DefaultSlice}
			b.Run(fmt.Sprintf("%s/%d", name, nodes), func(b *testing.B) {
				for b.Loop() {
					if _, err := Schemes(p, c, coordinator.Asked{Default: coordinator.Auto}, selection.Default()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
