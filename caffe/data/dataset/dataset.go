// Package dataset makes data sets for the data layers: LMDBs of Datum drawn
// from fonts (Glyphs), converted from the CIFAR-10 and MNIST distributions and
// from lists of image files, and mean images.
//
//	err := dataset.Glyphs(dataset.GlyphsOptions{
//		Out: dataset.Out{Train: "glyphs_train_lmdb", Test: "glyphs_test_lmdb"},
//	})
//
// Keys, channel order and contents are those of Caffe's own tools, so that
// stock nets read them and Caffe reads what is made here. Every maker writes
// beside its place and moves there when it is done; an error leaves what was
// there before.
package dataset

import (
	"errors"
	"fmt"

	"github.com/scaffe/scaffe/caffe/data"
)

// Out says where a maker of a training and a test set writes.
type Out struct {
	// Train and Test are the LMDB directories to make; an empty one is left out.
	Train, Test string
	// Force replaces LMDBs that exist.
	Force bool
	// Progress, where set, is called now and then with how many of all samples
	// are done, from one goroutine.
	Progress func(done, total int)
}

func (o *Out) check() error {
	if o.Train == "" && o.Test == "" {
		return errors.New("dataset: missing path of the training or the test set")
	}
	if o.Train == o.Test {
		return fmt.Errorf("dataset: %s is both the training and the test set", o.Train)
	}
	for _, path := range []string{o.Train, o.Test} {
		if err := data.CheckTarget(path, o.Force); path != "" && err != nil {
			return fmt.Errorf("dataset: %w", err)
		}
	}
	return nil
}

// meter counts samples for a Progress function, which it calls once in a
// hundred and at the end.
type meter struct {
	report      func(done, total int)
	done, total int
}

func (m *meter) add() {
	m.done++
	if m.report != nil && (m.done%100 == 0 || m.done == m.total) {
		m.report(m.done, m.total)
	}
}

// write makes one LMDB of what fill puts into it, or nothing where path is empty.
func write(path string, force bool, fill func(w *data.Writer) error) error {
	if path == "" {
		return nil
	}
	w, err := data.Create(path, force)
	if err != nil {
		return fmt.Errorf("dataset: %w", err)
	}
	defer w.Abort()
	if err := fill(w); err != nil {
		return fmt.Errorf("dataset: %w", err)
	}
	if err := w.Commit(); err != nil {
		return fmt.Errorf("dataset: %w", err)
	}
	return nil
}
