package replay_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/replay"
	"github.com/scaffe/scaffe/replay/workload"
)

// Two designs exchange the gradients of a small net between two ranks of this
// process.
func ExampleRun() {
	p := &workload.Profile{
		Name: "small", Net: "small", Batch: 8, Update: 10 * time.Microsecond,
		Layers: []workload.Layer{
			{Name: "conv1", Type: "Convolution", Params: []int{800, 32}, Forward: 100 * time.Microsecond, Backward: 200 * time.Microsecond},
			{Name: "ip1", Type: "InnerProduct", Params: []int{5000, 10}, Forward: 50 * time.Microsecond, Backward: 100 * time.Microsecond},
		},
	}
	err := launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
		res, err := replay.Run(ctx, comm, replay.Config{
			Profile: p, Designs: []exchange.Design{exchange.SCB, exchange.SCOBR}, Iterations: 4, Check: true,
		})
		if err != nil || comm.Rank() != 0 {
			return err
		}
		for _, row := range res.Rows {
			fmt.Printf("%s: %d iterations\n", row.Design, row.Iterations)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// SC-B: 4 iterations
	// SC-OBR: 4 iterations
}
