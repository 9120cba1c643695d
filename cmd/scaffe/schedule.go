package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check"
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
	bytes, err := collectives.ParseBytes(c.String("size"))
	if err != nil {
		return err
	}
	dt, err := mem.ParseDatatype(c.String("type"))
	if err != nil {
		return err
	}
	var all []*schedule.Schedule
	for r := range c.Int("ranks") {
		s, err := collectives.Build(collectives.Call{
			Verb: verb, Rank: r, Size: c.Int("ranks"), Root: c.Int("root"), Count: bytes / dt.Size(), ElemSize: dt.Size(),
		}, spec)
		if err != nil {
			return err
		}
		all = append(all, s)
		fmt.Println(s)
	}
	if err := collectives.Check(verb, all, c.Int("root")); err != nil {
		return err
	}
	steps, err := check.Steps(all)
	if err != nil {
		return err
	}
	fmt.Printf("%v %v: proved right for %d ranks; %d steps\n", verb, spec, len(all), steps)
	return nil
}
