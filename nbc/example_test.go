package nbc_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/scaffe/scaffe/chain"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/schedule"
)

// Three ranks of one process reduce to rank 0 along a chain, in chunks of two
// elements.
func Example() {
	const size, count = 3, 6
	world := inproc.NewWorld(size, inproc.Options{})
	reduce := func(rank int) ([]float32, error) {
		cpu, err := kernels.NewCPU()
		if err != nil {
			return nil, err
		}
		e, err := nbc.Start(world.Open(rank), device.CPU(cpu), nbc.Options{})
		if err != nil {
			return nil, err
		}
		defer e.Close()

		b := schedule.NewBuilder(rank, size, count)
		chain.Reduce(b, schedule.Params{Rank: rank, Size: size, Count: count, Chunk: 2})
		plan, err := nbc.Compile(b.Schedule())
		if err != nil {
			return nil, err
		}

		in, out := []float32{0, 1, 2, 3, 4, 5}, make([]float32, count)
		r, err := e.Prepare(plan, nbc.Binding{
			Name: "reduce", In: mem.Of(in), Out: mem.Of(out),
			Datatype: mem.Float32, Op: mem.Sum, Instance: 1,
		})
		if err != nil {
			return nil, err
		}
		defer r.Close()
		if err := r.Start(); err != nil {
			return nil, err
		}
		return out, r.Wait(context.Background())
	}

	var wg sync.WaitGroup
	for rank := range size {
		wg.Go(func() {
			if sum, err := reduce(rank); err != nil || rank == 0 {
				fmt.Println(sum, err)
			}
		})
	}
	wg.Wait()
	// Output:
	// [0 3 6 9 12 15] <nil>
}
