package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/nbc"
)

// tuned, for --algorithm, leaves it to the table or the model.
const tuned = "tuned"

// moves is between which ranks, how and when parameters and gradients move:
// what train and replay have in common.
type moves struct {
	design exchange.Design
	scheme exchange.Scheme
	spec   collectives.Spec
	bucket int
	launch launch.Options
}

func moveFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "design", Value: exchange.SCOBR.String(), Usage: "when parameters and gradients move: SC-B, SC-OB-naive, SC-OB or SC-OBR"},
		&cli.StringFlag{Name: "aggregate", Value: exchange.Reduce.String(), Usage: "reduce: the root updates and broadcasts; allreduce: every rank updates"},
		&cli.StringFlag{Name: "bucket", Value: "auto", Usage: "gather neighbouring layers until they have `SIZE` bytes, such as 1M (default: by the network)"},
		&cli.StringFlag{Name: "algorithm", Value: tuned, Usage: "how they move, a `SPEC` such as chain:8/binomial or CB-8 (default: by size)"},
		&cli.StringFlag{Name: "table", Usage: "tuning table that says so by size, a `FILE` made by scaffe tune"},
		&cli.IntFlag{Name: "local", Usage: "run `N` ranks in this process instead of mpirun's"},
		&cli.DurationFlag{Name: "deadline", Value: nbc.DefaultDeadline, Usage: "give up on a collective after this `TIME`, naming who is missing"},
	}
}

// readMoves reads the flags.
func readMoves(c *cli.Context) (m moves, err error) {
	m.launch.Collectives.Table, m.launch.Collectives.Measure = c.String("table"), true
	m.launch.Local, m.launch.Engine.Deadline = c.Int("local"), c.Duration("deadline")
	if m.launch.Local < 0 || m.launch.Engine.Deadline <= 0 {
		return m, fmt.Errorf("--local %d and --deadline %v must not be negative", m.launch.Local, m.launch.Engine.Deadline)
	}
	if m.design, err = exchange.Parse(c.String("design")); err != nil {
		return m, err
	}
	if m.scheme, err = exchange.ParseScheme(c.String("aggregate")); err != nil {
		return m, err
	}
	if size := c.String("bucket"); size != "auto" {
		if m.bucket, err = units.ParseBytes(size); err != nil || m.bucket < 1 {
			return m, fmt.Errorf("--bucket %s is no size: use such as 256K or 4M, or auto", size)
		}
	}
	if spec := c.String("algorithm"); spec != tuned && spec != "" {
		m.spec, err = collectives.ParseSpec(spec)
	}
	return m, err
}
