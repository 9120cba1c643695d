package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/replay/workload/measure"
)

func timeCommand() *cli.Command {
	return &cli.Command{
		Name:  "time",
		Usage: "measure the forward and backward pass of every layer of a net, as caffe time does",
		Description: "The net reads random images unless --data is given. --out writes a profile for scaffe replay.\n\n" +
			cmdline.Examples(
				"scaffe time --model train_val.prototxt --iterations 50",
				"scaffe time --model alexnet --batch 32 --out alexnet.profile",
			),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "model", Usage: "net definition, `FILE`.prototxt, or the name of a built-in net", Required: true},
			cmdline.Int("iterations", 20, 1, "measure `N` iterations"),
			cmdline.Int("warmup", 2, 0, "run `N` warm-up iterations first"),
			cmdline.Int("batch", 0, 1, "batch size `N` (default: the net's own)"),
			cmdline.Checked("phase", "TRAIN", "phase of the net", checkPhase, "TRAIN", "TEST"),
			cmdline.Checked("shape", "", "image shape `CxHxW`, such as 3x227x227, for data layers without crop_size",
				cmdline.Parsed(measure.ParseShape, "want channels, height and width, such as 3x227x227")),
			&cli.BoolFlag{Name: "data", Usage: "read the net's own data set"},
			&cli.StringFlag{Name: "out", Usage: "write a profile to `FILE`"},
			formatFlag("output format"),
		},
		Before: cmdline.NoArguments,
		Action: runTime,
	}
}

func checkPhase(s string) error {
	if _, ok := proto.Phase_value[strings.ToUpper(s)]; !ok {
		return errors.New("want TRAIN or TEST")
	}
	return nil
}

func runTime(c *cli.Context) error {
	o := measure.Options{Batch: c.Int("batch"), Data: c.Bool("data"), Phase: proto.Phase(proto.Phase_value[strings.ToUpper(c.String("phase"))])}
	if s := c.String("shape"); s != "" {
		var err error
		if o.Shape, err = measure.ParseShape(s); err != nil {
			return cmdline.Usage(err)
		}
	}
	out := c.String("out")
	if out != "" {
		if err := atomicfile.Check(atomicfile.OS, out); err != nil {
			return err
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
	if out != "" {
		if err := atomicfile.Write(atomicfile.OS, out, []byte(t.Profile(t.Source()).String())); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "scaffe: wrote %s\n", out)
	}
	return t.Write(stdout, report.Format(c.String("format")))
}
