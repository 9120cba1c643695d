package tune_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
	"github.com/scaffe/scaffe/tune"
)

// A sweep on four ranks of this process; under mpirun the ranks are mpirun's.
func ExampleSweep() {
	err := launch.Run(context.Background(), launch.Options{Local: 4}, func(ctx context.Context, comm *collectives.Comm) error {
		res, err := tune.Sweep(ctx, comm, tune.Config{Out: "scaffe.table", Budget: 10 * time.Second})
		if err != nil || comm.Rank() != 0 {
			return err
		}
		page, err := res.Write()
		fmt.Println("wrote scaffe.table and", page)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// Which spec would reduce 64 MiB over four nodes, by the cost model alone?
func ExampleExplain() {
	s := &selection.Selector{Model: sim.Default(), From: "default parameters"}
	q := tune.Question{
		Query: selection.Query{Collective: schedule.Reduce, Bytes: 64 << 20, Type: mem.Float32, Blocking: true},
		Nodes: spec.NodesOf(4, 1),
	}
	if err := tune.Explain(os.Stdout, s, q); err != nil {
		log.Fatal(err)
	}
}

func ExampleDuration() {
	fmt.Println(tune.Duration(537 * time.Millisecond))
	fmt.Println(tune.Duration(12340 * time.Microsecond))
	// Output:
	// 537 ms
	// 12.3 ms
}
