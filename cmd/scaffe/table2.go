package main

import (
	"context"
	"fmt"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/progress"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/train"
	"github.com/scaffe/scaffe/train/table2"
)

// table2Flags are those of train --report table2.
func table2Flags() []cli.Flag {
	algorithms := cmdline.Checked("algorithms", "", "with --report: compare the algorithms in `LIST`, separated by commas (default: mpi where available, CC-8, CB-4, CB-8, tuned)",
		cmdline.Parsed(table2.List, ""))
	algorithms.Aliases = []string{"specs"}
	return []cli.Flag{
		cmdline.Choice("report", "", "instead of training, compare designs and algorithms as Table 2 of the S-Caffe paper does", "table2"),
		cmdline.Checked("designs", "", "with --report: compare the designs in `LIST`, separated by commas (default: SC-B, and SC-OB and SC-OBR with tuned)",
			cmdline.Parsed(table2.List, ""), exchange.Names()...),
		algorithms,
		cmdline.Int("report-iterations", 20, 1, "with --report: measure `N` iterations of each"),
		formatFlag("with --report: output format"),
	}
}

// comparison is what the flags of --report table2 ask for.
type comparison struct {
	designs, algorithms []string
	options             table2.Options
	format              report.Format
	bar                 bool
}

// readTable2 reads the flags; nil where they ask for no report.
func readTable2(c *cli.Context) (*comparison, error) {
	if c.String("report") == "" {
		for _, f := range []string{"designs", "algorithms", "report-iterations", "format"} {
			if c.IsSet(f) {
				return nil, fmt.Errorf("--%s needs --report table2", f)
			}
		}
		return nil, nil
	}
	for _, f := range []string{"design", "algorithm", "trace", "trace-iterations", "log-json", "metrics", "snapshot-format", "checkpoint", "consistency"} {
		if err := cmdline.Together(c, "report", f); err != nil {
			return nil, err
		}
	}
	t := &comparison{format: report.Format(c.String("format")), options: table2.Options{Iterations: c.Int("report-iterations")}}
	var err error
	if t.bar, err = progress.Wanted(c.String("progress")); err != nil {
		return nil, err
	}
	if t.designs, err = table2.List(c.String("designs")); err != nil {
		return nil, fmt.Errorf("--designs: %w", err)
	}
	if t.algorithms, err = table2.List(c.String("algorithms")); err != nil {
		return nil, fmt.Errorf("--algorithms: %w", err)
	}
	_, err = table2.Rows(t.designs, t.algorithms, true)
	return t, err
}

// run is one rank's part in it.
func (t *comparison) run(ctx context.Context, comm *collectives.Comm, cfg train.Config) error {
	rows, err := table2.Rows(t.designs, t.algorithms, comm.HasLibrary())
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
		err = table.Write(stdout, t.format)
	}
	return comm.Agree(ctx, err)
}
