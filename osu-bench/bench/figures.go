package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/output"
	"github.com/scaffe/scaffe/osu-bench/campaign"
	"github.com/scaffe/scaffe/replay"
)

// part is a figure of a paper, or its throughput, or its accuracy, or what its nets are made of.
type part struct {
	title string
	flags []cli.Flag
	run   func(c *cli.Context, name string) error
}

// parts returns those of a figure by what they show.
func parts(name string) map[string]part {
	all := map[string]part{}
	names, titles := campaign.Figures()
	if i := slices.Index(names, name); i >= 0 {
		all["throughput"] = part{titles[i] + ", replayed in the lab (as root)", replayFlags(), replayed}
	}
	names, titles = campaign.Trainings()
	if i := slices.Index(names, name); i >= 0 {
		all["error"] = part{titles[i] + ", trained on this machine", trainingFlags(), trained}
	}
	names, titles = campaign.Distributions()
	if i := slices.Index(names, name); i >= 0 {
		all["parameters"] = part{titles[i] + ", of the built-in profiles", []cli.Flag{netsFlag()}, distributed}
	}
	return all
}

// figureCommands are those of the figures of papers.
func figureCommands() (all []*cli.Command) {
	names, _ := campaign.Figures()
	more, _ := campaign.Trainings()
	distributions, _ := campaign.Distributions()
	for _, name := range slices.Concat(names, more, distributions) {
		if !slices.ContainsFunc(all, func(c *cli.Command) bool { return c.Name == name }) {
			all = append(all, figureCommand(name, parts(name)))
		}
	}
	return all
}

func figureCommand(name string, parts map[string]part) *cli.Command {
	command := &cli.Command{Name: name, Before: cmdline.NoArguments}
	var titles, which []string
	for _, what := range []string{"throughput", "error", "parameters"} {
		if p, there := parts[what]; there {
			which, titles = append(which, what), append(titles, p.title)
			command.Flags = append(command.Flags, p.flags...)
		}
	}
	paper := "Poseidon"
	if strings.HasPrefix(name, "p3-") {
		paper = "P3"
	}
	command.Usage = paper + "'s figure: " + strings.Join(titles, "; ")
	if len(which) > 1 {
		command.Flags = append(command.Flags, cmdline.Choice("part", "all", "measure one of the two parts alone", append(which, "all")...))
	}
	if !slices.Equal(which, []string{"parameters"}) { // of which nothing is measured
		command.Flags = append(command.Flags, &cli.BoolFlag{Name: "quick", Usage: "shorter and fewer iterations"})
	}
	command.Flags = append(command.Flags, &cli.StringFlag{Name: "out", Usage: "write the rows to `FILE` (default in build/bench)"})
	command.Action = func(c *cli.Context) error {
		for _, what := range which {
			if asked := c.String("part"); asked != "" && asked != "all" && asked != what {
				continue
			}
			if err := parts[what].run(c, name); err != nil {
				return err
			}
		}
		return nil
	}
	return command
}

func netsFlag() cli.Flag {
	return &cli.StringFlag{Name: "nets", Usage: "take the profiles in `LIST` alone, separated by commas"}
}

func replayFlags() []cli.Flag {
	return []cli.Flag{
		netsFlag(),
		cmdline.Checked("bandwidths", "", "measure the paper's bandwidths in `LIST` alone, in Gbit/s", cmdline.Parsed(parseNumbers, "want numbers such as 10,20")),
		cmdline.Checked("nodes", "", "measure on the numbers of nodes in `LIST` alone", cmdline.Parsed(parseCounts, "want numbers such as 4,8")),
		cmdline.Checked("systems", "", "compare the systems in `LIST` instead", cmdline.Parsed(replay.ParseSystems, "")),
	}
}

// replayed measures a figure in the lab.
func replayed(c *cli.Context, name string) error {
	config, err := readFigure(c, name)
	if err != nil {
		return cmdline.Usage(err)
	}
	return started(c, func(ctx context.Context, root string) error {
		return campaign.Figure(ctx, config, root, output.Stdout, os.Stderr)
	})
}

