// Command bench measures the collectives over all sizes and layouts, and figures of papers: see
// package github.com/scaffe/scaffe/osu-bench/campaign. scripts/bench and scripts/bench-papers start it.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/output"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/internal/version"
	"github.com/scaffe/scaffe/osu-bench/campaign"
	"github.com/scaffe/scaffe/replay"
)

func main() {
	program := cmdline.Program{App: newApp(), Stdout: output.Stdout, Stderr: os.Stderr}
	program.Exit()
}

func newApp() *cli.App {
	return &cli.App{
		Name: "bench", Usage: "measure the collectives over all sizes and layouts, and figures of papers", Version: version.String(),
		Description: "Run it by scripts/bench or scripts/bench-papers. A run that ends early goes on when it is started again with the same --out.\n\n" +
			cmdline.Examples("scripts/with-mpi openmpi scripts/bench sizes --quick --layouts 2,4", "scripts/with-mpi mpich scripts/bench regret",
				"scripts/with-mpi openmpi scripts/bench-papers poseidon-8 --quick --nodes 8"),
		Commands: append([]*cli.Command{
			command("sizes", "measure time against size, beside the MPI library, UCC and the limit", "2,4,8,4x1,4x2", "barrier,reduce,bcast,allreduce", campaign.Sizes),
			command("regret", "measure what is selected against every spec worth measuring", "2,4,8,4x1,4x2,3x1,7x1", "reduce,bcast,allreduce", campaign.Regret),
		}, figureCommands()...),
	}
}

// figureCommands are those of the Poseidon paper's figures.
func figureCommands() (all []*cli.Command) {
	names, titles := campaign.Figures()
	for i, name := range names {
		all = append(all, &cli.Command{
			Name: name, Usage: "Poseidon's figure: " + titles[i] + ", replayed in the lab (as root)", Before: cmdline.NoArguments,
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "nets", Usage: "measure the profiles in `LIST` alone, separated by commas"},
				cmdline.Checked("bandwidths", "", "measure the paper's bandwidths in `LIST` alone, in Gbit/s", cmdline.Parsed(parseNumbers, "want numbers such as 10,20")),
				cmdline.Checked("nodes", "", "measure on the numbers of nodes in `LIST` alone", cmdline.Parsed(parseNumbers, "want numbers such as 4,8")),
				cmdline.Checked("systems", "", "compare the systems in `LIST` instead", cmdline.Parsed(replay.ParseSystems, "")),
				&cli.BoolFlag{Name: "quick", Usage: "shorter and fewer iterations"},
				&cli.StringFlag{Name: "out", Usage: "write the rows to `FILE` (default build/bench/" + name + "-MPI.csv)"},
			},
			Action: func(c *cli.Context) error {
				config, err := readFigure(c, name)
				if err != nil {
					return cmdline.Usage(err)
				}
				return started(c, func(ctx context.Context, root string) error {
					return campaign.Figure(ctx, config, root, output.Stdout, os.Stderr)
				})
			},
		})
	}
	return all
}

// readFigure reads the flags of a figure.
func readFigure(c *cli.Context, name string) (config campaign.FigureConfig, err error) {
	config = campaign.FigureConfig{Name: name, Quick: c.Bool("quick")}
	if s := c.String("nets"); s != "" {
		config.Nets = strings.Split(s, ",")
	}
	if config.Gbit, err = parseNumbers(c.String("bandwidths")); err != nil {
		return config, err
	}
	nodes, err := parseNumbers(c.String("nodes"))
	for _, n := range nodes {
		config.Nodes = append(config.Nodes, int(n))
	}
	if err != nil {
		return config, err
	}
	if s := c.String("systems"); s != "" {
		systems, err := replay.ParseSystems(s)
		for _, y := range systems {
			config.Systems = append(config.Systems, y.Name)
		}
		if err != nil {
			return config, err
		}
	}
	config.Out, err = rowsFile(c, name)
	return config, err
}

