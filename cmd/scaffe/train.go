package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/design"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/trace"
	"github.com/scaffe/scaffe/train"
)

func trainCommand() *cli.Command {
	return &cli.Command{
		Name:  "train",
		Usage: "train a net as a Caffe solver file says",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "solver", Usage: "solver definition, `FILE`.prototxt", Required: true},
			&cli.StringFlag{Name: "snapshot", Usage: "go on from a snapshot, `FILE`.solverstate"},
			&cli.StringSliceFlag{Name: "weights", Usage: "start from the weights of `FILE`.caffemodel (several: comma-separated)"},
			&cli.IntFlag{Name: "local", Usage: "run `N` ranks in this process instead of mpirun's"},
			&cli.StringFlag{Name: "scal", Value: "strong", Usage: "strong: batch_size divided by the ranks; weak: batch_size per rank"},
			&cli.StringFlag{Name: "design", Value: design.SCOBR.String(), Usage: "when they move: SC-B, SC-OB-naive, SC-OB or SC-OBR"},
			&cli.StringFlag{Name: "aggregate", Value: design.Reduce.String(), Usage: "reduce: the root updates and broadcasts; allreduce: every rank updates"},
			&cli.StringFlag{Name: "bucket", Value: "auto", Usage: "gather neighbouring layers until they have `SIZE` bytes, such as 1M (default: by the network)"},
			&cli.StringFlag{Name: "algorithm", Usage: "how parameters and gradients move, a `SPEC` such as chain:8/binomial or CB-8, or tuned: by size (default)"},
			&cli.StringFlag{Name: "table", Usage: "tuning table that says so by size, a `FILE` made by scaffe tune"},
			&cli.StringFlag{Name: "snapshot-format", Usage: "`FORMAT` of snapshots instead of the solver file's: binaryproto"},
			&cli.StringFlag{Name: "on-nan", Value: "stop", Usage: "where the loss or a gradient is NaN or infinite: stop, or skip that update"},
			&cli.StringFlag{Name: "trace", Usage: "write what every rank did when, a `FILE`.json for scaffe trace, Perfetto or chrome://tracing"},
			&cli.StringFlag{Name: "trace-iterations", Usage: "keep these, `FIRST:END` (default: the first 200)"},
			&cli.DurationFlag{Name: "deadline", Value: nbc.DefaultDeadline, Usage: "give up on a collective after this `TIME`, naming who is missing"},
		}, reportFlags(), table2Flags()),
		Before: noArguments,
		Action: runTrain,
	}
}

func runTrain(c *cli.Context) error {
	t, err := newTraining(c)
	if err != nil {
		return err
	}
	return launch.Run(c.Context, t.launch, t.rank)
}

// tuned names what is selected for each size, where no spec is asked for.
const tuned = "tuned"

// training is what the flags ask for.
type training struct {
	flags  *cli.Context
	solver string
	format []proto.SolverOption
	config train.Config // alike for every rank
	launch launch.Options
	trace  string // file, "" for none
	traced trace.Options
	table2 *table2 // nil: train
}

// newTraining reads the flags.
func newTraining(c *cli.Context) (*training, error) {
	t := &training{flags: c, solver: c.String("solver"), trace: c.String("trace")}
	t.config.Snapshot, t.config.Weights = c.String("snapshot"), c.StringSlice("weights")
	t.launch.Collectives.Table, t.launch.Collectives.Measure = c.String("table"), true
	t.launch.Local, t.launch.Engine.Deadline = c.Int("local"), c.Duration("deadline")
	if t.launch.Local < 0 || t.launch.Engine.Deadline <= 0 {
		return nil, fmt.Errorf("--local %d and --deadline %v must not be negative", t.launch.Local, t.launch.Engine.Deadline)
	}
	t.launch.Requests = &launch.Requests{}
	t.config.Requests = t.launch.Requests.Take
	var err error
	for _, read := range []func(*cli.Context) error{t.readMoves, t.readFormat, t.readNaN} {
		if err == nil {
			err = read(c)
		}
	}
	if err == nil {
		t.config.Scaling, err = train.ParseScaling(c.String("scal"))
	}
	if span := c.String("trace-iterations"); err == nil && span != "" {
		t.traced.Iterations, err = trace.ParseSpan(span)
	}
	if err == nil {
		t.table2, err = readTable2(c)
	}
	if t.table2 != nil { // there is nothing to write a snapshot of
		t.launch.Requests, t.config.Requests = nil, nil
	}
	return t, err
}