// readFigure reads the flags of a figure.
func readFigure(c *cli.Context, name string) (config campaign.FigureConfig, err error) {
	config = campaign.FigureConfig{Name: name, Quick: c.Bool("quick")}
	if s := c.String("nets"); s != "" {
		config.Nets = strings.Split(s, ",")
	}
	if config.Gbit, err = parseNumbers(c.String("bandwidths")); err != nil {
		return config, err
	}
	if config.Nodes, err = parseCounts(c.String("nodes")); err != nil {
		return config, err
	}
	if s := c.String("systems"); s != "" {
		systems, err := replay.ParseSystems(s)
		for _, y := range systems {
			config.Systems = append(config.Systems, y.Name)
		}
		if err != nil {
			return config, err
		}
	}
	config.Out, err = rowsFile(c, name)
	return config, err
}

func trainingFlags() []cli.Flag {
	return []cli.Flag{
		cmdline.Checked("ranks", "", "train on the numbers of ranks in `LIST` instead", cmdline.Parsed(parseCounts, "want numbers such as 1,2,4")),
		cmdline.Checked("schemes", "", "train with the schemes in `LIST` instead, each for the whole net; p3 is ps in slices with credit", cmdline.Parsed(parseSchemes, "")),
		cmdline.Checked("iterations", "", "train for `N` iterations instead", cmdline.Parsed(parseCount, "want a number such as 1000")),
		cmdline.Checked("batch", "", "samples of each rank in an iteration, `N` in place of 100", cmdline.Parsed(parseCount, "want a number such as 25")),
	}
}

// trained trains a figure's nets on this machine. Of a figure that has another part, the rows go to a file beside that part's.
func trained(c *cli.Context, name string) error {
	config := campaign.TrainingConfig{Name: name, Quick: c.Bool("quick"), CIFAR10: os.Getenv("CIFAR10"), Out: c.String("out")}
	var err error
	if config.Ranks, err = parseCounts(c.String("ranks")); err != nil {
		return cmdline.Usage(err)
	}
	if config.Schemes, err = parseSchemes(c.String("schemes")); err != nil {
		return cmdline.Usage(err)
	}
	if config.Iterations, err = parseCount(c.String("iterations")); err != nil {
		return cmdline.Usage(err)
	}
	if config.Batch, err = parseCount(c.String("batch")); err != nil {
		return cmdline.Usage(err)
	}
	if config.Out == "" {
		config.Out = filepath.Join("build", "bench", name+".csv")
	}
	if len(parts(name)) > 1 {
		config.Out = strings.TrimSuffix(config.Out, ".csv") + "-error.csv"
	}
	if err := makeFolder(config.Out); err != nil {
		return err
	}
	return started(c, func(ctx context.Context, root string) error {
		return campaign.Training(ctx, config, root, output.Stdout, os.Stderr)
	})
}

// distributed writes the parameters of a figure's nets.
func distributed(c *cli.Context, name string) error {
	config := campaign.ParametersConfig{Name: name, Out: c.String("out")}
	if s := c.String("nets"); s != "" {
		config.Nets = strings.Split(s, ",")
	}
	if config.Out == "" {
		config.Out = filepath.Join("build", "bench", name+".csv")
	}
	if err := makeFolder(config.Out); err != nil {
		return err
	}
	return campaign.Parameters(config, output.Stdout, os.Stderr)
}

// parseNumbers reads numbers separated by commas; none for "".
func parseNumbers(s string) ([]float64, error) {
	return parseList(s, func(word string) (float64, error) {
		x, err := strconv.ParseFloat(word, 64)
		if err != nil || !(x > 0) {
			return 0, cmdline.Usagef("invalid number %q in %q", word, s)
		}
		return x, nil
	})
}

// parseCounts reads whole numbers separated by commas; none for "".
func parseCounts(s string) ([]int, error) {
	return parseList(s, func(word string) (int, error) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return 0, cmdline.Usagef("invalid number %q in %q", word, s)
		}
		return n, nil
	})
}

// parseCount reads a whole number, 0 for "".
func parseCount(s string) (int, error) {
	all, err := parseCounts(s)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	if len(all) > 1 {
		return 0, cmdline.Usagef("invalid number %q", s)
	}
	return all[0], nil
}

// parseSchemes reads schemes separated by commas; none for "".
func parseSchemes(s string) ([]string, error) {
	return parseList(s, campaign.ParseTrained)
}

// parseList reads what is separated by commas, each thing once; nothing for "".
func parseList[T comparable](s string, parse func(word string) (T, error)) (all []T, err error) {
	if s == "" {
		return nil, nil
	}
	for word := range strings.SplitSeq(s, ",") {
		x, err := parse(word)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(all, x) {
			all = append(all, x)
		}
	}
	return all, nil
}
