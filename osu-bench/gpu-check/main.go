// Command gpu-check checks on a GPU what has been proven without one: see package
// github.com/scaffe/scaffe/internal/gpucheck. The script run of the archive that `make gpu-check` makes starts it.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/gpucheck"
	"github.com/scaffe/scaffe/internal/output"
	"github.com/scaffe/scaffe/internal/version"
	"github.com/scaffe/scaffe/osu-bench/omb"
)

// With the name of a benchmark, or one as its first argument, it is that benchmark, so that an archive, or a test, has them once.
func main() {
	if p, err := omb.Find(filepath.Base(os.Args[0])); err == nil {
		omb.Main(p.Name)
		return
	}
	if len(os.Args) > 1 {
		if p, err := omb.Find(os.Args[1]); err == nil {
			os.Args = slices.Delete(os.Args, 1, 2)
			omb.Main(p.Name)
			return
		}
	}
	program := cmdline.Program{App: newApp(), Stdout: output.Stdout, Stderr: os.Stderr}
	program.Exit()
}

func newApp() *cli.App {
	return &cli.App{
		Name: "gpu-check", Usage: "check on a GPU what has been proven without one", Version: version.String(),
		Description: "It writes DIR/report.md, which grows as it goes, and keeps what programs print in DIR/log. Ctrl-C ends it, and what was run stays.\n\n" +
			cmdline.Examples("./run results", "./run results 3m"),
		Commands: []*cli.Command{{
			Name: "run", Usage: "check, and write a report",
			Description: "Its parts are, in their order: " + strings.Join(gpucheck.Parts(), ", ") + ".",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "root", Usage: "the archive's folder `DIR`", Required: true},
				&cli.StringFlag{Name: "out", Usage: "write the report to `DIR`", Required: true},
				&cli.DurationFlag{Name: "for", Usage: "end after `TIME`", Value: gpucheck.Usual},
				&cli.StringSliceFlag{Name: "only", Usage: "run these `PARTS` alone, such as Kernels,Training"},
			},
			Before: cmdline.NoArguments,
			Action: run,
		}, {
			Name: "beside", Usage: "what a check starts beside itself, and undoes when its standard input ends", Hidden: true,
			Action: func(c *cli.Context) error { return gpucheck.Beside(c.Args().Slice(), os.Stdin, os.Stdout) },
		}},
	}
}

func run(c *cli.Context) error {
	if c.Duration("for") <= 0 {
		return cmdline.Usage(errors.New("--for must be more than 0"))
	}
	ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, c.Duration("for"))
	defer cancel()
	root, err := filepath.Abs(c.String("root"))
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(c.String("out"))
	if err != nil {
		return err
	}
	return (&gpucheck.Check{Root: root, Dir: dir, Log: os.Stderr, Only: c.StringSlice("only")}).Run(ctx)
}
