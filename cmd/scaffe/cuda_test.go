//go:build cuda && cgo && linux && (amd64 || arm64)

package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
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
	library, err := cudatest.Build()
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

// TestTuneOnGPUs: tune measures specs on buffers in GPUs' memory, and the next run takes what it wrote for such buffers, and for no others.
func TestTuneOnGPUs(t *testing.T) {
	if testing.Short() {
		t.Skip("ranks of one process have no MPI library")
	}
	dir := t.TempDir()
	library, err := cudatest.Build()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Setenv(cuda.EnvLibrary, library)
	t.Setenv(cudatest.Env, "delay=5")
	r := command(t, dir, scaffe, append(quickTune, "--local", "2", "--device", "cuda:0,0")...)
	if r.code != 0 || !strings.Contains(r.stdout, "collective=reduce nodes=1 ppn=2") || !strings.Contains(r.stdout, "buffer=cuda") || strings.Contains(r.stdout, "spec=mpi") {
		t.Fatalf("tune ended with %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if r = command(t, dir, scaffe, "tune", "--lint", "t"); r.code != 0 {
		t.Errorf("lint ended with %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	// A table of another GPU is used all the same, and a warning says so.
	table, err := os.ReadFile(filepath.Join(dir, "t"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(table, []byte("\ngpu stand-in 0, 1024 MiB, sm_80")) {
		t.Errorf("the table does not name its GPU:\n%s", table)
	}
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, bytes.Replace(table, []byte("stand-in 0"), []byte("another one"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--local", "2"}, {"--ppn", "2"}} {
		for file, warns := range map[string]bool{other: true, "t": false} {
			r = command(t, dir, scaffe, append([]string{"explain", "reduce", "64K", "--table", file, "--buffers", "cuda"}, args...)...)
			if warned := strings.Contains(r.stderr, "was tuned on another machine (GPU: another one, 1024 MiB"); r.code != 0 || warned != warns {
				t.Errorf("explain %v by the table %s ended with %d\n%s%s", args, file, r.code, r.stdout, r.stderr)
			}
		}
	}
	for buffers, want := range map[string]string{"cuda": "decided by  t:", "registered": "built-in cost model"} {
		r = command(t, dir, scaffe, "explain", "reduce", "64K", "--local", "2", "--table", "t", "--buffers", buffers)
		if r.code != 0 || !strings.Contains(r.stdout, want) || !strings.Contains(r.stdout, "gpu.launch=") {
			t.Errorf("explain of %s buffers ended with %d\n%s%s", buffers, r.code, r.stdout, r.stderr)
		}
	}
	if r = command(t, dir, scaffe, "explain", "reduce", "64M", "--nodes", "2", "--ppn", "2", "--buffers", "cuda"); r.code != 0 || !strings.Contains(r.stdout, "share a GPU, where kernels take turns") {
		t.Errorf("explain of ranks that do not run ended with %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if r = command(t, dir, scaffe, "tune", "--local", "2", "--device", "cuda", "--buffers", "registered"); r.code != 2 || !strings.Contains(r.stderr, "do not go together") {
		t.Errorf("tune of two memories ended with %d\n%s", r.code, r.stderr)
	}
	if r = command(t, dir, scaffe, "doctor"); !strings.Contains(r.stdout, "measured GPU     stand-in 0, 1024 MiB, sm_80") || !strings.Contains(r.stdout, "GB/s down") {
		t.Errorf("doctor says\n%s", r.stdout)
	}
}
