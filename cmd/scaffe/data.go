package main

import (
	"fmt"
	"path/filepath"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/caffe/data/dataset"
	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/progress"
)

func dataCommand() *cli.Command {
	return &cli.Command{
		Name:        "data",
		Usage:       "make data sets: LMDBs of Datum, as Caffe's own tools make them",
		Description: cmdline.Examples("scaffe data glyphs --out examples/glyphs", "scaffe data mean --in train_lmdb --out mean.binaryproto"),
		Subcommands: []*cli.Command{glyphsCommand(), cifar10Command(), mnistCommand(), imagesCommand(), meanCommand()},
	}
}

// Flags that several of them have.

func forceFlag() cli.Flag { return &cli.BoolFlag{Name: "force", Usage: "replace existing data sets"} }

func setsFlag() cli.Flag {
	return &cli.StringFlag{Name: "out", Usage: "write `DIR`/train_lmdb and DIR/test_lmdb", Required: true}
}

func distributionFlag() cli.Flag {
	return &cli.StringFlag{Name: "in", Usage: "`DIR` with the files of the distribution", Required: true}
}

func seedFlag() cli.Flag {
	return &cli.Uint64Flag{Name: "seed", Value: 1, Usage: "`SEED` of all random choices"}
}

func glyphsCommand() *cli.Command {
	return &cli.Command{
		Name:        "glyphs",
		Usage:       "draw digits of many shapes and colors: 3×32×32, ten classes, no download",
		Description: cmdline.Examples("scaffe data glyphs --out examples/glyphs --train 50000"),
		Before:      cmdline.NoArguments,
		Flags: []cli.Flag{
			setsFlag(), forceFlag(), seedFlag(),
			cmdline.Int("train", 20000, 1, "`N` training samples"),
			cmdline.Int("test", 2000, 1, "`N` test samples"),
		},
		Action: func(c *cli.Context) error {
			return dataset.Glyphs(dataset.GlyphsOptions{
				Out: lmdbs(c), Seed: c.Uint64("seed"), TrainSamples: c.Int("train"), TestSamples: c.Int("test"),
			})
		},
	}
}

func cifar10Command() *cli.Command {
	return &cli.Command{
		Name:        "cifar10",
		Usage:       "convert the binary version of CIFAR-10",
		Description: cmdline.Examples("scaffe data cifar10 --in cifar-10-batches-bin --out cifar10"),
		Before:      cmdline.NoArguments,
		Flags:       []cli.Flag{distributionFlag(), setsFlag(), forceFlag()},
		Action: func(c *cli.Context) error {
			return dataset.CIFAR10(dataset.CIFAR10Options{Out: lmdbs(c), Dir: c.String("in")})
		},
	}
}

func mnistCommand() *cli.Command {
	return &cli.Command{
		Name:        "mnist",
		Usage:       "convert MNIST's idx files, compressed or not",
		Description: cmdline.Examples("scaffe data mnist --in mnist --out mnist"),
		Before:      cmdline.NoArguments,
		Flags:       []cli.Flag{distributionFlag(), setsFlag(), forceFlag()},
		Action: func(c *cli.Context) error {
			return dataset.MNIST(dataset.MNISTOptions{Out: lmdbs(c), Dir: c.String("in")})
		},
	}
}

func imagesCommand() *cli.Command {
	return &cli.Command{
		Name:        "images",
		Usage:       "convert a list of image files",
		Description: "Each line of the list holds a path, a space and a label.\n\n" + cmdline.Examples("scaffe data images --list train.txt --root images/ --out train_lmdb --height 256 --width 256"),
		Before:      cmdline.NoArguments,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "list", Usage: "read paths and labels from `FILE`", Required: true},
			&cli.StringFlag{Name: "root", Usage: "put `PREFIX` before every path (end it with a slash)"},
			&cli.StringFlag{Name: "out", Usage: "write the LMDB `DIR`", Required: true},
			cmdline.Int("height", 0, 1, "resize to `N` rows (with --width)"),
			cmdline.Int("width", 0, 1, "resize to `N` columns (with --height)"),
			&cli.BoolFlag{Name: "gray", Usage: "store one channel instead of three"},
			&cli.BoolFlag{Name: "encoded", Usage: "store compressed images"},
			&cli.BoolFlag{Name: "shuffle", Usage: "store the images in random order"},
			seedFlag(), forceFlag(),
		},
		Action: func(c *cli.Context) error {
			if c.IsSet("height") != c.IsSet("width") {
				return cmdline.Usagef("--height and --width must be used together")
			}
			return dataset.Images(dataset.ImagesOptions{
				List: c.String("list"), Root: c.String("root"), Path: c.String("out"), Force: c.Bool("force"),
				Height: c.Int("height"), Width: c.Int("width"), Gray: c.Bool("gray"), Encoded: c.Bool("encoded"),
				Shuffle: c.Bool("shuffle"), Seed: c.Uint64("seed"), Progress: showBar("images"),
			})
		},
	}
}

func meanCommand() *cli.Command {
	return &cli.Command{
		Name:        "mean",
		Usage:       "average the samples of an LMDB, and print the mean of each channel",
		Description: cmdline.Examples("scaffe data mean --in train_lmdb --out mean.binaryproto"),
		Before:      cmdline.NoArguments,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "in", Usage: "read the LMDB `DIR`", Required: true},
			&cli.StringFlag{Name: "out", Usage: "write the mean to `FILE`.binaryproto"},
		},
		Action: func(c *cli.Context) error {
			means, err := dataset.Mean(dataset.MeanOptions{Source: c.String("in"), Path: c.String("out"), Progress: showBar("samples")})
			if err != nil {
				return err
			}
			for _, m := range means {
				fmt.Fprintf(stdout, "mean_value: %.6g\n", m)
			}
			return nil
		},
	}
}

// lmdbs says where a training and a test set go.
func lmdbs(c *cli.Context) dataset.Out {
	dir := c.String("out")
	return dataset.Out{
		Train: filepath.Join(dir, "train_lmdb"), Test: filepath.Join(dir, "test_lmdb"),
		Force: c.Bool("force"), Progress: showBar("samples"),
	}
}

// showBar shows a bar on a terminal.
func showBar(what string) func(done, total int) {
	if !progress.OnTerminal() {
		return nil
	}
	var bar *progressbar.ProgressBar
	return func(done, total int) {
		if bar == nil {
			bar = progress.New(total)
			bar.Describe(what)
		}
		_ = bar.Set(done)
	}
}
