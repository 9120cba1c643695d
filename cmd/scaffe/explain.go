package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/tune"
)

// selectionFlags are what decides on specs, for commands that let it.
func selectionFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "algorithm", Usage: "how collectives are done, a `SPEC` such as chain:8/binomial or direct/ring"},
		&cli.StringFlag{Name: "table", Usage: "tuning table, a `FILE` made by scaffe tune"},
	}
}

// selection reads selectionFlags.
func selection(c *cli.Context) (o collectives.Options, err error) {
	o.Table, o.Measure = c.String("table"), true
	if spec := c.String("algorithm"); spec != "" {
		o.Spec, err = collectives.ParseSpec(spec)
	}
	return o, err
}

func explainCommand() *cli.Command {
	return &cli.Command{
		Name:      "explain",
		Usage:     "say which algorithm serves a call, and what decided so",
		ArgsUsage: "reduce|bcast|allreduce BYTES",
		Description: "Under mpirun for the ranks that there are, with --nodes and --ppn for ranks that there might be:\n" +
			"   scaffe explain reduce 64M --nodes 4 --ppn 2",
		Flags: append(selectionFlags(),
			&cli.IntFlag{Name: "nodes", Usage: "a layout of `N` nodes, instead of the ranks that run"},
			&cli.IntFlag{Name: "ppn", Usage: "with `N` ranks on each of them"},
			&cli.IntFlag{Name: "local", Usage: "`N` ranks in this process"},
			&cli.StringFlag{Name: "type", Value: "f32", Usage: "datatype of the elements"},
			&cli.StringFlag{Name: "buffers", Value: "registered", Usage: "where buffers lie: registered (Comm.Alloc) or heap"},
			&cli.BoolFlag{Name: "nonblocking", Usage: "for Ireduce, Ibcast, Iallreduce"},
			&cli.BoolFlag{Name: "simulate", Usage: "simulate the schedules as well"},
		),
		Action: runExplain,
	}
}

func runExplain(c *cli.Context) error {
	q, err := question(c)
	if err != nil {
		return err
	}
	opts, err := selection(c)
	if err != nil {
		return err
	}
	nodes, ppn := c.Int("nodes"), c.Int("ppn")
	if nodes < 0 || ppn < 0 || c.Int("local") < 0 {
		return fmt.Errorf("--nodes %d, --ppn %d and --local %d must not be negative", nodes, ppn, c.Int("local"))
	}
	if nodes+ppn > 0 {
		return explainLayout(c, q, opts, max(nodes, 1), max(ppn, 1))
	}
	if c.Int("local") == 0 && mpi.DetectLauncher().Size < 2 {
		return fmt.Errorf("which ranks? Start it by mpirun, or give --nodes and --ppn, or --local")
	}
	return launch.Run(c.Context, launch.Options{Local: c.Int("local"), Collectives: opts}, func(_ context.Context, comm *collectives.Comm) error {
		if comm.Rank() != 0 {
			return nil
		}
		q.Nodes, q.Query.Library = comm.Nodes(), comm.HasLibrary()
		return tune.Explain(os.Stdout, comm.Selector(), q)
	})
}

// explainLayout answers for ranks that do not run.
func explainLayout(c *cli.Context, q tune.Question, opts collectives.Options, nodes, ppn int) error {
	if nodes > 1<<16 || ppn > 1<<12 {
		return fmt.Errorf("%d nodes of %d ranks: at most 65536 of 4096", nodes, ppn)
	}
	s, err := collectives.NewSelector(opts)
	if err != nil {
		return err
	}
	q.Nodes, q.Query.Library = collectives.NodesOf(nodes, ppn), mpi.Built() != ""
	for _, src := range s.Sources {
		if src.Table != nil {
			for _, w := range src.Table.Warnings(launch.Machine(0), collectives.LayoutOf(q.Nodes)) {
				fmt.Fprintf(os.Stderr, "scaffe: warning: %s\n", w)
			}
		}
	}
	return tune.Explain(os.Stdout, s, q)
}

func question(c *cli.Context) (q tune.Question, err error) {
	if c.NArg() != 2 {
		return q, fmt.Errorf("explain needs a collective and a size, as in: scaffe explain reduce 64M (it got %q)", strings.Join(c.Args().Slice(), " "))
	}
	q.Simulate, q.Query.Blocking = c.Bool("simulate"), !c.Bool("nonblocking")
	if q.Query.Verb, err = collectives.ParseVerb(c.Args().Get(0)); err != nil {
		return q, err
	}
	if q.Query.Bytes, err = units.ParseBytes(c.Args().Get(1)); err != nil {
		return q, err
	}
	if q.Query.Type, err = mem.ParseDatatype(c.String("type")); err != nil {
		return q, err
	}
	q.Query.Buffers, err = collectives.ParseBufferKind(c.String("buffers"))
	return q, err
}
