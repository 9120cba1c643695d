package exchange_test

import (
	"context"
	"fmt"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
)

// Two iterations of plain gradient descent on two workers, on a net of two
// layers whose gradients are 1 and the rank.
func Example() {
	err := launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
		data, diff := []float32{10, 10}, []float32{0, 0}
		x, err := exchange.New(ctx, comm, exchange.Config{
			Design: exchange.SCOBR, Bucket: 1, // a bucket per layer
			Layers: []exchange.Layer{{Name: "ip1", Params: []exchange.Range{{Off: 0, Len: 1}}}, {Name: "ip2", Params: []exchange.Range{{Off: 1, Len: 1}}}},
			Data:   mem.Of(data), Diff: mem.Of(diff),
			OnSum: func(_ int, s exchange.Sum) error {
				for i := s.Off; i < s.End(); i++ {
					if s.Updates {
						data[i] -= diff[i]
					}
					diff[i] = 0
				}
				return nil
			},
		})
		if err != nil {
			return err
		}
		defer x.Close()
		for iter := range 2 {
			if err := x.Start(iter); err != nil {
				return err
			}
			for layer := range 2 {
				if err := x.BeforeForward(layer); err != nil { // its parameters are current now
					return err
				}
			}
			for layer := 1; layer >= 0; layer-- {
				diff[layer] = []float32{1, float32(comm.Rank())}[layer]
				if err := x.AfterBackward(layer); err != nil {
					return err
				}
			}
			if err := x.Finish(); err != nil {
				return err
			}
		}
		if err := x.Current(); err != nil {
			return err
		}
		if comm.Rank() == 1 {
			fmt.Println(data)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [6 8]
}
