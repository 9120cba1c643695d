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
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/trace"
	"github.com/scaffe/scaffe/train"
	"github.com/scaffe/scaffe/train/report"
)

// reportFlags say where a run is reported to, besides stdout and stderr.
func reportFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "progress", Value: "auto", Usage: "progress bar: auto (on a terminal), always or never"},
		&cli.StringFlag{Name: "log-json", Usage: "append what happens to `FILE`, one JSON object per line; - is stdout"},
		&cli.StringFlag{Name: "metrics", Usage: "serve metrics for Prometheus at `ADDR`, such as :9100 (this machine alone) or 0.0.0.0:9100"},
	}
}

func readReport(c *cli.Context) report.Options {
	return report.Options{Progress: c.String("progress"), LogJSON: c.String("log-json"), Metrics: c.String("metrics")}
}

func trainCommand() *cli.Command {
	return &cli.Command{
		Name:  "train",
		Usage: "train a net as a Caffe solver file says",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "solver", Usage: "solver definition, `FILE`.prototxt", Required: true},
			&cli.StringFlag{Name: "snapshot", Usage: "go on from a snapshot, `FILE`.solverstate"},
			&cli.StringSliceFlag{Name: "weights", Usage: "start from the weights of `FILE`.caffemodel (several: comma-separated)"},
			&cli.StringFlag{Name: "scal", Value: "strong", Usage: "strong: batch_size divided by the ranks; weak: batch_size per rank"},
			&cli.StringFlag{Name: "snapshot-format", Usage: "`FORMAT` of snapshots instead of the solver file's: binaryproto"},
			&cli.StringFlag{Name: "on-nan", Value: "stop", Usage: "where the loss or a gradient is NaN or infinite: stop, or skip that update"},
			&cli.StringFlag{Name: "trace", Usage: "write what every rank did when, a `FILE`.json for scaffe trace, Perfetto or chrome://tracing"},
			&cli.StringFlag{Name: "trace-iterations", Usage: "keep these, `FIRST:END` (default: the first 200)"},
		}, moveFlags(), reportFlags(), table2Flags()),
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

// training is what the flags ask for.
type training struct {
	solver string
	format []proto.SolverOption
	config train.Config // alike for every rank
	launch launch.Options
	trace  string // file, "" for none
	traced trace.Options
	report report.Options
	table2 *comparison // nil: train
}

// newTraining reads the flags.
func newTraining(c *cli.Context) (*training, error) {
	t := &training{solver: c.String("solver"), trace: c.String("trace"), report: readReport(c)}
	t.config.Snapshot, t.config.Weights = c.String("snapshot"), c.StringSlice("weights")
	m, err := readMoves(c)
	if err != nil {
		return nil, err
	}
	t.config.Design, t.config.Scheme, t.config.Spec, t.config.Bucket = m.design, m.scheme, m.spec, m.bucket
	t.launch = m.launch
	t.launch.Requests = &launch.Requests{}
	t.config.Requests = t.launch.Requests.Take
	if err = t.readFormat(c); err == nil {
		err = t.readNaN(c)
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
	r, err := report.New(comm, cfg, t.report)
	if err = comm.Agree(ctx, err); err == nil {
		err = t.train(ctx, comm, cfg, r)
	}
	if closing := r.Close(); err == nil {
		err = comm.Agree(ctx, closing)
	}
	return err
}

// train is one rank's training, with its files open.
func (t *training) train(ctx context.Context, comm *collectives.Comm, cfg train.Config, r *report.Reporter) error {
	cfg.Events = r.Events()
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
	if err := comm.Agree(ctx, r.Started(w)); err != nil {
		return err
	}
	summary, err := w.Run(ctx)
	r.Ended(summary, err)
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
