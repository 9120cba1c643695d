package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/mem"
)

// Flags that several commands have.

func localFlag() cli.Flag {
	return cmdline.Int("local", 0, 1, "run `N` ranks in this process instead of under mpirun")
}

// selectionFlags say which algorithms run.
func selectionFlags() []cli.Flag {
	return []cli.Flag{
		cmdline.Checked("algorithm", spec.Tuned, "`SPEC` of the algorithm, such as chain:8/binomial or CB-8; tuned selects one by size",
			cmdline.Parsed(parseAlgorithm, ""), spec.Tuned, "chain", "binomial", "ring", "direct", "doubling", "halving", "linear", "mpi"),
		&cli.StringFlag{Name: "table", Usage: "select algorithms by the tuning table `FILE`, written by scaffe tune"},
	}
}

// parseAlgorithm reads --algorithm; the zero Spec stands for tuned.
func parseAlgorithm(s string) (spec.Spec, error) {
	if s == spec.Tuned || s == "" {
		return spec.Spec{}, nil
	}
	return spec.Parse(s)
}

// selectionOptions reads selectionFlags.
func selectionOptions(c *cli.Context) (o collectives.Options, err error) {
	o.Table, o.Measure = c.String("table"), true
	o.Spec, err = parseAlgorithm(c.String("algorithm"))
	o.Tuned = c.IsSet("algorithm") && len(o.Spec.Levels) == 0
	return o, err
}

func typeFlag() cli.Flag {
	var names []string
	for _, t := range mem.Datatypes {
		names = append(names, t.String())
	}
	return cmdline.Choice("type", mem.Float32.String(), "`TYPE` of the elements: "+cmdline.Or(names), names...)
}

func buffersFlag() cli.Flag {
	return cmdline.Choice("buffers", "registered", "memory of the buffers: registered is from Comm.Alloc, cuda that of the ranks' GPUs",
		selection.Registered.String(), selection.Unregistered.String(), selection.CUDA.String())
}

// formatFlag is --format of a command that writes a table.
func formatFlag(usage string) cli.Flag {
	return cmdline.Choice("format", string(report.Text), usage, string(report.Text), string(report.CSV), string(report.JSON))
}

func progressFlag() cli.Flag {
	return cmdline.Choice("progress", "auto", "show a progress bar; auto does on a terminal", "auto", "always", "never")
}

// parseSize reads a size of at least one byte.
func parseSize(s string) (int, error) {
	n, err := units.ParseBytes(s)
	if err == nil && n < 1 {
		err = errors.New("no bytes")
	}
	return n, err
}

// writable fails on all ranks where rank 0 cannot write one of some files, so
// that this is found before a long run and not after it.
func writable(ctx context.Context, comm *collectives.Comm, files ...string) error {
	var err error
	if comm.Rank() == 0 {
		for _, f := range files {
			if f != "" {
				err = errors.Join(err, atomicfile.Check(atomicfile.OS, f))
			}
		}
	}
	return comm.Agree(ctx, err)
}

// arguments refuses other numbers of arguments than those that a command's
// ArgsUsage names. It is for Before.
func arguments(n int) cli.BeforeFunc {
	return func(c *cli.Context) error {
		if c.NArg() > n {
			return cmdline.Usagef("unexpected argument %q", c.Args().Get(n))
		}
		if c.NArg() < n {
			return cmdline.Usagef("missing arguments: want %s", c.Command.ArgsUsage)
		}
		return nil
	}
}
