package train_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/train"
)

const exampleSolver = `
net_param {
  layer { name: "data" type: "DummyData" top: "data" top: "target" dummy_data_param {
    shape { dim: 4 dim: 3 } shape { dim: 4 dim: 1 }
    data_filler { type: "constant" value: 1 } data_filler { type: "constant" value: 2 } } }
  layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 1 } }
  layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "target" top: "loss" }
}
base_lr: 0.1
lr_policy: "fixed"
max_iter: 20
snapshot_after_train: false
`

// Two workers in one process fit a line to a constant.
func Example() {
	dir, err := os.MkdirTemp("", "train")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "solver.prototxt")
	if err := os.WriteFile(path, []byte(exampleSolver), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	err = launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
		file, err := proto.ReadSolver(path)
		if err = comm.Agree(ctx, err); err != nil { // every rank reads it, all go on or none
			return err
		}
		w, err := train.New(ctx, comm, train.Config{Solver: file, Events: train.Events{
			OnProgress: func(p train.Progress) {
				if p.Iter == 0 || p.Iter == 19 {
					fmt.Printf("iteration %d: loss %.3f\n", p.Iter, p.Loss)
				}
			},
		}})
		if err != nil {
			return err
		}
		defer w.Close()
		_, err = w.Run(ctx)
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// iteration 0: loss 2.000
	// iteration 19: loss 0.000
}
