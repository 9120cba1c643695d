package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/version"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/replay"
	"github.com/scaffe/scaffe/replay/workload"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/trace"
)

func replayCommand() *cli.Command {
	return &cli.Command{
		Name:  "replay",
		Usage: "run the communication of training with waits in place of computation",
		Description: "A profile holds the times to wait: a file written by scaffe time, or a built-in one (--list).\n\n" +
			cmdline.Examples(
				"scaffe replay --list",
				"mpirun -np 4 scaffe replay --profile alexnet-k80 --designs all --ratio 0.9",
				"mpirun -np 8 scaffe replay --profile vgg19-titanx --systems caffe+wfbp,poseidon,auto",
				"scaffe replay --local 4 --profile resnet50-k80 --straggler 2:1.5 --trace run.json",
			),
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "profile", Usage: "`PROFILE` to replay: a file, or the name of a built-in one"},
			&cli.BoolFlag{Name: "list", Usage: "list the built-in profiles and exit"},
			&cli.BoolFlag{Name: "show", Usage: "print the profile and exit"},
			cmdline.Checked("designs", "", "compare the designs in `LIST`, separated by commas, or all", cmdline.Parsed(parseDesigns, ""), append(exchange.Names(), "all")...),
			cmdline.Checked("systems", "", "compare the systems in `LIST`, separated by commas, or all: "+cmdline.Or(replay.Systems()), cmdline.Parsed(replay.ParseSystems, ""), append(replay.Systems(), "all")...),
			cmdline.Int("iterations", 20, 1, "measure `N` iterations of each design or system"),
			cmdline.Int("warmup", 2, 0, "run `N` warm-up iterations first"),
			cmdline.Int("turn", replay.DefaultTurn, 1, "switch designs or systems after `N` iterations"),
			cmdline.Duration("budget", 0, "limit measuring to about `TIME` (at least 6 iterations)"),
			cmdline.Float("compute-scale", 1, true, "multiply all times of the profile by `F`"),
			cmdline.Float("ratio", 0, true, "scale the times so that communication alone (with --systems that of ps under WFBP) takes `R` times as long as computation"),
			cmdline.Float("size-scale", 1, false, "multiply sizes and times of the profile, --pair and --slice by `F`, at most 1"),
			cmdline.Checked("predict", "", "with --systems, predict an iteration on the numbers of nodes in `LIST` too", cmdline.Parsed(parseNodes, "want numbers of nodes such as 16,32")),
			cmdline.Float("jitter", 0, true, "vary computation randomly by up to a `FRACTION`, such as 0.05"),
			cmdline.Checked("straggler", "", "slow one rank down, `RANK:FACTOR`", cmdline.Parsed(replay.ParseStraggler, "want RANK:FACTOR, such as 2:10")),
			&cli.BoolFlag{Name: "check", Usage: "verify every sum and every parameter (distorts the times)"},
			formatFlag("output format"),
			&cli.StringFlag{Name: "trace", Usage: "write a timeline of one design or system to `FILE`.json"},
		}, moveFlags()),
		Before: cmdline.NoArguments,
		Action: runReplay,
	}
}

func runReplay(c *cli.Context) error {
	if c.Bool("list") {
		return listProfiles(c)
	}
	m, err := readMoves(c)
	if err != nil {
		return cmdline.Usage(err)
	}
	cfg, err := replayConfig(c, m)
	if err != nil {
		return err
	}
	if c.Bool("show") {
		_, err := fmt.Fprint(stdout, cfg.Profile)
		return err
	}
	return launch.Run(c.Context, m.launch, func(ctx context.Context, comm *collectives.Comm) error {
		return replayRank(ctx, comm, c, cfg)
	})
}

