package main

import (
	"context"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
	"github.com/scaffe/scaffe/tune"
)

func explainCommand() *cli.Command {
	return &cli.Command{
		Name:      "explain",
		Usage:     "say which algorithm a collective uses, and why",
		ArgsUsage: collectiveArgument + " BYTES",
		Description: "It answers for the ranks it runs on or, with --nodes and --ppn, for any other layout.\n" +
			"BYTES are those of the buffer; of a collective of parts, of all of them together, of an alltoall, of all blocks.\n" +
			"How whole layers are kept in step, and why, says the command schemes.\n\n" +
			cmdline.Examples(
				"scaffe explain reduce 64M --nodes 4 --ppn 2",
				"mpirun -np 4 scaffe explain allreduce 1M --table scaffe.table",
				"scaffe explain allgather 1M --nodes 4",
			),
		Flags: append(selectionFlags(),
			cmdline.Int("nodes", 0, 1, "answer for a layout of `N` nodes"),
			cmdline.Int("ppn", 0, 1, "answer for `N` ranks per node"),
			localFlag(),
			typeFlag(),
			buffersFlag(),
			&cli.BoolFlag{Name: "nonblocking", Usage: "explain Ireduce, Ibcast, Iallreduce, Iallgather, IreduceScatter, Ialltoall, Igather or Iscatter"},
			&cli.BoolFlag{Name: "simulate", Usage: "also simulate the schedules"},
		),
		Subcommands: []*cli.Command{explainSchemesCommand()},
		Action:      runExplain,
	}
}

func runExplain(c *cli.Context) error {
	if err := arguments(2)(c); err != nil { // not Before, which the commands below would have too
		return err
	}
	q, err := question(c)
	if err != nil {
		return cmdline.Usage(err)
	}
	opts, err := selectionOptions(c)
	if err != nil {
		return cmdline.Usage(err)
	}
	if nodes, ppn := c.Int("nodes"), c.Int("ppn"); nodes+ppn > 0 {
		return explainLayout(c, q, opts, max(nodes, 1), max(ppn, 1))
	}
	if c.Int("local") == 0 && mpi.DetectLauncher().Size < 2 {
		return cmdline.Usagef("no layout: run under mpirun, or pass --nodes and --ppn, or --local")
	}
	o := launch.Options{Local: c.Int("local"), CUDA: q.Query.Buffers == selection.CUDA, Collectives: opts}
	return launch.Run(c.Context, o, func(_ context.Context, comm *collectives.Comm) error {
		if comm.Rank() != 0 {
			return nil
		}
		q.Nodes, q.Query.Library = comm.Nodes(), comm.HasLibrary()
		q.Paths = launch.PathsOf(comm).Lines()
		return tune.Explain(stdout, comm.Selector(), q)
	})
}

// explainLayout answers for ranks that do not run.
func explainLayout(c *cli.Context, q tune.Question, opts collectives.Options, nodes, ppn int) error {
	if nodes > 1<<16 || ppn > 1<<12 {
		return cmdline.Usagef("--nodes must be at most 65536 and --ppn at most 4096 (got %d and %d)", nodes, ppn)
	}
	q.Nodes, q.Query.Library = spec.NodesOf(nodes, ppn), mpi.Built() != ""
	s, err := selectorFor(opts, q.Nodes, ppn, q.Query.Buffers)
	if err != nil {
		return err
	}
	return tune.Explain(stdout, s, q)
}

// selectorFor returns what selects for ranks that do not run, ppn of them on a
// node, with buffers of a kind, and warns of tables that were made for others.
func selectorFor(opts collectives.Options, nodes []int, ppn int, buffers selection.BufferKind) (*selection.Selector, error) {
	s, err := selection.NewSelector(selection.Flags{Spec: opts.Spec, Tuned: opts.Tuned, Table: opts.Table})
	if err != nil {
		return nil, err
	}
	machine := launch.Machine(0)
	var gpu selection.Kept
	var sharing sim.GPU
	found := false
	if buffers == selection.CUDA {
		gpu, sharing, found = launch.GPUsHere(ppn)
		machine.GPU = gpu.GPU
	}
	for _, src := range s.Sources {
		if src.Table != nil {
			for _, w := range src.Table.Warnings(machine, spec.LayoutOf(nodes)) {
				fmt.Fprintf(os.Stderr, "scaffe: warning: %s\n", w)
			}
		}
	}
	if found {
		return s.HereOn(launch.Node(0), ppn, gpu, sharing), nil
	}
	return s.Here(launch.Node(0), ppn), nil
}

func question(c *cli.Context) (q tune.Question, err error) {
	q.Simulate, q.Query.Blocking = c.Bool("simulate"), !c.Bool("nonblocking")
	if q.Query.Collective, err = schedule.ParseCollective(c.Args().Get(0)); err != nil {
		return q, err
	}
	if q.Query.Bytes, err = units.ParseBytes(c.Args().Get(1)); err != nil {
		return q, err
	}
	if q.Query.Type, err = mem.ParseDatatype(c.String("type")); err != nil {
		return q, err
	}
	q.Query.Buffers, err = selection.ParseBufferKind(c.String("buffers"))
	return q, err
}
