//go:build cgo

package solver

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/scaffe/scaffe/caffe/data"
	"github.com/scaffe/scaffe/caffe/proto"
)

// digits makes an LMDB of 1×28×28 images: strokes whose place tells the class.
func digits(t *testing.T, path string, n, first int) {
	t.Helper()
	w, err := data.Create(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i := range n {
		s := data.Sample{Shape: data.Shape{C: 1, H: 28, W: 28}, Bytes: make([]byte, 28*28), Label: int32(i % 10), HasLabel: true}
		for y := 4; y < 24; y++ {
			for x := range 3 {
				s.Bytes[28*y+4+2*(i%10)+(first+i+y)%3+x] = byte(255 - 40*x)
			}
		}
		if err := w.Put(fmt.Sprintf("%05d", i), data.AppendDatum(nil, &s)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

// autoencoder reads the solver in testdata, in a folder with its data sets.
func autoencoder(t *testing.T) *proto.SolverFile {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/autoencoder")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	digits(t, "train_lmdb", 50, 0)
	digits(t, "test_lmdb", 20, 1)
	f, err := proto.ReadSolver("solver.prototxt")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A net with all that Caffe's autoencoder of digits has: two layers of one
// name, data layers of three states, two test states, a loss that is only
// shown, sparse fillers. It learns, stops when asked, and resumes.
func TestAutoencoder(t *testing.T) {
	f := autoencoder(t)
	s := start(t, f, Options{})
	if w := s.Warnings(); len(w) != 1 {
		t.Errorf("warnings %q, want one about the layers named loss", w)
	}
	var tests []Test
	s.Events.OnTest = func(x Test) { tests = append(tests, x) }
	solve(t, s)
	if len(tests) != 6 {
		t.Fatalf("%d tests, want those of both states at iterations 0, 8 and 16", len(tests))
	}
	for i, x := range tests {
		var names []string
		for _, score := range x.Scores {
			names = append(names, score.Name)
		}
		if !slices.Equal(names, []string{"cross_entropy", "distance"}) || !x.HasLoss || x.Loss != x.Scores[0].Value {
			t.Errorf("test %d: %+v", i, x)
		}
		if x.Net != i%2 || x.Batches != 3-x.Net || x.Scores[1].LossWeight != 0 {
			t.Errorf("test %d: %+v", i, x)
		}
	}
	if tests[0].Loss == tests[1].Loss {
		t.Error("both states are tested with the same images")
	}
	if first, last := tests[0].Loss, tests[4].Loss; !(last < first/2) {
		t.Errorf("the loss only fell from %v to %v", first, last)
	}

	stopped := start(t, f, Options{})
	stopped.Callbacks.Requested = func(iter int) (Action, error) { return Action{Stop: iter == 9, Snapshot: iter == 9}, nil }
	solve(t, stopped)
	if stopped.Iter() >= 16 {
		t.Fatalf("it went on to iteration %d", stopped.Iter())
	}
	resumed := start(t, f, Options{})
	if err := resumed.Restore(fmt.Sprintf("auto_iter_%d.solverstate", stopped.Iter())); err != nil {
		t.Fatal(err)
	}
	solve(t, resumed)
	if !slices.Equal(weights(resumed), weights(s)) {
		t.Error("resumed, it learns something else")
	}
}
