package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/internal/progress"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/tune"
)

func tuneCommand() *cli.Command {
	return &cli.Command{
		Name:  "tune",
		Usage: "measure algorithms against each other and write a tuning table, or check one",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "out", Value: "scaffe.table", Usage: "the table's `FILE`; the report is FILE.html"},
			&cli.StringFlag{Name: "collectives", Value: "reduce,bcast,allreduce", Usage: "what to tune, a `LIST`"},
			&cli.StringFlag{Name: "sizes", Value: "4K:64M", Usage: "from the smallest to the largest buffer, `MIN:MAX`"},
			&cli.DurationFlag{Name: "budget", Value: time.Minute, Usage: "how long it may take; started again, it goes on"},
			&cli.IntFlag{Name: "iterations", Value: 30, Usage: "run each spec `N` times at most"},
			&cli.StringFlag{Name: "type", Value: "f32", Usage: "datatype of the elements"},
			&cli.StringFlag{Name: "buffers", Value: "registered", Usage: "where buffers lie: registered (Comm.Alloc) or heap"},
			&cli.IntFlag{Name: "local", Usage: "run `N` ranks in this process instead of mpirun's"},
			&cli.StringFlag{Name: "progress", Value: "auto", Usage: "progress bar: auto (on a terminal), always or never"},
			&cli.StringFlag{Name: "lint", Usage: "only check a table, `FILE`, and say what is wrong with it"},
		},
		Before: noArguments,
		Action: runTune,
	}
}

func runTune(c *cli.Context) error {
	if file := c.String("lint"); file != "" {
		return lintTable(file)
	}
	cfg, err := tuneConfig(c)
	if err != nil {
		return err
	}
	opts := launch.Options{Local: c.Int("local"), Collectives: collectives.Options{Measure: true}}
	return launch.Run(c.Context, opts, func(ctx context.Context, comm *collectives.Comm) error {
		return tuneRank(ctx, comm, cfg, c.String("progress"))
	})
}

func lintTable(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	found := collectives.LintTable(file, string(text))
	for _, err := range found {
		fmt.Println(err)
	}
	if len(found) > 0 {
		return fmt.Errorf("%s: %d things to look at", file, len(found))
	}
	fmt.Printf("%s: nothing wrong\n", file)
	return nil
}

func tuneConfig(c *cli.Context) (cfg tune.Config, err error) {
	cfg.Out, cfg.Budget, cfg.Iterations = c.String("out"), c.Duration("budget"), c.Int("iterations")
	if c.Int("local") < 0 || cfg.Budget <= 0 {
		return cfg, fmt.Errorf("--local %d and --budget %v must not be negative", c.Int("local"), cfg.Budget)
	}
	for name := range strings.SplitSeq(c.String("collectives"), ",") {
		v, err := collectives.ParseVerb(strings.TrimSpace(name))
		if err != nil {
			return cfg, fmt.Errorf("--collectives: %w", err)
		}
		cfg.Collectives = append(cfg.Collectives, v)
	}
	least, most, _ := strings.Cut(c.String("sizes"), ":")
	if cfg.Least, err = units.ParseBytes(least); err == nil {
		cfg.Most, err = units.ParseBytes(most)
	}
	if err != nil {
		return cfg, fmt.Errorf("--sizes %s is not MIN:MAX such as 4K:64M: %w", c.String("sizes"), err)
	}
	if cfg.Type, err = mem.ParseDatatype(c.String("type")); err != nil {
		return cfg, err
	}
	if cfg.Buffers, err = collectives.ParseBufferKind(c.String("buffers")); err != nil {
		return cfg, err
	}
	cfg.Machine = launch.Machine(c.Int("local"))
	return cfg, cfg.Validate()
}

// tuneRank is one rank's part.
func tuneRank(ctx context.Context, comm *collectives.Comm, cfg tune.Config, when string) error {
	show, err := progress.Wanted(when)
	if err != nil {
		return err
	}
	if comm.Size() < 2 {
		return fmt.Errorf("one rank has nothing to tune: start it by mpirun, or with --local N")
	}
	var bar *progressbar.ProgressBar
	if show && comm.Rank() == 0 {
		bar = progress.New(1000)
		cfg.OnProgress = func(p tune.Progress) {
			bar.Describe(fmt.Sprintf("%s, %d of %d, about %v left", p.Job, p.Done, p.Jobs, p.Left.Round(time.Second)))
			_ = bar.Set(int(1000 * p.Part))
		}
	}
	r, err := tune.Sweep(ctx, comm, cfg)
	if bar != nil {
		_ = bar.Clear()
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("interrupted: what was measured is in %s, and the same command goes on from there", cfg.Partial())
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
		fmt.Println(rule)
	}
	if r.Resumed > 0 {
		fmt.Fprintf(os.Stderr, "%d of %d measured by the sweep before\n", r.Resumed, r.Jobs)
	}
	if !r.Complete() {
		fmt.Fprintf(os.Stderr, "%d of %d measured within the budget; the same command goes on with the others\n", len(r.Points), r.Jobs)
	}
	fmt.Fprintf(os.Stderr, "wrote %s and %s\nuse it with --table %s or %s=%s, or put it into %s\n", r.Config.Out, report, r.Config.Out, collectives.EnvTable, r.Config.Out, collectives.UserTable())
	return nil
}
