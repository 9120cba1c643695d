package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check"
	"github.com/scaffe/scaffe/schedule/draw"
)

func scheduleCommand() *cli.Command {
	return &cli.Command{
		Name:      "schedule",
		Usage:     "print what every rank does in a collective, and prove it right",
		ArgsUsage: "reduce|bcast|allreduce SPEC",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "ranks", Value: 4, Usage: "number of ranks"},
			&cli.IntFlag{Name: "root", Usage: "the root's rank"},
			&cli.StringFlag{Name: "size", Value: "1M", Usage: "`BYTES` of the buffer"},
			&cli.StringFlag{Name: "type", Value: "f32", Usage: "datatype of its elements"},
			&cli.StringFlag{Name: "svg", Usage: "draw it to `FILE` instead of printing the ops (- for stdout)"},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() != 2 {
				return fmt.Errorf("schedule needs a collective and a spec, as in: scaffe schedule --ranks 8 reduce chain:4/binomial (flags come first)")
			}
			return printSchedule(c)
		},
	}
}

func printSchedule(c *cli.Context) error {
	verb, err := collectives.ParseVerb(c.Args().Get(0))
	if err != nil {
		return err
	}
	spec, err := collectives.ParseSpec(c.Args().Get(1))
	if err != nil {
		return err
	}
	all, err := buildAll(c, verb, spec)
	if err != nil {
		return err
	}
	file := c.String("svg")
	if file == "" {
		for _, s := range all {
			fmt.Println(s)
		}
	}
	if err := collectives.Check(verb, all, c.Int("root")); err != nil {
		return err
	}
	steps, err := check.Steps(all)
	if err != nil {
		return err
	}
	if file != "" {
		err = drawSchedule(file, all, draw.Options{
			Title: fmt.Sprintf("%v %v", verb, spec), Root: c.Int("root"), Group: spec.Levels[0].Size,
		})
		if err != nil || file == "-" {
			return err
		}
	}
	fmt.Printf("%v %v: proved right for %d ranks; %d steps\n", verb, spec, len(all), steps)
	return nil
}

// buildAll returns every rank's schedule.
func buildAll(c *cli.Context, verb collectives.Verb, spec collectives.Spec) ([]*schedule.Schedule, error) {
	bytes, err := units.ParseBytes(c.String("size"))
	if err != nil {
		return nil, err
	}
	dt, err := mem.ParseDatatype(c.String("type"))
	if err != nil {
		return nil, err
	}
	if c.Int("ranks") < 1 {
		return nil, fmt.Errorf("--ranks %d: a collective has at least one rank", c.Int("ranks"))
	}
	var all []*schedule.Schedule
	for r := range c.Int("ranks") {
		s, err := collectives.Build(collectives.Call{
			Verb: verb, Rank: r, Size: c.Int("ranks"), Root: c.Int("root"), Count: bytes / dt.Size(), ElemSize: dt.Size(),
		}, spec)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func drawSchedule(file string, all []*schedule.Schedule, o draw.Options) error {
	svg, err := draw.SVG(all, o)
	if err != nil {
		return err
	}
	if file == "-" {
		_, err = os.Stdout.Write(svg)
		return err
	}
	return os.WriteFile(file, svg, 0o644)
}
