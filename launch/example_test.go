package launch_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
)

// One rank fails; the others, who wait for it, end too, and there is one
// message for people.
func Example() {
	err := launch.Run(context.Background(), launch.Options{Local: 3}, func(ctx context.Context, comm *collectives.Comm) error {
		if comm.Rank() == 2 {
			return errors.New("train.list is missing")
		}
		v := mem.Of([]float32{1})
		return comm.Allreduce(ctx, v, v, mem.Float32, mem.Sum)
	})
	fmt.Println(err)
	// Output:
	// rank 2: train.list is missing
}
