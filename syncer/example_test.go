package syncer_test

import (
	"context"
	"fmt"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/syncer"
)

// One iteration of plain gradient descent on two workers.
func Example() {
	err := launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
		data, diff := []float32{10, 10}, []float32{1, float32(comm.Rank())}
		s, err := syncer.Reduce(comm, syncer.Bucket{Name: "ip1", Data: mem.Of(data), Diff: mem.Of(diff)}, 0)
		if err != nil {
			return err
		}
		defer s.Close()
		if err := s.Push(); err != nil {
			return err
		}
		for range s.Parts() {
			i, err := s.Pushed(ctx)
			if err != nil {
				return err
			}
			if p := s.Parts()[i]; p.Updates {
				for k := p.Off; k < p.End(); k++ {
					data[k] -= diff[k]
				}
			}
			if err := s.Pull(i); err != nil {
				return err
			}
		}
		if err := s.Pulled(ctx); err != nil {
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
	// [8 9]
}
