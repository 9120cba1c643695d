package launch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/internal/ranktest"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
)

// runPaths is a process of a test that says by which paths its ranks are joined, after a sum over them. Its second word is
// how many ranks the process has. With a third one only the first process is to have a GPU.
func runPaths(p ranktest.Process) {
	local, _ := strconv.Atoi(p.Words[1])
	rank := 0
	gpu := len(p.Words) == 2 || os.Mkdir(filepath.Join(p.Folder, "first"), 0o777) == nil
	err := launch.Run(context.Background(), launch.Options{Local: local, CUDA: gpu}, func(ctx context.Context, c *collectives.Comm) error {
		rank = max(rank, c.Rank())
		b, err := c.AllocIn(mem.CUDA, 1<<20)
		if err != nil {
			return err
		}
		defer c.Free(b)
		if err := c.Allreduce(ctx, b, b, mem.Uint8, mem.Sum); err != nil {
			return err
		}
		if c.Rank() == 0 {
			p.Report(0, strings.Join(launch.PathsOf(c).Lines(), "; "))
		}
		return nil
	})
	if err != nil && !errors.Is(err, launch.ErrReported) {
		fmt.Fprintln(os.Stderr, "scaffe:", err)
	}
	if err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// runSharing is a process of a test that says what the cost model knows of the ranks' GPUs. Its second word is how many ranks the process has.
func runSharing(p ranktest.Process) {
	local, _ := strconv.Atoi(p.Words[1])
	o := launch.Options{Local: local, CUDA: true, Collectives: collectives.Options{Measure: true}}
	err := launch.Run(context.Background(), o, func(_ context.Context, c *collectives.Comm) error {
		if c.Rank() == 0 {
			g := c.Selector().Model.GPU
			p.Report(0, fmt.Sprintf("known %v, devices %g, lends %g, turns %g", g.Known(), g.Devices, g.Lends, g.Turns))
		}
		return nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// The cost model knows how the ranks of a node share GPUs: which read each other's memory, and that kernels of processes take turns where no MPS server
// has the GPU.
func TestSharing(t *testing.T) {
	if !cuda.Built {
		t.Skip("built without the tag cuda")
	}
	library, err := cudatest.Build()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(cuda.EnvLibrary, library)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv(selection.EnvMeasure, selection.MeasureOnce)
	for _, c := range []struct {
		processes, local int
		like, path, want string
	}{
		{2, 0, "delay=5", "", "known true, devices 1, lends 2, turns 1"},
		{2, 0, "delay=5 mps=1", "", "known true, devices 1, lends 2, turns 0"},
		{2, 0, "delay=5", "staging", "known true, devices 1, lends 0, turns 1"},
		{2, 0, "delay=5 devices=2", "", "known true, devices 0, lends 2, turns 0"},
		{1, 3, "delay=5", "", "known true, devices 1, lends 2, turns 0"},
		{1, 3, "delay=5 devices=2 peers=0", "", "known true, devices 2, lends 1, turns 0"},
	} {
		t.Setenv(cudatest.Env, c.like)
		t.Setenv(launch.EnvCUDAPath, c.path)
		if run := ranktest.Run(t, c.processes, "sharing", strconv.Itoa(c.local)); run.Reports[0] != c.want {
			t.Errorf("%d processes of %d ranks, %s, %s: %q, want %q\n%s", c.processes, c.local, c.like, c.path, run.Reports[0], c.want, run.Printed)
		}
	}
}

// Ranks of a process and of a node are joined by the best path that there is, or by the one that is asked for, or all say why that
// cannot be.
func TestPaths(t *testing.T) {
	if !cuda.Built {
		t.Skip("built without the tag cuda")
	}
	library, err := cudatest.Build()
	if err != nil {
		t.Fatal(err)
	}
	const forbidden = "delay=5 fail=cuIpcOpenMemHandle_v2:1:201"
	for _, c := range []struct {
		processes, local int
		like, path       string
		joined           string // what they are
		printed          string // once; nothing else where it is empty
	}{
		{1, 3, "delay=5", "", "ranks 0-2: pointer", ""},
		{1, 3, "delay=5", "staging", "ranks 0-2: staging", ""},
		{1, 4, "delay=5 devices=2", "pointer", "ranks 0-3: pointer", ""},
		{1, 3, "delay=5 devices=2 peers=0", "auto", "ranks 0,2: pointer; ranks 0,2 with rank 1: staging", ""},
		{1, 2, "delay=5 devices=2 peers=0", "pointer", "", "SCAFFE_CUDA_PATH=pointer cannot serve ranks 0 and 1: cuda:0 (stand-in 0): reach the memory of cuda:1: the two have no peer access"},
		{1, 2, "delay=5", "ipc", "", "SCAFFE_CUDA_PATH=ipc cannot serve ranks 0 and 1: theirs is pointer"},
		{1, 2, "delay=5", "nvlink", "", `invalid SCAFFE_CUDA_PATH="nvlink": want auto, or pointer, ipc, mpi or staging for all ranks`},
		{2, 0, "delay=5", "", "ranks 0-1: ipc", ""},
		{2, 0, "delay=5", "staging", "ranks 0-1: staging", ""},
		{3, 0, "delay=5 devices=2 peers=0", "", "ranks 0,2: ipc; ranks 0,2 with rank 1: staging", ""},
		{2, 0, forbidden, "", "ranks 0-1: staging", "scaffe: warning: ranks 0 and 1 cannot read each other's memory on the GPU: cuda:0 (stand-in 0): import 44 bytes of another process (containers may forbid it)"},
		{2, 0, forbidden, "ipc", "", "SCAFFE_CUDA_PATH=ipc cannot serve ranks 0 and 1: cuda:0 (stand-in 0): import 44 bytes of another process (containers may forbid it)"},
		{2, 0, "delay=5", "pointer", "", "SCAFFE_CUDA_PATH=pointer cannot serve ranks 0 and 1: theirs is ipc"},
		{2, 0, "delay=5 visible=1", "mpi", "", "SCAFFE_CUDA_PATH=mpi cannot serve ranks 0 and 1: their messages do not go by an MPI library that says that it takes GPUs' memory"},
	} {
		t.Run(fmt.Sprintf("%d processes %d ranks %s %s", c.processes, c.local, c.like, c.path), func(t *testing.T) {
			t.Setenv(cuda.EnvLibrary, library)
			t.Setenv(cudatest.Env, c.like)
			t.Setenv(launch.EnvCUDAPath, c.path)
			run := ranktest.Run(t, c.processes, "paths", strconv.Itoa(c.local))
			if run.Reports[0] != c.joined || (run.Err == nil) != (c.joined != "") {
				t.Errorf("joined by %q, %v: want %q", run.Reports[0], run.Err, c.joined)
			}
			if c.printed != "" && strings.Count(run.Printed, c.printed) != 1 || c.printed == "" && run.Printed != "" {
				t.Errorf("printed %q, want once %q", run.Printed, c.printed)
			}
		})
	}
}

// A CUDA-aware MPI library is handed GPUs' memory where nothing reads that where it lies, or where that is asked for: if a process that has tried it did not crash.
// The stand-in is preloaded, and says in the library's place that it is one.
func TestPathOfTheLibrary(t *testing.T) {
	if !cuda.Built {
		t.Skip("built without the tag cuda")
	}
	library, err := cudatest.Build()
	if err != nil {
		t.Fatal(err)
	}
	const alone = " fail=cuIpcOpenMemHandle_v2:1:201"
	for _, c := range []struct {
		like, path, joined, printed string
	}{
		{"delay=5 visible=1", "mpi", "ranks 0-1: mpi", ""},
		{"delay=5 visible=1", "auto", "ranks 0-1: ipc", ""},
		{"delay=5 visible=1" + alone, "auto", "ranks 0-1: mpi", ""},
		{"delay=5", "mpi", "", "SCAFFE_CUDA_PATH=mpi cannot serve ranks 0 and 1: a process that tried "},
		{"delay=5" + alone, "", "ranks 0-1: staging", "scaffe: warning: ranks 0 and 1 cannot read each other's memory on the GPU: "},
		{"delay=5 peers=0 devices=2", "", "ranks 0-1: staging", "scaffe: warning: ranks 0 and 1 cannot use the MPI library for GPUs' memory, which says that it takes that: a process that tried "},
	} {
		t.Run(c.like+" "+c.path, func(t *testing.T) {
			t.Setenv(cuda.EnvLibrary, library)
			t.Setenv(cudatest.Env, c.like)
			t.Setenv(launch.EnvCUDAPath, c.path)
			t.Setenv("SCAFFE_SHM", "off") // so that messages of a node go by MPI, too
			t.Setenv("LD_PRELOAD", library)
			run := ranktest.Run(t, 2, "paths", "0")
			if run.Reports[0] != c.joined || (run.Err == nil) != (c.joined != "") {
				t.Errorf("joined by %q, %v: want %q\n%s", run.Reports[0], run.Err, c.joined, run.Printed)
			}
			if c.printed != "" && strings.Count(run.Printed, c.printed) != 1 || c.printed == "" && run.Printed != "" {
				t.Errorf("printed %q, want once %q", run.Printed, c.printed)
			}
		})
	}
}

// Ranks that are to have GPUs, and others, all end with one message.
func TestSomeRanksWithGPUs(t *testing.T) {
	if !cuda.Built {
		t.Skip("built without the tag cuda")
	}
	library, err := cudatest.Build()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(cuda.EnvLibrary, library)
	t.Setenv(cudatest.Env, "delay=5")
	run := ranktest.Run(t, 3, "paths", "0", "first")
	const want = "1 of 3 ranks are to use GPUs, and the others are not: give all of them the same device"
	if run.Err == nil || strings.Count(run.Printed, want) != 1 {
		t.Errorf("%v, printed %q, want once %q", run.Err, run.Printed, want)
	}
}