// parseNumbers reads numbers separated by commas; none for "".
func parseNumbers(s string) (all []float64, err error) {
	if s == "" {
		return nil, nil
	}
	for word := range strings.SplitSeq(s, ",") {
		x, err := strconv.ParseFloat(word, 64)
		if err != nil || !(x > 0) {
			return nil, cmdline.Usagef("invalid number %q in %q", word, s)
		}
		all = append(all, x)
	}
	return all, nil
}

// started runs until Ctrl-C in the repository's root.
func started(c *cli.Context, run func(ctx context.Context, root string) error) error {
	ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM)
	defer stop()
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	return run(ctx, root)
}

// rowsFile returns where the rows go, whose folder is there then.
func rowsFile(c *cli.Context, name string) (string, error) {
	out := c.String("out")
	if out == "" {
		out = filepath.Join("build", "bench", name+"-"+filepath.Base(os.Getenv("SCAFFE_MPI_DIR"))+".csv")
	}
	return out, os.MkdirAll(filepath.Dir(out), 0o777)
}

type measure func(ctx context.Context, c campaign.Config, root string, stdout, log io.Writer) error

func command(name, usage, layouts, collectives string, run measure) *cli.Command {
	return &cli.Command{
		Name: name, Usage: usage, Before: cmdline.NoArguments,
		Flags: []cli.Flag{
			cmdline.Checked("layouts", layouts, "measure the layouts in `LIST`: ranks on this machine, or nodes x ranks in the lab (as root)", cmdline.Parsed(campaign.ParseLayouts, "")),
			cmdline.Checked("collectives", collectives, "measure the collectives in `LIST`", cmdline.Parsed(campaign.ParseCollectives, "")),
			cmdline.Checked("sizes", "4:64M", "smallest and largest buffer, `MIN:MAX`", cmdline.Parsed(parseSizes, "want MIN:MAX, such as 4:64M")),
			cmdline.Int("factor", 4, 2, "multiply the size by `N` from one to the next"),
			&cli.BoolFlag{Name: "quick", Usage: "fewer iterations, and of the library's algorithms only the likeliest"},
			&cli.StringFlag{Name: "out", Usage: "write the rows to `FILE` (default build/bench/" + name + "-MPI.csv)"},
		},
		Action: func(c *cli.Context) error {
			config, err := read(c, name)
			if err != nil {
				return cmdline.Usage(err)
			}
			return started(c, func(ctx context.Context, root string) error {
				return run(ctx, config, root, output.Stdout, os.Stderr)
			})
		},
	}
}

// read reads the flags.
func read(c *cli.Context, name string) (config campaign.Config, err error) {
	config = campaign.Config{Factor: c.Int("factor"), Quick: c.Bool("quick")}
	if config.Layouts, err = campaign.ParseLayouts(c.String("layouts")); err != nil {
		return config, err
	}
	if config.Collectives, err = campaign.ParseCollectives(c.String("collectives")); err != nil {
		return config, err
	}
	sizes, err := parseSizes(c.String("sizes"))
	if err != nil {
		return config, err
	}
	config.Min, config.Max = sizes[0], sizes[1]
	config.Out, err = rowsFile(c, name)
	return config, err
}

// parseSizes reads MIN:MAX.
func parseSizes(s string) (sizes [2]int, err error) {
	low, high, both := strings.Cut(s, ":")
	if !both {
		high = low
	}
	if sizes[0], err = units.ParseBytes(low); err != nil {
		return sizes, err
	}
	if sizes[1], err = units.ParseBytes(high); err != nil {
		return sizes, err
	}
	if sizes[0] < 4 || sizes[0]%4 != 0 || sizes[1] < sizes[0] {
		return sizes, cmdline.Usagef("invalid sizes %q: want whole elements of float32, smallest first", s)
	}
	return sizes, nil
}
