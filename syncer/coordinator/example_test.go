package coordinator_test

import (
	"fmt"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// Poseidon's worked example: a layer of 4096×4096 on eight nodes.
func ExampleBook_BestScheme() {
	b, err := coordinator.New(coordinator.Config{
		Nodes: spec.NodesOf(8, 1), Batch: []int{32, 32, 32, 32, 32, 32, 32, 32},
		Workers: coordinator.Places{All: true}, Servers: coordinator.Places{All: true},
		Layers: []coordinator.Layer{{
			Name: "fc7", Type: coordinator.FC, Rows: 4096, Cols: 4096, Params: []coordinator.Range{{Len: 4096 * 4096}},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	scheme, err := b.BestScheme("fc7")
	ps, sfb := coordinator.PSCost(4096*4096, 8, 8), coordinator.SFBCost(4096, 4096, 32, 8)
	fmt.Printf("%v: %.2f million values instead of %.1f (%v)\n", scheme, sfb.Both/1e6, ps.Both/1e6, err)
	// Output: sfb: 3.67 million values instead of 58.7 (<nil>)
}
