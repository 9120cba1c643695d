package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check"
	"github.com/scaffe/scaffe/schedule/draw"
)

// What schedule takes on, which is about a gigabyte and a minute: the schedules
// of all ranks are in memory, and each is made by looking at all ranks.
const (
	maxRanks = 1 << 12
	maxOps   = 1 << 22
)

// collectiveArgument is the names of all collectives, of which a command takes one.
var collectiveArgument = strings.Join(collectiveNames(), "|")

func collectiveNames() (names []string) {
	for _, c := range schedule.Collectives {
		names = append(names, c.String())
	}
	return names
}

func scheduleCommand() *cli.Command {
	return &cli.Command{
		Name:      "schedule",
		Usage:     "print the schedule of a collective for every rank, and verify it",
		ArgsUsage: collectiveArgument + " SPEC",
		Description: cmdline.Examples(
			"scaffe schedule reduce chain:4/binomial --ranks 8",
			"scaffe schedule allreduce ring --svg ring.svg",
		),
		Flags: []cli.Flag{
			cmdline.Int("ranks", 4, 1, "number of ranks, `N`"),
			cmdline.Int("root", 0, 0, "`RANK` of the root"),
			cmdline.Checked("size", "1M", "`SIZE` of the buffer in bytes; of a collective of parts, of all of them; of an alltoall, of all blocks", cmdline.Parsed(parseSize, "want a size such as 256K or 4M")),
			typeFlag(),
			&cli.StringFlag{Name: "svg", Usage: "draw the schedule to `FILE` instead of printing it (- for stdout)"},
		},
		Before: arguments(2),
		Action: printSchedule,
	}
}

func printSchedule(c *cli.Context) error {
	collective, err := schedule.ParseCollective(c.Args().Get(0))
	if err != nil {
		return cmdline.Usage(err)
	}
	how, err := spec.Parse(c.Args().Get(1))
	if err != nil {
		return cmdline.Usage(err)
	}
	if c.Int("ranks") > maxRanks {
		return cmdline.Usagef("--ranks must be at most %d (got %d): the schedules of all ranks are kept in memory, to be proved together", maxRanks, c.Int("ranks"))
	}
	if c.Int("root") >= c.Int("ranks") {
		return cmdline.Usagef("--root must be less than --ranks (got %d of %d)", c.Int("root"), c.Int("ranks"))
	}
	file := c.String("svg")
	if file != "" && file != "-" {
		if err := atomicfile.Check(atomicfile.OS, file); err != nil {
			return err
		}
	}
	all, err := buildAll(c, collective, how)
	if err != nil {
		return err
	}
	if file == "" {
		for _, s := range all {
			fmt.Fprintln(stdout, s)
		}
	}
	if err := check.Prove(collective, all, c.Int("root")); err != nil {
		return err
	}
	steps, err := check.Steps(all)
	if err != nil {
		return err
	}
	if file != "" {
		err = drawSchedule(file, all, draw.Options{
			Title: fmt.Sprintf("%v %v", collective, how), Root: c.Int("root"), Group: how.Levels[0].Size,
		})
		if err != nil || file == "-" {
			return err
		}
	}
	fmt.Fprintf(stdout, "%v %v: proved correct for %d ranks; %d steps\n", collective, how, len(all), steps)
	return nil
}

// buildAll returns every rank's schedule.
func buildAll(c *cli.Context, collective schedule.Collective, how spec.Spec) ([]*schedule.Schedule, error) {
	bytes, err := units.ParseBytes(c.String("size"))
	if err != nil {
		return nil, err
	}
	dt, err := mem.ParseDatatype(c.String("type"))
	if err != nil {
		return nil, err
	}
	ops := 0
	var all []*schedule.Schedule
	for r := range c.Int("ranks") {
		s, err := spec.Build(spec.Call{
			Collective: collective, Rank: r, Size: c.Int("ranks"), Root: c.Int("root"), Count: bytes / dt.Size(), ElemSize: dt.Size(),
		}, how)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
		if ops += len(s.Ops); ops > maxOps {
			return nil, fmt.Errorf("the schedules of %d ranks have more than %d operations, too many to keep in memory: give fewer --ranks, a smaller --size or larger chunks", c.Int("ranks"), maxOps)
		}
	}
	return all, nil
}

func drawSchedule(file string, all []*schedule.Schedule, o draw.Options) error {
	svg, err := draw.SVG(all, o)
	if err != nil {
		return err
	}
	if file == "-" {
		_, err = stdout.Write(svg)
		return err
	}
	return atomicfile.Write(atomicfile.OS, file, svg)
}
