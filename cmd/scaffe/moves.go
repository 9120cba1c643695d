package main

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// moves is between which ranks, how and when parameters and gradients move:
// what train and replay have in common.
type moves struct {
	design exchange.Design
	scheme exchange.Scheme
	// Of the scheme ps:
	servers coordinator.Places
	pair    int
	spec    spec.Spec
	bucket  int
	launch  launch.Options
}

func moveFlags() []cli.Flag {
	designs, servers := exchange.Names(), serverFlags()
	return slices.Concat([]cli.Flag{
		cmdline.Checked("design", exchange.SCOBR.String(), "`DESIGN` of the communication: "+cmdline.Or(designs),
			cmdline.Parsed(exchange.Parse, "want "+cmdline.Or(designs)), designs...),
		schemeFlag(), servers[0], servers[1],
		cmdline.Checked("bucket", auto, "group neighboring layers into buckets of at least `SIZE` bytes, such as 1M; auto chooses by the network",
			cmdline.Parsed(parseBucket, "want a size such as 256K or 4M, or auto"), auto),
	}, selectionFlags(), []cli.Flag{
		localFlag(),
		cmdline.Duration("deadline", nbc.DefaultDeadline, "abort a collective that takes longer than `TIME`, naming the rank at fault"),
		cmdline.Duration("max-deadline", nbc.DefaultMaxDeadline, "wait up to `TIME` for ranks that are late but still answer"),
	})
}

// schemeFlag says how replicas are kept in step. Its alias is its name of before.
func schemeFlag() cli.Flag {
	reduce, allreduce, ps := exchange.Reduce.String(), exchange.Allreduce.String(), exchange.PS.String()
	f := cmdline.Checked("scheme", reduce, "`SCHEME` of the net: sum gradients at the root, which updates and broadcasts (reduce), on every rank (allreduce), or at servers, KV pair by KV pair (ps); the others that explain schemes weighs cannot be executed yet",
		cmdline.Parsed(parseScheme, ""), reduce, allreduce, ps)
	f.Aliases = []string{"aggregate"}
	return f
}

// parseScheme reads a scheme that can be executed, and says which else are known.
func parseScheme(s string) (exchange.Scheme, error) {
	scheme, err := coordinator.ParseScheme(s)
	if err == nil && (scheme == exchange.Reduce || scheme == exchange.Allreduce || scheme == exchange.PS) {
		return scheme, nil
	}
	if _, failed := coordinator.ParseAsked(s); failed == nil {
		return 0, fmt.Errorf("unknown scheme %q: it can be weighed (scaffe explain schemes), and not executed yet: want reduce, allreduce or ps", s)
	}
	return 0, fmt.Errorf("unknown scheme %q: want reduce (the root updates and broadcasts), allreduce (every rank updates) or ps (servers update and broadcast)", s)
}

// auto, for --bucket, leaves the size to the network.
const auto = "auto"

func parseBucket(s string) (int, error) {
	if s == auto {
		return 0, nil
	}
	return parseSize(s)
}

// readMoves reads the flags.
func readMoves(c *cli.Context) (m moves, err error) {
	if m.launch.Collectives, err = selectionOptions(c); err != nil {
		return m, err
	}
	// It is for gradients and parameters; what else ranks tell each other is selected for.
	m.spec, m.launch.Collectives.Spec = m.launch.Collectives.Spec, spec.Spec{}
	m.launch.Local = c.Int("local")
	m.launch.Engine.Deadline, m.launch.Engine.MaxDeadline = c.Duration("deadline"), c.Duration("max-deadline")
	if m.design, err = exchange.Parse(c.String("design")); err != nil {
		return m, err
	}
	if m.scheme, err = parseScheme(c.String("scheme")); err != nil {
		return m, err
	}
	if m.servers, m.pair, err = readServers(c); err != nil {
		return m, err
	}
	m.bucket, err = parseBucket(c.String("bucket"))
	return m, err
}
