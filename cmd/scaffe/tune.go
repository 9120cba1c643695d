package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/progress"
	"github.com/scaffe/scaffe/internal/version"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/train"
	"github.com/scaffe/scaffe/tune"
)

func tuneCommand() *cli.Command {
	return &cli.Command{
		Name:  "tune",
		Usage: "measure algorithms against each other and write a tuning table, or check a table",
		Description: "A run that ends early, by the budget or by Ctrl-C, keeps what it has measured:\n" +
			"run the same command again to measure the rest.\n\n" +
			cmdline.Examples(
				"mpirun -np 4 scaffe tune --out scaffe.table --budget 5m",
				"mpirun -np 4 scaffe tune --out gpu.table --device cuda",
				"scaffe tune --lint scaffe.table",
			),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "out", Value: "scaffe.table", Usage: "write the table to `FILE` and a report to FILE.html"},
			cmdline.Checked("collectives", strings.Join(collectiveNames(), ","), "tune the collectives in `LIST`, separated by commas",
				cmdline.Parsed(parseCollectives, "want a list of "+strings.Join(collectiveNames(), ", ")), collectiveNames()...),
			cmdline.Checked("sizes", "8:64M", "smallest and largest buffer, `MIN:MAX`", cmdline.Parsed(parseSizes, "want MIN:MAX, such as 4K:64M")),
			cmdline.Duration("budget", time.Minute, "stop measuring after about `TIME`"),
			cmdline.Int("iterations", 30, 3, "measure each spec at most `N` times"),
			typeFlag(),
			buffersFlag(),
			cmdline.Checked("device", train.Device{}.String(), "`DEVICE` whose memory the buffers lie in: cpu, cuda, which is --buffers cuda, or cuda:LIST with the numbers of the GPUs that the ranks of a node take in turn, such as cuda:0,1",
				cmdline.Parsed(train.ParseDevice, ""), "cpu", "cuda"),
			localFlag(),
			progressFlag(),
			&cli.StringFlag{Name: "lint", Usage: "only check the tuning table `FILE`"},
		},
		Before: cmdline.NoArguments,
		Action: runTune,
	}
}

func runTune(c *cli.Context) error {
	if file := c.String("lint"); file != "" {
		return lintTable(file)
	}
	cfg, err := tuneConfig(c)
	if err != nil {
		return cmdline.Usage(err)
	}
	device, err := tuneDevice(c, &cfg)
	if err != nil {
		return cmdline.Usage(err)
	}
	opts := launch.Options{
		Local: c.Int("local"), CUDA: cfg.Buffers == selection.CUDA, GPUs: device.List, Collectives: collectives.Options{Measure: true},
	}
	return launch.Run(c.Context, opts, func(ctx context.Context, comm *collectives.Comm) error {
		return tuneRank(ctx, comm, cfg, c.String("progress"))
	})
}

// tuneDevice reads --device, which says the same as --buffers cuda and, perhaps, which GPUs.
func tuneDevice(c *cli.Context, cfg *tune.Config) (train.Device, error) {
	d, err := train.ParseDevice(c.String("device"))
	if err != nil {
		return d, err
	}
	if c.IsSet("device") && c.IsSet("buffers") && d.CUDA != (cfg.Buffers == selection.CUDA) {
		return d, fmt.Errorf("--device %v and --buffers %v do not go together: --buffers cuda is for --device cuda, registered and unregistered are for cpu", d, cfg.Buffers)
	}
	if d.CUDA {
		cfg.Buffers = selection.CUDA
	}
	return d, nil
}

func lintTable(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	found := selection.Lint(file, string(text))
	for _, err := range found {
		fmt.Fprintln(stdout, err)
	}
	switch len(found) {
	case 0:
		fmt.Fprintf(stdout, "%s: no problems found\n", file)
		return nil
	case 1:
		return fmt.Errorf("%s: 1 problem found", file)
	}
	return fmt.Errorf("%s: %d problems found", file, len(found))
}

func parseCollectives(list string) (all []schedule.Collective, err error) {
	for name := range strings.SplitSeq(list, ",") {
		v, err := schedule.ParseCollective(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// parseSizes reads MIN:MAX.
func parseSizes(s string) (sizes [2]int, err error) {
	low, high, _ := strings.Cut(s, ":")
	if sizes[0], err = parseSize(low); err == nil {
		sizes[1], err = parseSize(high)
	}
	if err == nil && sizes[0] > sizes[1] {
		err = errors.New("the smallest is larger than the largest")
	}
	return sizes, err
}

func tuneConfig(c *cli.Context) (cfg tune.Config, err error) {
	cfg.Out, cfg.Budget, cfg.Iterations = c.String("out"), c.Duration("budget"), c.Int("iterations")
	if cfg.Collectives, err = parseCollectives(c.String("collectives")); err != nil {
		return cfg, err
	}
	sizes, err := parseSizes(c.String("sizes"))
	if err != nil {
		return cfg, err
	}
	cfg.Min, cfg.Max = sizes[0], sizes[1]
	if cfg.Type, err = mem.ParseDatatype(c.String("type")); err != nil {
		return cfg, err
	}
	if cfg.Buffers, err = selection.ParseBufferKind(c.String("buffers")); err != nil {
		return cfg, err
	}
	cfg.Version = version.String()
	return cfg, cfg.Validate()
}

// tuneRank is one rank's part.
func tuneRank(ctx context.Context, comm *collectives.Comm, cfg tune.Config, when string) error {
	show, err := progress.Wanted(when)
	if err != nil {
		return err
	}
	if comm.Size() < 2 {
		return errors.New("tuning needs at least 2 ranks: run under mpirun, or pass --local N")
	}
	if err := writable(ctx, comm, cfg.Out); err != nil {
		return err
	}
	var bar *progressbar.ProgressBar
	if show && comm.Rank() == 0 {
		bar = progress.New(1000)
		cfg.OnProgress = func(p tune.Progress) {
			bar.Describe(fmt.Sprintf("%s, %d of %d, about %v left", p.Job, p.Done, p.Jobs, p.Left.Round(time.Second)))
			_ = bar.Set(int(1000 * p.Part))
		}
	}
	cfg.Machine = comm.Machine()
	r, err := tune.Sweep(ctx, comm, cfg)
	if bar != nil {
		_ = bar.Clear()
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("interrupted: %s keeps what was measured; run the same command again to measure the rest", cfg.Partial())
	}
	if err == nil && comm.Rank() == 0 {
		err = tuneWrite(r)
	}
	return comm.Agree(ctx, err)
}

func tuneWrite(r *tune.Result) error {
	report, err := r.Write()
	if err != nil {
		return err
	}
	for _, rule := range r.Table().Rules {
		fmt.Fprintln(stdout, rule)
	}
	if r.Resumed > 0 {
		fmt.Fprintf(os.Stderr, "%d of %d measured by an earlier run\n", r.Resumed, r.Jobs)
	}
	if !r.Complete() {
		fmt.Fprintf(os.Stderr, "%d of %d measured within the budget; run the same command again to measure the rest\n", len(r.Points), r.Jobs)
	}
	fmt.Fprintf(os.Stderr, "wrote %s and %s\nuse it with --table %s or %s=%s, or install it as %s\n", r.Config.Out, report, r.Config.Out, selection.EnvTable, r.Config.Out, selection.UserTable())
	return nil
}
