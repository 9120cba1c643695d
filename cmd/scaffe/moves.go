package main

import (
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/nbc"
)

// moves is between which ranks, how and when parameters and gradients move:
// what train and replay have in common.
type moves struct {
	design exchange.Design
	scheme exchange.Scheme
	spec   spec.Spec
	bucket int
	launch launch.Options
}

func moveFlags() []cli.Flag {
	designs := designNames()
	return slices.Concat([]cli.Flag{
		cmdline.Checked("design", exchange.SCOBR.String(), "`DESIGN` of the communication: "+cmdline.Or(designs),
			cmdline.Parsed(exchange.Parse, "want "+cmdline.Or(designs)), designs...),
		cmdline.Choice("aggregate", exchange.Reduce.String(), "sum gradients at the root, which updates and broadcasts (reduce), or on every rank (allreduce)",
			exchange.Reduce.String(), exchange.Allreduce.String()),
		cmdline.Checked("bucket", auto, "group neighboring layers into buckets of at least `SIZE` bytes, such as 1M; auto chooses by the network",
			cmdline.Parsed(parseBucket, "want a size such as 256K or 4M, or auto"), auto),
	}, selectionFlags(), []cli.Flag{
		localFlag(),
		cmdline.Duration("deadline", nbc.DefaultDeadline, "abort a collective that takes longer than `TIME`, naming the rank at fault"),
		cmdline.Duration("max-deadline", nbc.DefaultMaxDeadline, "wait up to `TIME` for ranks that are late but still answer"),
	})
}

// auto, for --bucket, leaves the size to the network.
const auto = "auto"

func parseBucket(s string) (int, error) {
	if s == auto {
		return 0, nil
	}
	return parseSize(s)
}

func designNames() []string {
	var names []string
	for _, d := range exchange.All() {
		names = append(names, d.String())
	}
	return names
}

// readMoves reads the flags.
func readMoves(c *cli.Context) (m moves, err error) {
	m.launch.Collectives.Table, m.launch.Collectives.Measure = c.String("table"), true
	m.launch.Local = c.Int("local")
	m.launch.Engine.Deadline, m.launch.Engine.MaxDeadline = c.Duration("deadline"), c.Duration("max-deadline")
	if m.design, err = exchange.Parse(c.String("design")); err != nil {
		return m, err
	}
	if m.scheme, err = exchange.ParseScheme(c.String("aggregate")); err != nil {
		return m, err
	}
	if m.bucket, err = parseBucket(c.String("bucket")); err != nil {
		return m, err
	}
	m.spec, err = parseAlgorithm(c.String("algorithm"))
	return m, err
}
