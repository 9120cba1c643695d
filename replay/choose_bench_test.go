package replay

import (
	"testing"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/replay/workload"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// BenchmarkSchemes is what it costs to choose the schemes of a net's layers on eight nodes.
func BenchmarkSchemes(b *testing.B) {
	for _, name := range []string{"vgg19-titanx", "googlenet-titanx", "inception_v3-titanx", "resnet152-titanx"} {
		p, err := workload.Builtin(name)
		if err != nil {
			b.Fatal(err)
		}
		c := coordinator.Config{Workers: coordinator.Places{All: true}, Servers: coordinator.Places{All: true}, Nodes: spec.NodesOf(8, 1), MaySlice: coordinator.DefaultSlice}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Schemes(p, c, coordinator.Asked{Default: coordinator.Auto}, selection.Default()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
