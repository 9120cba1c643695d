package main

import (
	"fmt"
	"path/filepath"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/caffe/data/dataset"
	"github.com/scaffe/scaffe/internal/progress"
)

func dataCommand() *cli.Command {
	force := &cli.BoolFlag{Name: "force", Usage: "replace what is there"}
	out := &cli.StringFlag{Name: "out", Usage: "make `DIR`/train_lmdb and DIR/test_lmdb", Required: true}
	in := &cli.StringFlag{Name: "in", Usage: "`DIR` with the files of the distribution", Required: true}
	seed := &cli.Uint64Flag{Name: "seed", Value: 1, Usage: "decides every random choice"}
	return &cli.Command{
		Name:  "data",
		Usage: "make data sets: LMDBs of Datum, as Caffe's own tools make them",
		Subcommands: []*cli.Command{
			{
				Name:   "glyphs",
				Usage:  "draw digits in varied faces, positions, sizes and colours: 3×32×32, ten classes, no download",
				Before: noArguments,
				Flags: []cli.Flag{
					out, force, seed,
					&cli.IntFlag{Name: "train", Value: 20000, Usage: "training samples"},
					&cli.IntFlag{Name: "test", Value: 2000, Usage: "test samples"},
				},
				Action: func(c *cli.Context) error {
					return dataset.Glyphs(dataset.GlyphsOptions{
						Out: lmdbs(c), Seed: c.Uint64("seed"), TrainSamples: c.Int("train"), TestSamples: c.Int("test"),
					})
				},
			},
			{
				Name:   "cifar10",
				Usage:  "convert the binary version of CIFAR-10",
				Before: noArguments,
				Flags:  []cli.Flag{in, out, force},
				Action: func(c *cli.Context) error {
					return dataset.CIFAR10(dataset.CIFAR10Options{Out: lmdbs(c), Dir: c.String("in")})
				},
			},
			{
				Name:   "mnist",
				Usage:  "convert MNIST's idx files, compressed or not",
				Before: noArguments,
				Flags:  []cli.Flag{in, out, force},
				Action: func(c *cli.Context) error {
					return dataset.MNIST(dataset.MNISTOptions{Out: lmdbs(c), Dir: c.String("in")})
				},
			},
			{
				Name:   "images",
				Usage:  "convert a list of image files: lines of a path, a space and a label",
				Before: noArguments,
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "list", Usage: "the list, `FILE`", Required: true},
					&cli.StringFlag{Name: "root", Usage: "`PREFIX` of every path, so it ends in a slash"},
					&cli.StringFlag{Name: "out", Usage: "the LMDB to make, `DIR`", Required: true},
					&cli.IntFlag{Name: "height", Usage: "resize to this height (with --width)"},
					&cli.IntFlag{Name: "width", Usage: "resize to this width (with --height)"},
					&cli.BoolFlag{Name: "gray", Usage: "one channel instead of three"},
					&cli.BoolFlag{Name: "encoded", Usage: "store images compressed"},
					&cli.BoolFlag{Name: "shuffle", Usage: "store them in a random order"},
					seed, force,
				},
				Action: func(c *cli.Context) error {
					return dataset.Images(dataset.ImagesOptions{
						List: c.String("list"), Root: c.String("root"), Path: c.String("out"), Force: c.Bool("force"),
						Height: c.Int("height"), Width: c.Int("width"), Gray: c.Bool("gray"), Encoded: c.Bool("encoded"),
						Shuffle: c.Bool("shuffle"), Seed: c.Uint64("seed"), Progress: showBar("images"),
					})
				},
			},
			{
				Name:   "mean",
				Usage:  "average the samples of an LMDB to a mean file",
				Before: noArguments,
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "in", Usage: "the LMDB, `DIR`", Required: true},
					&cli.StringFlag{Name: "out", Usage: "the mean, `FILE`.binaryproto"},
				},
				Action: func(c *cli.Context) error {
					means, err := dataset.Mean(dataset.MeanOptions{Source: c.String("in"), Path: c.String("out"), Progress: showBar("samples")})
					if err != nil {
						return err
					}
					for _, m := range means {
						fmt.Printf("mean_value: %.6g\n", m)
					}
					return nil
				},
			},
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
