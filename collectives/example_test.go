package collectives_test

import (
	"context"
	"fmt"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
)

// Four ranks of one process sum a vector; under mpirun, without Local, the
// same function is one rank of many.
func Example() {
	err := launch.Run(context.Background(), launch.Options{Local: 4}, func(ctx context.Context, comm *collectives.Comm) error {
		grad := []float32{1, 2, float32(comm.Rank())}
		sum := mem.Of(grad) // in place: send and receive buffer are the same
		if err := comm.Allreduce(ctx, sum, sum, mem.Float32, mem.Sum); err != nil {
			return err
		}
		if comm.Rank() == 0 {
			fmt.Println(grad)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [4 8 6]
}

// A non-blocking reduction along chains of two below a binomial tree. It goes
// on while the caller computes.
func ExampleComm_Ireduce() {
	how, err := spec.Parse("chain:2,chunk=64K/binomial")
	if err != nil {
		fmt.Println(err)
		return
	}
	err = launch.Run(context.Background(), launch.Options{Local: 4}, func(ctx context.Context, comm *collectives.Comm) error {
		send, recv := []float32{1, 10}, make([]float32, 2)
		r, err := comm.Ireduce(mem.Of(send), mem.Of(recv), mem.Float32, mem.Sum, 0, collectives.With(how))
		if err != nil {
			return err
		}
		defer r.Close()
		// ... compute ...
		if err := r.Wait(ctx); err != nil {
			return err
		}
		if comm.Rank() == 0 {
			fmt.Println(recv)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [4 40]
}

// Three ranks share out a sum: each gets its part of it, the middle one none.
func ExampleComm_ReduceScatter() {
	counts := []int{2, 0, 3}
	err := launch.Run(context.Background(), launch.Options{Local: 3}, func(ctx context.Context, comm *collectives.Comm) error {
		gradient := []float32{1, 2, 3, 4, 5}
		part := make([]float32, counts[comm.Rank()])
		if err := comm.ReduceScatter(ctx, mem.Of(gradient), mem.Of(part), counts, mem.Float32, mem.Sum); err != nil {
			return err
		}
		if comm.Rank() == 2 {
			fmt.Println(part)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [9 12 15]
}

// Three ranks have parts of different lengths, the middle one none. Everyone gets all of
// them, in place: what a rank gives lies where it belongs.
func ExampleComm_Allgather() {
	counts := []int{2, 0, 3}
	err := launch.Run(context.Background(), launch.Options{Local: 3}, func(ctx context.Context, comm *collectives.Comm) error {
		all := make([]float32, 5)
		own := [][]float32{all[:2], nil, all[2:]}[comm.Rank()]
		for i := range own {
			own[i] = float32(10*comm.Rank() + i)
		}
		if err := comm.Allgather(ctx, mem.Of(own), mem.Of(all), counts, mem.Float32); err != nil {
			return err
		}
		if comm.Rank() == 1 {
			fmt.Println(all)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [0 1 20 21 22]
}
