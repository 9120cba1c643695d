package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/train"
)

func trainCommand() *cli.Command {
	return &cli.Command{
		Name:  "train",
		Usage: "train a net as a Caffe solver file says",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "solver", Usage: "solver definition, `FILE`.prototxt", Required: true},
			&cli.StringFlag{Name: "snapshot", Usage: "go on from a snapshot, `FILE`.solverstate"},
			&cli.StringSliceFlag{Name: "weights", Usage: "start from the weights of `FILE`.caffemodel (several: comma-separated)"},
			&cli.IntFlag{Name: "local", Usage: "run `N` ranks in this process instead of mpirun's"},
			&cli.StringFlag{Name: "scal", Value: "strong", Usage: "strong: batch_size divided by the ranks; weak: batch_size per rank"},
			&cli.StringFlag{Name: "algorithm", Usage: "how parameters and gradients move, a `SPEC` such as chain:8/binomial or CB-8 (default: by size)"},
			&cli.StringFlag{Name: "table", Usage: "tuning table that says so by size, a `FILE` made by scaffe tune"},
			&cli.StringFlag{Name: "snapshot-format", Usage: "`FORMAT` of snapshots instead of the solver file's: binaryproto"},
			&cli.DurationFlag{Name: "deadline", Value: nbc.DefaultDeadline, Usage: "give up on a collective after this `TIME`, naming who is missing"},
			&cli.StringFlag{Name: "progress", Value: "auto", Usage: "progress bar: auto (on a terminal), always or never"},
		},
		Before: noArguments,
		Action: runTrain,
	}
}

func runTrain(c *cli.Context) error {
	var format []proto.SolverOption
	switch f := c.String("snapshot-format"); strings.ToUpper(f) {
	case "":
	case "BINARYPROTO":
		format = append(format, proto.WithSnapshotFormat(proto.SolverParameter_BINARYPROTO))
	default:
		return fmt.Errorf("--snapshot-format %q is not supported: use binaryproto", f)
	}
	cfg, opts, err := trainConfig(c)
	if err != nil {
		return err
	}
	return launch.Run(c.Context, opts, func(ctx context.Context, comm *collectives.Comm) error {
		return trainRank(ctx, comm, c, cfg, format...)
	})
}

// trainConfig reads the flags.
func trainConfig(c *cli.Context) (cfg train.Config, opts launch.Options, err error) {
	opts.Local = c.Int("local")
	opts.Engine.Deadline = c.Duration("deadline")
	if opts.Local < 0 || opts.Engine.Deadline <= 0 {
		return cfg, opts, fmt.Errorf("--local %d and --deadline %v must not be negative", opts.Local, opts.Engine.Deadline)
	}
	if cfg.Scaling, err = train.ParseScaling(c.String("scal")); err != nil {
		return cfg, opts, err
	}
	if spec := c.String("algorithm"); spec != "" {
		if cfg.Spec, err = collectives.ParseSpec(spec); err != nil {
			return cfg, opts, err
		}
	}
	opts.Collectives.Table, opts.Collectives.Measure = c.String("table"), true
	cfg.Snapshot, cfg.Weights = c.String("snapshot"), c.StringSlice("weights")
	return cfg, opts, nil
}

// trainRank is one rank's training.
func trainRank(ctx context.Context, comm *collectives.Comm, c *cli.Context, cfg train.Config, solverOptions ...proto.SolverOption) error {
	// Every rank reads the files: they may be missing on one node alone.
	var err error
	cfg.Solver, err = proto.ReadSolver(c.String("solver"), solverOptions...)
	if err = comm.Agree(ctx, err); err != nil {
		return err
	}
	r, err := newReporter(comm, cfg, c.String("progress"))
	if err = comm.Agree(ctx, err); err != nil {
		return err
	}
	cfg.Events = r.events()
	w, err := train.New(ctx, comm, cfg)
	if err != nil {
		return err
	}
	defer w.Close()
	r.started(w)
	summary, err := w.Run(ctx)
	r.ended(summary, err)
	return err
}
