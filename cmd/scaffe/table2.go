package main

import (
	"context"
	"fmt"
	"os"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/internal/progress"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/train"
	"github.com/scaffe/scaffe/train/table2"
)

// table2Flags are those of train --report table2.
func table2Flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "report", Usage: "instead of training to the end, compare: table2, designs and algorithms as in S-Caffe's Table 2"},
		&cli.StringFlag{Name: "designs", Usage: "with --report: these, `LIST` with commas (default: SC-B, and as tuned SC-OB and SC-OBR)"},
		&cli.StringFlag{Name: "specs", Usage: "with --report: these algorithms, `LIST` with commas (default: mpi where there is one, CC-8, CB-4, CB-8, tuned)"},
		&cli.IntFlag{Name: "report-iterations", Value: 20, Usage: "with --report: measure `N` iterations of each"},
		formatFlag("with --report"),
	}
}

// comparison is what the flags ask for.
type comparison struct {
	designs, specs []string
	options        table2.Options
	format         report.Format
	bar            bool
}

// readTable2 reads the flags; nil where they ask for no report.
func readTable2(c *cli.Context) (*comparison, error) {
	word := c.String("report")
	if word == "" {
		for _, f := range []string{"designs", "specs", "report-iterations", "format"} {
			if c.IsSet(f) {
				return nil, fmt.Errorf("--%s belongs to --report table2", f)
			}
		}
		return nil, nil
	}
	if word != "table2" {
		return nil, fmt.Errorf("--report %q is unknown: use table2", word)
	}
	for _, f := range []string{"design", "algorithm", "trace", "trace-iterations", "log-json", "metrics", "snapshot-format"} {
		if c.IsSet(f) {
			return nil, fmt.Errorf("--report table2 has no use for --%s", f)
		}
	}
	t := &comparison{options: table2.Options{Iterations: c.Int("report-iterations")}}
	if t.options.Iterations < 1 {
		return nil, fmt.Errorf("--report-iterations must be at least 1 (got %d)", t.options.Iterations)
	}
	var err error
	if t.format, err = report.ParseFormat(c.String("format")); err != nil {
		return nil, err
	}
	if t.bar, err = progress.Wanted(c.String("progress")); err != nil {
		return nil, err
	}
	if t.designs, err = table2.List(c.String("designs")); err != nil {
		return nil, fmt.Errorf("--designs: %w", err)
	}
	if t.specs, err = table2.List(c.String("specs")); err != nil {
		return nil, fmt.Errorf("--specs: %w", err)
	}
	_, err = table2.Rows(t.designs, t.specs, true)
	return t, err
}

// run is one rank's part in it.
func (t *comparison) run(ctx context.Context, comm *collectives.Comm, cfg train.Config) error {
	rows, err := table2.Rows(t.designs, t.specs, comm.HasLibrary())
	if err != nil {
		return err
	}
	o := t.options
	var bar *progressbar.ProgressBar
	if t.bar && comm.Rank() == 0 {
		bar = progress.New(-1)
		o.Tell = func(done, of int, next table2.Row) {
			bar.ChangeMax(of)
			bar.Describe(next.String())
			_ = bar.Set(done)
		}
	}
	table, err := table2.Run(ctx, comm, cfg, rows, o)
	if bar != nil {
		_ = bar.Finish()
	}
	if err == nil && comm.Rank() == 0 {
		err = table.Write(os.Stdout, t.format)
	}
	return comm.Agree(ctx, err)
}