// replayConfig reads the flags, and the profile that they name.
func replayConfig(c *cli.Context, m moves) (cfg replay.Config, err error) {
	cfg.Iterations, cfg.Warmup, cfg.Turn = c.Int("iterations"), c.Int("warmup"), c.Int("turn")
	cfg.Ratio, cfg.Jitter, cfg.Check = c.Float64("ratio"), c.Float64("jitter"), c.Bool("check")
	cfg.Spec, cfg.Bucket = m.spec, m.bucket
	cfg.Asked, cfg.Workers, cfg.Servers = &m.asked, m.workers, m.servers
	cfg.Pair, cfg.Slice, cfg.Credit = coordinator.ScalePair(m.pair, min(c.Float64("size-scale"), 1)), m.slice.Scale(min(c.Float64("size-scale"), 1)), m.credit
	cfg.Placement, cfg.Pull, cfg.Sparse = m.placement, m.pull, m.sparse
	cfg.MaySlice = m.maySlice.Scale(min(c.Float64("size-scale"), 1))
	cfg.SystemSlice = coordinator.DefaultSlice.Scale(min(c.Float64("size-scale"), 1))
	cfg.Budget = c.Duration("budget").Seconds()
	if c.String("profile") == "" {
		return cfg, cmdline.Usagef("missing --profile: want a file or a built-in profile (scaffe replay --list shows them)")
	}
	if err := errors.Join(cmdline.Together(c, "ratio", "compute-scale"), cmdline.Together(c, "design", "designs"),
		cmdline.Together(c, "systems", "design"), cmdline.Together(c, "systems", "designs"), cmdline.Together(c, "systems", "scheme")); err != nil {
		return cfg, err
	}
	cfg.Designs = []exchange.Design{m.design}
	if list := c.String("designs"); list != "" {
		if cfg.Designs, err = parseDesigns(list); err != nil {
			return cfg, cmdline.Usage(err)
		}
	}
	if list := c.String("systems"); list != "" {
		cfg.Designs, cfg.Asked = nil, nil
		if cfg.Systems, err = replay.ParseSystems(list); err != nil {
			return cfg, cmdline.Usage(err)
		}
	}
	if cfg.Predict, err = parseNodes(c.String("predict")); err != nil {
		return cfg, cmdline.Usage(err)
	}
	if c.String("trace") != "" && len(cfg.Designs)+len(cfg.Systems) > 1 {
		return cfg, cmdline.Usagef("--trace needs a single design: choose it with --design, or a single system")
	}
	if s := c.String("straggler"); s != "" {
		if cfg.Straggler, err = replay.ParseStraggler(s); err != nil {
			return cfg, cmdline.Usage(err)
		}
	}
	cfg.Profile, err = scaledProfile(c)
	return cfg, err
}

func scaledProfile(c *cli.Context) (*workload.Profile, error) {
	p, err := workload.Load(c.String("profile"))
	if err != nil {
		return nil, err
	}
	if f := c.Float64("size-scale"); f != 1 {
		if p, err = p.Shrink(f); err != nil {
			return nil, cmdline.Usagef("--size-scale: %w", err)
		}
		p.Source = strings.TrimSpace(p.Source + fmt.Sprintf("\nsizes and times × %g (--size-scale)", f))
	}
	if f := c.Float64("compute-scale"); f != 1 {
		if p, err = p.Scale(f); err != nil {
			return nil, cmdline.Usagef("--compute-scale: %w", err)
		}
		p.Source = strings.TrimSpace(p.Source + fmt.Sprintf("\ntimes × %g (--compute-scale)", f))
	}
	return p, nil
}

// parseNodes reads numbers of nodes; none for "".
func parseNodes(list string) (all []int, err error) {
	if list == "" {
		return nil, nil
	}
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 || n > 1<<12 {
			return nil, fmt.Errorf("invalid number of nodes %q: want 1 to 4096", word)
		}
		all = append(all, n)
	}
	return all, nil
}

// parseDesigns reads --designs.
func parseDesigns(list string) (all []exchange.Design, err error) {
	if list == "all" {
		return exchange.All(), nil
	}
	for name := range strings.SplitSeq(list, ",") {
		d, err := exchange.Parse(strings.TrimSpace(name))
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
	if err := writable(ctx, comm, file); err != nil {
		return err
	}
	if file != "" {
		cfg.Trace = trace.New(comm.Rank(), trace.Options{})
		cfg.Trace.Describe("version", version.String())
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
	return res.Write(stdout, report.Format(c.String("format")))
}

// listProfiles prints the built-in profiles.
func listProfiles(c *cli.Context) error {
	t, err := workload.List()
	if err != nil {
		return err
	}
	return t.Write(stdout, report.Format(c.String("format")))
}
