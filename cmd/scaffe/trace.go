package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/trace"
)

func traceCommand() *cli.Command {
	iterations := &cli.StringFlag{Name: "iterations", Usage: "only these, `FIRST:END`, such as 10:12 for 10 and 11"}
	return &cli.Command{
		Name:  "trace",
		Usage: "say or draw where the time went, from the FILE of scaffe train --trace FILE",
		Subcommands: []*cli.Command{{
			Name:      "report",
			Usage:     "compute, communication, hidden and exposed time; the critical path",
			ArgsUsage: "FILE",
			Flags: []cli.Flag{
				iterations,
				formatFlag("format of the report"),
				&cli.StringFlag{Name: "table", Value: "layers", Usage: "of csv: ranks, layers, buckets or iterations"},
			},
			Action: traceReport,
		}, {
			Name:      "html",
			Usage:     "a page with the timeline, the critical path and all tables",
			ArgsUsage: "FILE",
			Flags:     []cli.Flag{iterations, &cli.StringFlag{Name: "out", Usage: "the page's `FILE`; that of the trace with .html if not given"}},
			Action:    traceHTML,
		}, {
			Name:      "svg",
			Usage:     "a picture of one or a few iterations",
			ArgsUsage: "FILE",
			Flags:     []cli.Flag{iterations, &cli.StringFlag{Name: "out", Usage: "the picture's `FILE`; that of the trace with .svg if not given"}},
			Action:    traceSVG,
		}},
	}
}

// traceFile returns the trace that the command's argument names, and the
// iterations asked for; the zero Span is all.
func traceFile(c *cli.Context) (*trace.Trace, trace.Span, error) {
	var span trace.Span
	if c.NArg() != 1 {
		return nil, span, fmt.Errorf("%s takes one FILE, as scaffe train --trace writes it: see scaffe trace %s --help", c.Command.Name, c.Command.Name)
	}
	if text := c.String("iterations"); text != "" {
		var err error
		if span, err = trace.ParseSpan(text); err != nil {
			return nil, span, fmt.Errorf("--iterations: %w", err)
		}
	}
	t, err := trace.ReadFile(c.Args().First())
	return t, span, err
}

func traceReport(c *cli.Context) error {
	format, err := report.ParseFormat(c.String("format"))
	if err != nil {
		return err
	}
	t, span, err := traceFile(c)
	if err != nil {
		return err
	}
	r := trace.AnalyzeIterations(t, span)
	switch format {
	case report.CSV:
		return r.CSV(os.Stdout, c.String("table"))
	case report.JSON:
		return r.JSON(os.Stdout)
	}
	_, err = io.WriteString(os.Stdout, r.Text())
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
		return fmt.Errorf("which iterations? Say --iterations FIRST:END, such as 10:12")
	}
	b, err := t.SVG(span)
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
