package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/trace"
)

func traceCommand() *cli.Command {
	iterations := cmdline.Checked("iterations", "", "only the iterations `FIRST:END`, such as 10:12 for 10 and 11", cmdline.Parsed(trace.ParseSpan, ""))
	return &cli.Command{
		Name:  "trace",
		Usage: "report or draw where the time went, from a file written by scaffe train --trace",
		Subcommands: []*cli.Command{{
			Name:        "report",
			Usage:       "print compute, communication, hidden and exposed time, and the critical path",
			ArgsUsage:   "FILE",
			Description: cmdline.Examples("scaffe trace report run.json", "scaffe trace report run.json --iterations 10:60 --format csv --table buckets"),
			Flags: []cli.Flag{
				iterations,
				formatFlag("output format"),
				cmdline.Choice("table", "layers", "with --format csv: `TABLE` to print: ranks, layers, buckets or iterations", "ranks", "layers", "buckets", "iterations"),
			},
			Before: arguments(1),
			Action: traceReport,
		}, {
			Name:        "html",
			Usage:       "write a page with the timeline, the critical path and all tables",
			ArgsUsage:   "FILE",
			Description: cmdline.Examples("scaffe trace html run.json --out run.html"),
			Flags:       []cli.Flag{iterations, &cli.StringFlag{Name: "out", Usage: "write the page to `FILE` (default: the trace's name with .html)"}},
			Before:      arguments(1),
			Action:      traceHTML,
		}, {
			Name:        "svg",
			Usage:       "draw one or a few iterations",
			ArgsUsage:   "FILE",
			Description: cmdline.Examples("scaffe trace svg run.json --iterations 10:12", "scaffe trace svg p3.json --iterations 10 --ranks 0,1 --length 2s"),
			Flags: []cli.Flag{
				iterations,
				cmdline.Checked("ranks", "", "only the ranks in `LIST`, such as 0,4", cmdline.Parsed(drawnRanks, "")),
				cmdline.Checked("length", "", "draw `TIME` from the begin of the first iteration on, such as 2s, however long the iterations take: for pictures on one scale", cmdline.Parsed(drawnLength, "")),
				&cli.StringFlag{Name: "out", Usage: "write the picture to `FILE` (default: the trace's name with .svg)"},
			},
			Before: arguments(1),
			Action: traceSVG,
		}},
	}
}

// traceFile returns the trace that the command's argument names, and the
// iterations asked for; the zero Span is all.
func traceFile(c *cli.Context) (*trace.Trace, trace.Span, error) {
	var span trace.Span
	if text := c.String("iterations"); text != "" {
		var err error
		if span, err = trace.ParseSpan(text); err != nil {
			return nil, span, cmdline.Usage(err)
		}
	}
	t, err := trace.ReadFile(c.Args().First())
	return t, span, err
}

func traceReport(c *cli.Context) error {
	t, span, err := traceFile(c)
	if err != nil {
		return err
	}
	r := trace.AnalyzeIterations(t, span)
	switch report.Format(c.String("format")) {
	case report.CSV:
		return r.CSV(stdout, c.String("table"))
	case report.JSON:
		return r.JSON(stdout)
	}
	_, err = io.WriteString(stdout, r.Text())
	return err
}

// outFile returns where a command writes.
func outFile(c *cli.Context, ext string) string {
	if out := c.String("out"); out != "" {
		return out
	}
	in := c.Args().First()
	return strings.TrimSuffix(in, filepath.Ext(in)) + ext
}

func traceHTML(c *cli.Context) error {
	t, span, err := traceFile(c)
	if err != nil {
		return err
	}
	out := outFile(c, ".html")
	if err := atomicfile.Stream(nil, out, func(w io.Writer) error { return t.HTML(w, span) }); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "wrote %s\n", out)
	return nil
}

func traceSVG(c *cli.Context) error {
	t, span, err := traceFile(c)
	if err != nil {
		return err
	}
	if span == (trace.Span{}) {
		return cmdline.Usagef("missing --iterations FIRST:END, such as 10:12")
	}
	var o trace.SVGOptions
	if text := c.String("ranks"); text != "" {
		if o.Ranks, err = drawnRanks(text); err != nil {
			return cmdline.Usage(err)
		}
	}
	if text := c.String("length"); text != "" {
		if o.Length, err = drawnLength(text); err != nil {
			return cmdline.Usage(err)
		}
	}
	b, err := t.SVG(span, o)
	if err != nil {
		return err
	}
	out := outFile(c, ".svg")
	if err := atomicfile.Write(nil, out, b); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "wrote %s\n", out)
	return nil
}

// drawnRanks reads ranks separated by commas.
func drawnRanks(text string) ([]int, error) {
	p, err := coordinator.ParsePlaces(text)
	if err != nil || p.Ranks == nil {
		return nil, fmt.Errorf("invalid ranks %q: want ranks such as 0,4, each once", text)
	}
	return p.Ranks, nil
}

// drawnLength reads a time that is more than none.
func drawnLength(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("invalid time %q: want more than 0, such as 1.8s or 250ms", text)
	}
	return d, nil
}
