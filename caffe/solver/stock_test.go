package solver

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/proto"
)

// The solver files that Caffe ships run, with the rates that they ask for.
func TestStockSolvers(t *testing.T) {
	dir := os.Getenv("SCAFFE_CAFFE_NETS")
	if dir == "" {
		t.Skip("SCAFFE_CAFFE_NETS is not set: point it at a folder with the prototxt files that BVLC Caffe ships")
	}
	for _, c := range []struct {
		solver, net    string
		channels, size int
		iter           int
		rate           float64
	}{
		{"lenet_solver.prototxt", "lenet_train_test.prototxt", 1, 28, 10000, 0.01 * math.Pow(2, -0.75)},
		{"cifar10_quick_solver.prototxt", "cifar10_quick_train_test.prototxt", 3, 32, 3000, 0.001},
		{"cifar10_full_solver.prototxt", "cifar10_full_train_test.prototxt", 3, 32, 3000, 0.001},
		{"bvlc_alexnet_solver.prototxt", "", 0, 0, 200000, 0.0001},
		{"bvlc_reference_caffenet_solver.prototxt", "", 0, 0, 99999, 0.01},
		{"bvlc_googlenet_solver.prototxt", "", 0, 0, 640000, 0.01 * 0.96 * 0.96},
	} {
		t.Run(c.solver, func(t *testing.T) {
			f, err := proto.ReadSolver(filepath.Join(dir, c.solver), proto.WithSnapshotFormat(proto.SolverParameter_BINARYPROTO))
			if err != nil {
				t.Fatal(err)
			}
			rate, err := NewRate(f.Solver)
			if err != nil {
				t.Fatal(err)
			}
			if got := float64(rate(c.iter)); math.Abs(got-c.rate) > 1e-6*c.rate {
				t.Errorf("rate of iteration %d is %v, want %v", c.iter, got, c.rate)
			}
			if c.net == "" { // built and run by package net's test
				return
			}
			*f.Solver.Net = filepath.Join(dir, c.net)
			f.Solver.TestIter[0] = 2
			s := start(t, f, Options{NoSnapshots: true, Rewrite: net.Synthetic(4, c.channels, c.size, c.size)})
			tests := 0
			s.Events.OnTest = func(r Test) {
				tests++
				if len(r.Scores) != 2 || r.Scores[0].Name != "accuracy" || r.Scores[1].LossWeight != 1 {
					t.Errorf("scores %v", r.Scores)
				}
			}
			step(t, s, 2)
			if tests != 1 {
				t.Errorf("%d tests", tests)
			}
		})
	}
}
