package dataset_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/scaffe/scaffe/caffe/data/dataset"
)

// A small data set of drawn digits, and its mean image.
func ExampleGlyphs() {
	dir, err := os.MkdirTemp("", "glyphs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	train := filepath.Join(dir, "train_lmdb")
	err = dataset.Glyphs(dataset.GlyphsOptions{
		Out:          dataset.Out{Train: train, Test: filepath.Join(dir, "test_lmdb")},
		TrainSamples: 50, TestSamples: 10, Seed: 1,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	means, err := dataset.Mean(dataset.MeanOptions{Source: train, Path: filepath.Join(dir, "mean.binaryproto")})
	fmt.Println(len(means), err)
	// Output: 3 <nil>
}