// readMoves reads how and when parameters and gradients move.
func (t *training) readMoves(c *cli.Context) (err error) {
	if t.config.Design, err = design.Parse(c.String("design")); err != nil {
		return err
	}
	if t.config.Scheme, err = design.ParseScheme(c.String("aggregate")); err != nil {
		return err
	}
	if size := c.String("bucket"); size != "auto" {
		if t.config.Bucket, err = collectives.ParseBytes(size); err != nil || t.config.Bucket < 1 {
			return fmt.Errorf("--bucket %s is no size: use such as 256K or 4M, or auto", size)
		}
	}
	if spec := c.String("algorithm"); spec != "" && spec != tuned {
		t.config.Spec, err = collectives.ParseSpec(spec)
	}
	return err
}

func (t *training) readFormat(c *cli.Context) error {
	switch f := c.String("snapshot-format"); strings.ToUpper(f) {
	case "":
		return nil
	case "BINARYPROTO":
		t.format = append(t.format, proto.WithSnapshotFormat(proto.SolverParameter_BINARYPROTO))
		return nil
	default:
		return fmt.Errorf("--snapshot-format %q is not supported: use binaryproto", f)
	}
}

func (t *training) readNaN(c *cli.Context) error {
	switch v := c.String("on-nan"); v {
	case "stop":
	case "skip":
		t.config.Options.SkipNotFinite = true
	default:
		return fmt.Errorf("--on-nan %q is unknown: use stop or skip", v)
	}
	return nil
}

// rank is one rank's training.
func (t *training) rank(ctx context.Context, comm *collectives.Comm) error {
	cfg := t.config
	// Every rank reads the files: they may be missing on one node alone.
	var err error
	cfg.Solver, err = proto.ReadSolver(t.solver, t.format...)
	if err = comm.Agree(ctx, err); err != nil {
		return err
	}
	if t.table2 != nil {
		return t.table2.run(ctx, comm, cfg)
	}
	r, err := newReporter(t.flags, comm, cfg)
	if err = comm.Agree(ctx, err); err == nil {
		err = t.train(ctx, comm, cfg, r)
	}
	if closing := r.close(); err == nil {
		err = comm.Agree(ctx, closing)
	}
	return err
}

// train is one rank's training, with its files open.
func (t *training) train(ctx context.Context, comm *collectives.Comm, cfg train.Config, r *reporter) error {
	cfg.Events = r.events()
	if t.trace != "" {
		cfg.Trace = trace.New(comm.Rank(), t.traced)
		cfg.Options.Data.OnBatch = func(batch int64, begin, end time.Time) {
			cfg.Trace.Add(trace.Event{Kind: trace.Read, Iter: int32(batch), Begin: begin, End: end})
		}
		if err := trace.Align(ctx, comm, cfg.Trace); err != nil {
			return err
		}
	}
	w, err := train.New(ctx, comm, cfg)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := comm.Agree(ctx, r.started(w)); err != nil {
		return err
	}
	summary, err := w.Run(ctx)
	r.ended(summary, err)
	if err == nil && cfg.Trace != nil {
		err = t.writeTrace(ctx, comm, cfg)
	}
	return err
}

// writeTrace gathers what all ranks did and writes it.
func (t *training) writeTrace(ctx context.Context, comm *collectives.Comm, cfg train.Config) error {
	cfg.Trace.Describe("design", cfg.Design.String())
	cfg.Trace.Describe("aggregate", cfg.Scheme.String())
	cfg.Trace.Describe("solver", t.solver)
	all, err := trace.Gather(ctx, comm, cfg.Trace)
	if err == nil && comm.Rank() == 0 {
		if err = all.Write(t.trace); err == nil {
			fmt.Fprintf(os.Stderr, "wrote %s; see: scaffe trace report %s\n", t.trace, t.trace)
		}
	}
	return comm.Agree(ctx, err)
}
