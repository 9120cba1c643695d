// Command bench measures the collectives over all sizes and layouts, and figures of papers: see
// package github.com/scaffe/scaffe/osu-bench/campaign. scripts/bench and scripts/bench-papers start it.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/output"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/internal/version"
	"github.com/scaffe/scaffe/osu-bench/campaign"
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
				"scripts/with-mpi openmpi scripts/bench-papers poseidon-8 --quick --nodes 8",
				"CIFAR10=cifar-10-batches-bin scripts/bench-papers poseidon-11"),
		Commands: append([]*cli.Command{
			command("sizes", "measure time against size, beside the MPI library, UCC and the limit", "2,4,8,4x1,4x2", "barrier,reduce,bcast,allreduce", campaign.Sizes),
			command("regret", "measure what is selected against every spec worth measuring", "2,4,8,4x1,4x2,3x1,7x1", "reduce,bcast,allreduce", campaign.Regret),
			watchCommand(),
		}, figureCommands()...),
	}
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

// rowsFile returns where the rows go, whose folder is there then: those of --quick to a file of their own, so that
// a whole run does not go on from them.
func rowsFile(c *cli.Context, name string) (string, error) {
	out := c.String("out")
	if c.Bool("quick") {
		name += "-quick"
	}
	if out == "" {
		out = filepath.Join("build", "bench", name+"-"+filepath.Base(os.Getenv("SCAFFE_MPI_DIR"))+".csv")
	}
	return out, makeFolder(out)
}

// makeFolder makes the folder of a file.
func makeFolder(file string) error { return os.MkdirAll(filepath.Dir(file), 0o777) }

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
			&cli.StringFlag{Name: "out", Usage: "write the rows to `FILE` (default build/bench/" + name + "-MPI.csv, or " + name + "-quick-MPI.csv)"},
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
