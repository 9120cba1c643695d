package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/version"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/trace"
	"github.com/scaffe/scaffe/train"
	"github.com/scaffe/scaffe/train/report"
)

// reportFlags say where a run is reported to, besides stdout and stderr.
func reportFlags() []cli.Flag {
	return []cli.Flag{
		progressFlag(),
		&cli.StringFlag{Name: "log-json", Usage: "append events to `FILE`, one JSON object per line (- for stdout)"},
		&cli.StringFlag{Name: "metrics", Usage: "serve metrics for Prometheus at `ADDR`, such as :9100 (this machine alone) or 0.0.0.0:9100"},
	}
}

func readReport(c *cli.Context) report.Options {
	return report.Options{Progress: c.String("progress"), LogJSON: c.String("log-json"), Metrics: c.String("metrics")}
}

func trainCommand() *cli.Command {
	return &cli.Command{
		Name:  "train",
		Usage: "train a net from a Caffe solver file",
		Description: "SIGINT (Ctrl-C) takes a snapshot and stops after the current iteration; a second one exits at once.\n\n" +
			cmdline.Examples(
				"mpirun -np 4 scaffe train --solver solver.prototxt",
				"mpirun -np 4 scaffe train --solver solver.prototxt --snapshot s_iter_5000.solverstate",
				"mpirun -np 4 scaffe train --solver solver.prototxt --checkpoint ckpt --checkpoint-every 500",
				"scaffe train --local 2 --solver solver.prototxt --trace run.json",
				"mpirun -np 4 scaffe train --solver solver.prototxt --report table2",
			),
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "solver", Usage: "solver definition, `FILE`.prototxt", Required: true},
			&cli.StringFlag{Name: "snapshot", Usage: "resume from a snapshot, `FILE`.solverstate, or from the newest checkpoint of a folder"},
			&cli.StringSliceFlag{Name: "weights", Usage: "start from the weights in `FILE`.caffemodel (several: separated by commas)"},
			cmdline.Checked("device", train.Device{}.String(), "`DEVICE` that computes: cpu, cuda, or cuda:LIST with the numbers of the GPUs that the ranks of a node take in turn, such as cuda:0,1",
				cmdline.Parsed(train.ParseDevice, ""), "cpu", "cuda"),
			cmdline.Choice("math", cuda.F32.String(), "with --device cuda, multiply float32 as such (f32), or with 10 bits of each factor on tensor cores, by cuBLAS (tf32)", cuda.F32.String(), cuda.TF32.String()),
			cmdline.Choice("scal", "strong", "divide batch_size among the ranks (strong) or give it to every rank (weak)", "strong", "weak"),
			cmdline.Checked("snapshot-format", "", "snapshot format, in place of the solver file's", checkSnapshotFormat, "binaryproto"),
			&cli.StringFlag{Name: "checkpoint", Usage: "keep the last two checkpoints in the folder `DIR`, which all nodes share; ranks write them at once, beside training"},
			cmdline.Int("checkpoint-every", 0, 1, "write a checkpoint after every `N` iterations, and at the end (default: at the end alone)"),
			cmdline.Checked("consistency", train.Consistency{}.String(), "with --scheme ps, `bsp|drop:TIME|ssp:S`: wait for all workers in every iteration; leave out of it who is later than the median one by more than TIME; or let workers be S iterations apart",
				cmdline.Parsed(train.ParseConsistency, ""), "bsp", "drop:", "ssp:"),
			cmdline.Int("warmup", 0, 0, "with --scheme dgc, let the sparsity rise to --sparsity in the first `N` iterations: 75, 93.75, 98.4, 99.6 % in turn"),
			cmdline.Choice("on-nan", "stop", "when the loss or a gradient is NaN or infinite, stop or skip the update", "stop", "skip"),
			&cli.StringFlag{Name: "trace", Usage: "write a timeline of all ranks to `FILE`.json, for scaffe trace, Perfetto or chrome://tracing"},
			cmdline.Checked("trace-iterations", "", "iterations to trace, `FIRST:END`, such as 10:60 for 10 to 59 (default: the first 200)",
				cmdline.Parsed(trace.ParseSpan, "")),
		}, moveFlags(), reportFlags(), table2Flags()),
		Before: cmdline.NoArguments,
		Action: runTrain,
	}
}

