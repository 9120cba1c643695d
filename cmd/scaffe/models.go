package main

import (
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/models"
)

func modelsCommand() *cli.Command {
	return &cli.Command{
		Name:      "models",
		Usage:     "write the built-in nets and their solvers as Caffe's prototxt, or list them",
		ArgsUsage: "[NET...]",
		Description: "It writes DIR/NET/train_val.prototxt and DIR/NET/solver.prototxt of the given nets, or of all.\n" +
			"Solvers name their nets by paths that begin with DIR: train from where this was run.\n\n" +
			cmdline.Examples("scaffe models", "scaffe models resnet50 --out models", "scaffe train --solver models/resnet50/solver.prototxt"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "out", Usage: "write below `DIR` (default: list the nets)"},
			&cli.BoolFlag{Name: "force", Usage: "replace files that differ"},
		},
		Action: func(c *cli.Context) error {
			names := c.Args().Slice()
			if len(names) == 0 {
				names = models.Names()
			}
			if c.String("out") == "" {
				return listModels(names)
			}
			paths, err := models.Write(c.String("out"), c.Bool("force"), names...)
			for _, path := range paths {
				fmt.Fprintln(os.Stderr, "wrote", path)
			}
			return err
		},
	}
}

// listModels prints the nets of those names, and what they are.
func listModels(names []string) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	for _, name := range names {
		title, err := models.Title(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\t%s\n", name, title)
	}
	return w.Flush()
}
