//go:build cuda && cgo && linux && (amd64 || arm64)

package main

import (
	"math"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
)

// TestTrainOnGPUs: ranks of one process and of two that share a GPU, here the driver's stand-in, learn what one rank on the CPU
// learns; gradients that go through the host are told of, and others are waited for by nobody.
func TestTrainOnGPUs(t *testing.T) {
	long(t)
	const iters = 10
	dir := workplace(t, iters)
	library, err := cudatest.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(cuda.EnvLibrary, library)
	t.Setenv(cudatest.Env, "delay=5")
	train := []string{"train", "--solver", "solver.prototxt", "--deadline", "5m"}
	want := losses(t, command(t, dir, scaffe, train...))
	const through = "gradients and parameters go between the GPUs through the host's memory: "
	for _, c := range []struct {
		name, flags string
		processes   bool
		host        string // why not in place
	}{
		{"one process", "--local 2 --device cuda:0,0", false, ""},
		{"two processes", "--device cuda --scheme allreduce", true, ""},
		{"two processes by servers", "--device cuda --scheme ps", true, `the scheme ps, of layer "conv1", sums and updates on the host`},
		{"alone", "--device cuda", false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			args, program := append(append([]string{}, train...), strings.Fields(c.flags)...), scaffe
			if c.processes {
				program, args = mpirun(t), append([]string{"-np", "2", scaffe}, args...)
			}
			r := command(t, dir, program, args...)
			got := losses(t, r)
			if len(got) != len(want) {
				t.Fatalf("%d losses, on the CPU %d\n%s", len(got), len(want), r.stderr)
			}
			for i := range want {
				if !(math.Abs(got[i]-want[i]) <= 1e-3*want[i]) {
					t.Errorf("loss %d is %v, on the CPU %v", i, got[i], want[i])
				}
			}
			if told := strings.Contains(r.stderr+r.stdout, through+c.host); told != (c.host != "") {
				t.Errorf("through the host: %v\n%s", told, r.stderr)
			}
			if c.host == "" && !strings.Contains(r.stderr+r.stdout, "for the loss and what goes with it, 0.0 others") {
				t.Errorf("the summary does not say that nobody has waited for others:\n%s\n%s", r.stdout, r.stderr)
			}
		})
	}
}
