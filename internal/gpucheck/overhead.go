package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/internal/stats"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/train"
)

// overhead compares a rank of one, with the whole runtime, with the solver alone (Poseidon, section 5.1).
func (c *Check) overhead(ctx context.Context) {
	const most = 1
	model, batch, what := "alexnet", 256, "the runtime over the solver alone, alexnet, batches of 256, one rank"
	if c.standIn {
		model, batch, what = "", 2, "the runtime over the solver alone, one rank"
	}
	path, err := c.solver("overhead", model, batch, 1_000_000)
	var alone, runtime float64
	if err == nil {
		alone, runtime, err = inTurn(ctx, path)
	}
	if err != nil {
		c.failed(what, fmt.Sprintf("≤ %d %%", most), err)
		return
	}
	c.ratio(what, fmt.Sprintf("%.2f ms over %.2f ms", 1e3*runtime, 1e3*alone), 100*(runtime/alone-1), false, most, "%")
}

// inTurn trains on the first GPU by the solver alone and by a rank, some iterations in turn, and returns how long one of each takes.
// The loss ends an iteration, so what the GPU has still to do then counts for the other one, on both sides alike.
func inTurn(ctx context.Context, path string) (alone, runtime float64, err error) {
	d, err := gpu.Open(0)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := d.UseLibraries(cuda.F32); err != nil {
		return 0, 0, err
	}
	f, err := proto.ReadSolver(path)
	if err != nil {
		return 0, 0, err
	}
	s, err := solver.New(f, solver.Options{GPU: d})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if f, err = proto.ReadSolver(path); err != nil {
		return 0, 0, err
	}
	err = launch.Run(ctx, launch.Options{Local: 1}, func(ctx context.Context, comm *collectives.Comm) (err error) {
		w, err := train.New(ctx, comm, train.Config{Solver: f, Device: train.Device{CUDA: true, List: []int{0}}})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.Close()) }()
		const rounds, iterations = 12, 4
		var took [2][]float64
		for round := range rounds {
			for k, step := range [2]func(context.Context, int) error{s.Step, w.Step} {
				begin := time.Now()
				if err := step(ctx, iterations); err != nil {
					return err
				}
				if round > 0 { // the first is a warm-up
					took[k] = append(took[k], time.Since(begin).Seconds()/iterations)
				}
			}
		}
		alone, runtime = stats.Median(took[0]).Median, stats.Median(took[1]).Median
		return nil
	})
	return alone, runtime, err
}
