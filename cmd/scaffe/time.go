package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/kernels/blas"
	"github.com/scaffe/scaffe/replay/workload/measure"
)

func timeCommand() *cli.Command {
	return &cli.Command{
		Name:  "time",
		Usage: "measure forward and backward of every layer of a net, as caffe time does",
		Description: "Random images take the place of the net's data set, unless --data is given.\n" +
			"--out writes the times as a profile, which scaffe replay takes.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "model", Usage: "net definition, `FILE`.prototxt, or the name of a built-in one", Required: true},
			&cli.IntFlag{Name: "iterations", Value: 20, Usage: "measure `N` iterations"},
			&cli.IntFlag{Name: "warmup", Value: 2, Usage: "after `N` that do not count"},
			&cli.IntFlag{Name: "batch", Usage: "a batch of `N` samples (default: the net's own)"},
			&cli.StringFlag{Name: "phase", Value: "TRAIN", Usage: "TRAIN or TEST"},
			&cli.StringFlag{Name: "shape", Usage: "`CxHxW` of images, for data layers without crop_size"},
			&cli.BoolFlag{Name: "data", Usage: "read the net's data set"},
			&cli.StringFlag{Name: "out", Usage: "write a profile to `FILE`"},
			formatFlag("format of the times"),
		},
		Before: noArguments,
		Action: runTime,
	}
}

func runTime(c *cli.Context) error {
	format, err := report.ParseFormat(c.String("format"))
	if err != nil {
		return err
	}
	o := measure.Options{Batch: c.Int("batch"), Data: c.Bool("data")}
	phase, ok := proto.Phase_value[strings.ToUpper(c.String("phase"))]
	if !ok {
		return fmt.Errorf("--phase %q is unknown: use TRAIN or TEST", c.String("phase"))
	}
	o.Phase = proto.Phase(phase)
	if s := c.String("shape"); s != "" {
		if o.Shape, err = measure.ParseShape(s); err != nil {
			return fmt.Errorf("--shape: %w", err)
		}
	}
	n, err := measure.Open(c.String("model"), o)
	if err != nil {
		return err
	}
	defer n.Close()
	t, err := measure.Net(c.Context, n, c.Int("warmup"), c.Int("iterations"))
	if err != nil {
		return err
	}
	if out := c.String("out"); out != "" {
		host, _ := os.Hostname()
		p := t.Profile(fmt.Sprintf("scaffe time on %s (%d cores, %s, BLAS %s with %d threads), means of %d iterations",
			host, runtime.NumCPU(), runtime.GOARCH, blas.Name(), blas.Threads(), t.Iterations))
		if err := atomicfile.Write(atomicfile.OS, out, []byte(p.String())); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "scaffe: wrote %s\n", out)
	}
	return t.Write(os.Stdout, format)
}
