package launch_test

import (
	"context"
	"fmt"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
)

// The program of README.md, as four ranks in this process.
func ExampleRun() {
	const n = 1 << 20
	ctx := context.Background()
	err := launch.Run(ctx, launch.Options{Local: 4}, func(ctx context.Context, comm *collectives.Comm) error {
		grad, err := comm.Alloc(mem.Float32.Bytes(n)) // memory that a node's ranks share
		if err != nil {
			return err
		}
		v := mem.Float32s(grad)
		for i := range v {
			v[i] = float32(comm.Rank())
		}
		if err := comm.Allreduce(ctx, grad, grad, mem.Float32, mem.Sum); err != nil {
			return err
		}
		if comm.Rank() == 0 {
			fmt.Println(v[n-1])
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// 6
	// <nil>
}
