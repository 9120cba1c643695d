//go:build cuda && cgo && linux && (amd64 || arm64)

package omb

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/internal/ranktest"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
	"github.com/scaffe/scaffe/mem"
)

// standIn has a test run itself in a process that loads the stand-in for the driver, or, where none is built, finds no
// driver at all, and reports whether it is that process. A process looks for a driver once.
func standIn(t *testing.T, built bool) bool {
	t.Helper()
	if os.Getenv("SCAFFE_TEST_STANDIN") != "" {
		return true
	}
	library := "/nonexistent/libcuda.so.1"
	if built {
		var err error
		if library, err = cudatest.Build(); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), "SCAFFE_TEST_STANDIN=1", cuda.EnvLibrary+"="+library, cudatest.Env+"=delay=10 seed=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// skipWithTheOther skips a test of ranks in one process where the tests run once more, with another MPI library.
func skipWithTheOther(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("ranks of one process have no MPI library")
	}
}

// Buffers in a GPU's memory: every program but that of the CPU's kernels validates.
func TestCUDALocal(t *testing.T) {
	skipWithTheOther(t)
	if !standIn(t, true) {
		return
	}
	for _, p := range Programs {
		if p.is(local | barrier) {
			continue
		}
		for _, row := range ranIt(t, p.Name, "--local 2 -c -i 3 -x 1 -m 64:16K -d cuda -T mpi_float") {
			if row[len(row)-1] != "Pass" {
				t.Errorf("%s: row %q", p.Name, row)
			}
		}
	}
	for _, line := range []string{
		"osu_allreduce --local 3 -c -i 2 -x 0 -m 1M:4M -d cuda --algorithm tuned,ring,chain:2/binomial",
		"osu_reduce --local 3 -c -i 4 -x 0 -m 64:4K -d cuda -l -k rotate --persistent",
		"osu_ireduce --local 2 -c -i 4 -x 0 -m 64K:64K -d cuda -l -t 2",
	} {
		name, line, _ := strings.Cut(line, " ")
		if rows := ranIt(t, name, line); len(rows) == 0 {
			t.Errorf("%s %s: no rows", name, line)
		}
	}
	var stdout, stderr bytes.Buffer
	err := Run(context.Background(), program(t, "osu_allreduce"), strings.Fields("--local 2 -m 64:64 -d cuda --algorithm tuned,mpi"), &stdout, &stderr)
	if err == nil || !strings.Contains(err.Error(), "not used on cuda memory") {
		t.Errorf("the MPI library on device memory: %v", err)
	}
}

// Processes of a node that share a GPU, over shared memory and over MPI alone.
func TestCUDAMPI(t *testing.T) {
	dir, mpi := ranktest.Programs(t), os.Getenv("SCAFFE_MPI_DIR")
	library, err := cudatest.Build()
	if err != nil {
		t.Fatal(err)
	}
	p := program(t, "osu_allreduce")
	t.Setenv(cuda.EnvLibrary, library)
	t.Setenv(cudatest.Env, "delay=10 seed=1")
	args := []string{"-np", "2", filepath.Join(dir, p.Name), "-d", "cuda", "-c", "-i", "3", "-x", "1", "-T", "mpi_float"}
	for _, shm := range []string{"on", "off"} {
		t.Setenv("SCAFFE_SHM", shm)
		t.Setenv("SCAFFE_CUDA_PATH", "auto")
		checkMPI(t, p, false, 5, filepath.Join(mpi, "bin", "mpirun"), append(args, "-m", "64:4M", "--factor", "16"))
		t.Setenv("SCAFFE_CUDA_PATH", "staging") // of a message larger than its pieces
		checkMPI(t, p, false, 1, filepath.Join(mpi, "bin", "mpirun"), append(args, "-m", "24M:24M", "-M", "1G", "--algorithm", "binomial"))
	}
}

// By an MPI library that is CUDA-aware, which the stand-in says in its place when it is preloaded.
func TestCUDAAwareMPI(t *testing.T) {
	dir, mpi := ranktest.Programs(t), os.Getenv("SCAFFE_MPI_DIR")
	library, err := cudatest.Build()
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		cuda.EnvLibrary: library, "LD_PRELOAD": library, cudatest.Env: "delay=10 seed=1 visible=1", "SCAFFE_SHM": "off", "SCAFFE_CUDA_PATH": "mpi",
	} {
		t.Setenv(name, value)
	}
	for _, name := range []string{"osu_allreduce", "osu_bcast"} {
		args := []string{"-np", "2", filepath.Join(dir, name), "-d", "cuda", "-c", "-i", "3", "-x", "1", "-T", "mpi_float", "-m", "4:4M", "--factor", "32"}
		checkMPI(t, program(t, name), false, 5, filepath.Join(mpi, "bin", "mpirun"), args)
	}
}

// A wrong element of a result on the device is found.
func TestCUDAValidationSeesIt(t *testing.T) {
	skipWithTheOther(t)
	if !standIn(t, true) {
		return
	}
	o, err := Parse(program(t, "osu_allreduce"), strings.Fields("--local 2 -c -i 2 -x 0 -m 64:64 -d cuda"))
	if err != nil {
		t.Fatal(err)
	}
	o.corrupt = func(rank, iteration int, out mem.Buffer) {
		if rank == 1 && iteration == 1 {
			mem.Bytes(out)[out.Len()-1] ^= 1
		}
	}
	var stdout, stderr bytes.Buffer
	if err := run(context.Background(), program(t, "osu_allreduce"), o, &stdout, &stderr); err == nil || !strings.Contains(err.Error(), "validation failed") {
		t.Errorf("a spoilt element passes: %v", err)
	}
}

// Without a driver a line says so.
func TestCUDAWithoutDriver(t *testing.T) {
	if !standIn(t, false) {
		return
	}
	var stdout, stderr bytes.Buffer
	err := Run(context.Background(), program(t, "osu_reduce"), strings.Fields("--local 2 -m 64:64 -d cuda"), &stdout, &stderr)
	if err == nil || !strings.Contains(err.Error(), "CUDA driver") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
}
