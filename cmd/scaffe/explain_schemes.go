package main

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/replay"
	"github.com/scaffe/scaffe/replay/workload"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// schemeFlags say which scheme serves which layer, and who serves and works.
func schemeFlags() []cli.Flag {
	return append([]cli.Flag{
		cmdline.Checked("scheme", coordinator.Auto.String(), "`SCHEME` of the net, and of layers by name, such as auto,fc6=sfb,conv*=allreduce",
			cmdline.Parsed(coordinator.ParseAsked, ""), coordinator.Names()...),
		sparsityFlag(),
	}, roleFlags()...)
}

// roleFlags say who works, and who serves what with the scheme ps.
func roleFlags() []cli.Flag {
	return []cli.Flag{
		cmdline.Checked("servers", "all", "`RANKS` that serve: all, count:4 spread over the nodes, or ranks such as 0,4",
			cmdline.Parsed(coordinator.ParsePlaces, ""), "all", "count:"),
		cmdline.Checked("workers", "all", "`RANKS` that work, likewise; every rank works or serves", cmdline.Parsed(coordinator.ParsePlaces, ""), "all", "count:"),
		cmdline.Checked("pair", units.FormatBytes(coordinator.DefaultPair), "`SIZE` of the KV pairs that servers hold",
			cmdline.Parsed(coordinator.ParsePair, "want a multiple of 4K, such as 256K or 2M")),
		cmdline.Checked("slice", coordinator.AutoSlice.String(), fmt.Sprintf("cut parameters every `N` elements, such as 50000: each slice is pushed, summed, updated and pulled by itself, "+
			"with ps as a KV pair; layer cuts nothing; auto leaves it to --scheme auto whether slices of %v pay, and elsewhere cuts nothing but pairs", coordinator.DefaultSlice),
			cmdline.Parsed(coordinator.ParseSlice, ""), "auto", "layer"),
		cmdline.Checked("placement", coordinator.PlaceEven.String(), "give KV pairs to servers `HOW`: even shares (Poseidon), round-robin (P3), whole parameters drawn, or divided where large (kvstore), or in turn (tensor)",
			cmdline.Parsed(coordinator.ParsePlacement, "want "+cmdline.Or(coordinator.Placements())), coordinator.Placements()...),
		cmdline.Checked("pull", coordinator.PullBroadcast.String(), "have servers bring parameters back `HOW`: broadcast what is updated at once, or give notice when all of a layer is, and answer whoever asks (request, KVStore's way)",
			cmdline.Parsed(coordinator.ParsePull, "want "+cmdline.Or(coordinator.Pulls())), coordinator.Pulls()...),
	}
}

// roles are what roleFlags say.
type roles struct {
	workers, servers coordinator.Places
	pair             int
	slice, maySlice  coordinator.Slice
	placement        coordinator.Placement
	pull             coordinator.Pull
}

// readRoles reads roleFlags.
func readRoles(c *cli.Context) (r roles, err error) {
	if err := cmdline.Together(c, "slice", "pair"); err != nil {
		return r, err
	}
	if r.servers, err = coordinator.ParsePlaces(c.String("servers")); err != nil {
		return r, err
	}
	if r.workers, err = coordinator.ParsePlaces(c.String("workers")); err != nil {
		return r, err
	}
	if r.pair, err = coordinator.ParsePair(c.String("pair")); err != nil {
		return r, err
	}
	if r.slice, err = coordinator.ParseSlice(c.String("slice")); err != nil {
		return r, err
	}
	if !c.IsSet("pair") {
		r.maySlice = coordinator.DefaultSlice
	}
	if r.placement, err = coordinator.ParsePlacement(c.String("placement")); err != nil {
		return r, err
	}
	r.pull, err = coordinator.ParsePull(c.String("pull"))
	return r, err
}

// readSchemes reads schemeFlags.
func readSchemes(c *cli.Context) (asked coordinator.Asked, cfg coordinator.Config, err error) {
	if asked, err = coordinator.ParseAsked(c.String("scheme")); err != nil {
		return asked, cfg, err
	}
	if cfg.Sparse, err = explainedSparse(c); err != nil {
		return asked, cfg, err
	}
	r, err := readRoles(c)
	cfg.Workers, cfg.Servers, cfg.Pair, cfg.Slice, cfg.MaySlice, cfg.Placement, cfg.Pull = r.workers, r.servers, r.pair, r.slice, r.maySlice, r.placement, r.pull
	return asked, cfg, err
}

// explainedSparse reads --sparsity, which counts whatever scheme is asked for: the bytes of dgc are told in any case.
func explainedSparse(c *cli.Context) (*coordinator.Sparse, error) {
	return readSparse(c, coordinator.Asked{Default: coordinator.DGC})
}

func explainSchemesCommand() *cli.Command {
	return &cli.Command{
		Name:  "schemes",
		Usage: "say by which scheme each layer of a net would be kept in step, and why",
		Description: "It weighs the schemes for ranks that need not run: what each moves, and how long the\n" +
			"cost model says that takes.\n\n" +
			cmdline.Examples(
				"scaffe explain schemes --profile vgg19-titanx --nodes 8",
				"scaffe explain schemes --profile vgg19-titanx --nodes 8 --scheme poseidon --format csv",
				"scaffe explain schemes --profile alexnet-k80 --nodes 4 --ppn 2 --scheme auto,fc8=ps --servers count:4",
			),
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "profile", Usage: "`PROFILE` of the net: a file, or the name of a built-in one (scaffe replay --list)", Required: true},
			cmdline.Int("nodes", 1, 1, "answer for a layout of `N` nodes"),
			cmdline.Int("ppn", 1, 1, "answer for `N` ranks per node"),
		}, schemeFlags(), selectionFlags(), []cli.Flag{formatFlag("output format")}),
		Before: cmdline.NoArguments,
		Action: explainSchemes,
	}
}

func explainSchemes(c *cli.Context) error {
	asked, cfg, err := readSchemes(c)
	if err != nil {
		return cmdline.Usage(err)
	}
	nodes, ppn := c.Int("nodes"), c.Int("ppn")
	if nodes > 1<<12 || ppn > 1<<8 {
		return cmdline.Usagef("--nodes must be at most 4096 and --ppn at most 256 (got %d and %d)", nodes, ppn)
	}
	opts, err := selectionOptions(c)
	if err != nil {
		return cmdline.Usage(err)
	}
	p, err := workload.Load(c.String("profile"))
	if err != nil {
		return err
	}
	cfg.Nodes = spec.NodesOf(nodes, ppn)
	s, err := selectorFor(opts, cfg.Nodes, ppn, selection.Registered)
	if err != nil {
		return err
	}
	audit, err := replay.Schemes(p, cfg, asked, s)
	if err != nil {
		return cmdline.Usage(err)
	}
	return audit.Write(stdout, report.Format(c.String("format")))
}
