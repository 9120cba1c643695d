package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/replay"
	"github.com/scaffe/scaffe/replay/workload"
	"github.com/scaffe/scaffe/trace"
)

func replayCommand() *cli.Command {
	return &cli.Command{
		Name:  "replay",
		Usage: "run the communication of training for real, with waits for computation",
		Description: "The waits come from a profile: a file that scaffe time wrote, or a built-in one (--list).\n" +
			"   mpirun -np 4 scaffe replay --profile alexnet-k80 --designs all --ratio 0.9",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "profile", Usage: "a `FILE`, or the name of a built-in profile"},
			&cli.BoolFlag{Name: "list", Usage: "list the built-in profiles, and end"},
			&cli.BoolFlag{Name: "show", Usage: "print the profile as a file, and end"},
			&cli.StringFlag{Name: "designs", Usage: "compare several designs, comma-separated, or all"},
			&cli.IntFlag{Name: "iterations", Value: 20, Usage: "measure `N` iterations of each design"},
			&cli.IntFlag{Name: "warmup", Value: 2, Usage: "after `N` that do not count"},
			&cli.IntFlag{Name: "turn", Value: replay.DefaultTurn, Usage: "`N` iterations of a design in a row"},
			&cli.DurationFlag{Name: "budget", Usage: "fewer iterations (yet 6), so that they take about this `TIME`"},
			&cli.Float64Flag{Name: "compute-scale", Value: 1, Usage: "multiply all times of the profile by `F`"},
			&cli.Float64Flag{Name: "ratio", Usage: "scale them so that communication alone is `R` times the computation"},
			&cli.Float64Flag{Name: "size-scale", Value: 1, Usage: "multiply sizes and times of the profile by `F`, at most 1"},
			&cli.Float64Flag{Name: "jitter", Usage: "computation varies by up to `PART` of it, such as 0.05"},
			&cli.StringFlag{Name: "straggler", Usage: "one rank computes slower, `RANK:FACTOR`"},
			&cli.BoolFlag{Name: "check", Usage: "verify every sum and every parameter (distorts the times)"},
			formatFlag("format of the result"),
			&cli.StringFlag{Name: "trace", Usage: "write a timeline of one design to `FILE`.json"},
		}, moveFlags()),
		Before: noArguments,
		Action: runReplay,
	}
}

func runReplay(c *cli.Context) error {
	if c.Bool("list") {
		return listProfiles(c)
	}
	m, err := readMoves(c)
	if err != nil {
		return err
	}
	cfg, err := replayConfig(c, m)
	if err != nil {
		return err
	}
	if c.Bool("show") {
		_, err := fmt.Print(cfg.Profile)
		return err
	}
	return launch.Run(c.Context, m.launch, func(ctx context.Context, comm *collectives.Comm) error {
		return replayRank(ctx, comm, c, cfg)
	})
}

// replayConfig reads the flags.
func replayConfig(c *cli.Context, m moves) (cfg replay.Config, err error) {
	cfg.Iterations, cfg.Warmup, cfg.Turn = c.Int("iterations"), c.Int("warmup"), c.Int("turn")
	cfg.Ratio, cfg.Jitter, cfg.Check = c.Float64("ratio"), c.Float64("jitter"), c.Bool("check")
	cfg.Scheme, cfg.Spec, cfg.Bucket = m.scheme, m.spec, m.bucket
	cfg.Budget = c.Duration("budget").Seconds()
	if c.String("profile") == "" {
		return cfg, fmt.Errorf("which --profile? A file, or one of %s", strings.Join(workload.Builtins(), ", "))
	}
	if cfg.Ratio != 0 && c.IsSet("compute-scale") {
		return cfg, fmt.Errorf("--ratio and --compute-scale cannot be used together")
	}
	if _, err := report.ParseFormat(c.String("format")); err != nil {
		return cfg, err
	}
	if cfg.Profile, err = scaledProfile(c); err != nil {
		return cfg, err
	}
	if cfg.Designs, err = replayDesigns(c, m.design); err != nil {
		return cfg, err
	}
	if c.String("trace") != "" && len(cfg.Designs) > 1 {
		return cfg, fmt.Errorf("--trace shows one design: say which by --design, without --designs")
	}
	if s := c.String("straggler"); s != "" {
		cfg.Straggler, err = replay.ParseStraggler(s)
	}
	return cfg, err
}

func scaledProfile(c *cli.Context) (*workload.Profile, error) {
	p, err := workload.Load(c.String("profile"))
	if err != nil {
		return nil, err
	}
	if f := c.Float64("size-scale"); f != 1 {
		if p, err = p.Shrink(f); err != nil {
			return nil, fmt.Errorf("--size-scale: %w", err)
		}
		p.Source = strings.TrimSpace(p.Source + fmt.Sprintf("\nsizes and times × %g (--size-scale)", f))
	}
	if f := c.Float64("compute-scale"); f != 1 {
		if p, err = p.Scale(f); err != nil {
			return nil, fmt.Errorf("--compute-scale: %w", err)
		}
		p.Source = strings.TrimSpace(p.Source + fmt.Sprintf("\ntimes × %g (--compute-scale)", f))
	}
	return p, nil
}

func replayDesigns(c *cli.Context, one exchange.Design) (all []exchange.Design, err error) {
	switch list := c.String("designs"); {
	case list == "all":
		return exchange.All(), nil
	case list != "" && c.IsSet("design"):
		return nil, fmt.Errorf("--design and --designs cannot be used together")
	case list == "":
		return []exchange.Design{one}, nil
	}
	for n := range strings.SplitSeq(c.String("designs"), ",") {
		d, err := exchange.Parse(strings.TrimSpace(n))
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// replayRank is one rank's replay.
func replayRank(ctx context.Context, comm *collectives.Comm, c *cli.Context, cfg replay.Config) error {
	file := c.String("trace")
	if file != "" {
		cfg.Trace = trace.New(comm.Rank(), trace.Options{})
		if err := trace.Align(ctx, comm, cfg.Trace); err != nil {
			return err
		}
	}
	res, err := replay.Run(ctx, comm, cfg)
	if err != nil {
		return err
	}
	if file != "" {
		t, err := trace.Gather(ctx, comm, cfg.Trace)
		if err == nil && comm.Rank() == 0 {
			err = t.Write(file)
		}
		if err := comm.Agree(ctx, err); err != nil {
			return err
		}
	}
	if comm.Rank() != 0 {
		return nil
	}
	return res.Write(os.Stdout, report.Format(c.String("format")))
}

// listProfiles prints the built-in profiles.
func listProfiles(c *cli.Context) error {
	f, err := report.ParseFormat(c.String("format"))
	if err != nil {
		return err
	}
	t, err := workload.List()
	if err != nil {
		return err
	}
	return t.Write(os.Stdout, f)
}
