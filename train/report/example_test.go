package report_test

import (
	"context"
	"log"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/train"
	"github.com/scaffe/scaffe/train/report"
)

// A run with a progress bar and a log for programs.
func Example() {
	err := launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
		file, err := proto.ReadSolver("examples/mnist/lenet_solver.prototxt")
		if err != nil {
			return err
		}
		cfg := train.Config{Solver: file}
		r, err := report.New(comm, cfg, report.Options{Progress: "auto", LogJSON: "log.jsonl"})
		if err != nil {
			return err
		}
		cfg.Events = r.Events()
		w, err := train.New(ctx, comm, cfg)
		if err != nil {
			return err
		}
		defer w.Close()
		if err := r.Started(w); err != nil {
			return err
		}
		summary, err := w.Run(ctx)
		r.Ended(summary, err)
		if err != nil {
			return err
		}
		return r.Close()
	})
	if err != nil {
		log.Fatal(err)
	}
}