func runTrain(c *cli.Context) error {
	t, err := newTraining(c)
	if err != nil {
		return cmdline.Usage(err)
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
	if err := cmdline.Together(c, "snapshot", "weights"); err != nil {
		return nil, err
	}
	t.config.Checkpoint = train.Checkpoint{Dir: c.String("checkpoint"), Every: c.Int("checkpoint-every")}
	if t.config.Checkpoint.Dir == "" && c.IsSet("checkpoint-every") {
		return nil, errors.New("--checkpoint-every needs --checkpoint DIR")
	}
	m, err := readMoves(c)
	if err != nil {
		return nil, err
	}
	t.config.Design, t.config.Spec, t.config.Bucket = m.design, m.spec, m.bucket
	t.config.Asked, t.config.Workers, t.config.Servers = &m.asked, m.workers, m.servers
	t.config.Pair, t.config.Slice, t.config.MaySlice, t.config.Credit, t.config.Placement, t.config.Pull = m.pair, m.slice, m.maySlice, m.credit, m.placement, m.pull
	if t.config.Sparse = m.sparse; c.IsSet("warmup") {
		if err := needsDGC(c, "warmup", m.asked); err != nil {
			return nil, err
		}
		sparse := m.sparse.Or()
		sparse.Warmup = c.Int("warmup")
		t.config.Sparse = &sparse
	}
	t.launch = m.launch
	if t.config.Consistency, err = train.ParseConsistency(c.String("consistency")); err != nil {
		return nil, err
	}
	if t.config.Device, err = train.ParseDevice(c.String("device")); err != nil {
		return nil, err
	}
	if t.config.Math, err = cuda.ParseMath(c.String("math")); err != nil {
		return nil, err
	}
	if t.config.Math != cuda.F32 && !t.config.Device.CUDA {
		return nil, fmt.Errorf("--math %v needs --device cuda", t.config.Math)
	}
	if d := t.config.Device; d.CUDA {
		t.launch.CUDA, t.launch.GPUs, t.launch.MayLack = true, d.List, true
	}
	if c.String("snapshot-format") != "" {
		t.format = append(t.format, proto.WithSnapshotFormat(proto.SolverParameter_BINARYPROTO))
	}
	t.config.Options.SkipNotFinite = c.String("on-nan") == "skip"
	if t.config.Scaling, err = train.ParseScaling(c.String("scal")); err != nil {
		return nil, err
	}
	if span := c.String("trace-iterations"); span != "" {
		if t.traced.Iterations, err = trace.ParseSpan(span); err != nil {
			return nil, err
		}
	}
	if t.table2, err = readTable2(c); err != nil {
		return nil, err
	}
	if t.table2 != nil { // which names its rows by what runs in them
		t.launch.Collectives.Tuned = true
	} else { // it has no state to write a snapshot of
		t.launch.Requests = &launch.Requests{}
		t.config.Requests = t.launch.Requests.Take
	}
	return t, nil
}

func checkSnapshotFormat(s string) error {
	if strings.EqualFold(s, "binaryproto") {
		return nil
	}
	return errors.New("want binaryproto")
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
	if err := writable(ctx, comm, t.trace); err != nil {
		return err
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
		err = t.writeTrace(ctx, comm, cfg, summary)
	}
	return err
}

// writeTrace gathers what all ranks did and writes it.
func (t *training) writeTrace(ctx context.Context, comm *collectives.Comm, cfg train.Config, s train.Summary) error {
	cfg.Trace.Describe("version", version.String())
	cfg.Trace.Describe("design", cfg.Design.String())
	cfg.Trace.Describe("aggregate", cfg.SchemeText())
	cfg.Trace.Describe("solver", t.solver)
	cfg.Trace.Describe("order", s.Order.String())
	all, err := trace.Gather(ctx, comm, cfg.Trace)
	if err == nil && comm.Rank() == 0 {
		if err = all.Write(t.trace); err == nil {
			fmt.Fprintf(os.Stderr, "wrote %s; to read it: scaffe trace report %s\n", t.trace, t.trace)
		}
	}
	return comm.Agree(ctx, err)
}
