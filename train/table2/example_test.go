package table2_test

import (
	"context"
	"log"
	"os"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/train"
	"github.com/scaffe/scaffe/train/table2"
)

// The paper's rows, 20 iterations of each, on two ranks of this process.
func ExampleRun() {
	err := launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
		file, err := proto.ReadSolver("examples/mnist/lenet_solver.prototxt")
		if err != nil {
			return err
		}
		rows, err := table2.Rows(nil, nil, comm.HasLibrary())
		if err != nil {
			return err
		}
		r, err := table2.Run(ctx, comm, train.Config{Solver: file}, rows, table2.Options{Iterations: 20})
		if err != nil || comm.Rank() != 0 {
			return err
		}
		return r.Write(os.Stdout, report.Text)
	})
	if err != nil {
		log.Fatal(err)
	}
}
