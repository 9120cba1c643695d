package doctor

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/internal/ranktest"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
	"github.com/scaffe/scaffe/launch"
)

func TestMain(m *testing.M) {
	launch.Main()
	ranktest.Main(m, rank)
}

// rank is a process that reports a finding of its list.
func rank(p ranktest.Process) {
	findings, rank := Examine(context.Background())
	for _, f := range findings {
		if f.What == p.Words[0] {
			var b bytes.Buffer
			Print(&b, []Finding{f})
			p.Report(rank, b.String())
		}
	}
}

// The list of several ranks says by which path their GPUs' memory goes between every two.
func TestGPUPaths(t *testing.T) {
	if !cuda.Built {
		t.Skip("built without the tag cuda")
	}
	library, err := cudatest.Build()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(cuda.EnvLibrary, library)
	for like, want := range map[string]string{
		"delay=5":                   "ok  GPU paths        ranks 0-1: ipc\n                      processes that share a GPU take turns: no MPS server is known to have it\n",
		"delay=5 mps=1":             "ok  GPU paths        ranks 0-1: ipc\n",
		"delay=5 devices=2 peers=0": "ok  GPU paths        ranks 0-1: staging\n",
		"delay=5 mps=1 fail=cuIpcOpenMemHandle_v2:1:201": "!!  GPU paths        ranks 0-1: staging\n    wrong: ranks 0 and 1 cannot read each other's memory on the GPU",
	} {
		t.Setenv(cudatest.Env, like)
		run := ranktest.Run(t, 2, "GPU paths")
		for r, said := range run.Reports {
			if !strings.HasPrefix(said, want) || strings.Contains(like, "mps=1") && strings.Contains(said, "turns") {
				t.Errorf("%s, rank %d: %q, want %q\n%s", like, r, said, want, run.Printed)
			}
		}
	}
}

// The list says whether an MPI library that says that it is CUDA-aware, as the stand-in does in its place when preloaded, is.
func TestCUDAAwareMPI(t *testing.T) {
	if !cuda.Built {
		t.Skip("built without the tag cuda")
	}
	library, err := cudatest.Build()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(cuda.EnvLibrary, library)
	t.Setenv("LD_PRELOAD", library)
	for like, want := range map[string]string{
		"delay=5 visible=1": "ok  CUDA-aware MPI   yes, as a process showed that sent memory of cuda:0 to itself\n",
		"delay=5":           "!!  CUDA-aware MPI   yes\n    wrong: so it says, and a process that tried ",
	} {
		t.Setenv(cudatest.Env, like)
		if run := ranktest.Run(t, 1, "CUDA-aware MPI"); !strings.HasPrefix(run.Reports[0], want) {
			t.Errorf("%s: %q, want %q\n%s", like, run.Reports[0], want, run.Printed)
		}
	}
}

// The GPUs of a stand-in for the driver, as the list shows them.
func TestGPUs(t *testing.T) {
	if !cuda.Built {
		t.Skip("built without the tag cuda")
	}
	library, err := cudatest.Build()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(cuda.EnvLibrary, library)
	t.Setenv(cuda.EnvBLAS, library)
	t.Setenv(cudatest.Env, "devices=2 mode=3 version=12080 mps=1")
	for _, c := range []struct{ dnn, want string }{
		{cuda.NoLibrary, `ok  GPUs             2, driver for CUDA 12.8
                      cuda:0 stand-in 0, 1.0 GiB, sm_80, GPU-10101010-1010-1010-1010-101010101010, PCI 0000:3b:00.0, compute mode Exclusive_Process, MPS, peer access to cuda:1
                      cuda:1 stand-in 1, 1.0 GiB, sm_80, GPU-11111111-1111-1111-1111-111111111111, PCI 0000:3c:00.0, compute mode Exclusive_Process, MPS, peer access to cuda:0
                      cuBLAS 12.4.5 (` + library + `) for products
                      no cuDNN (not found: SCAFFE_CUDNN_LIBRARY is none): convolutions by scaffe's own kernels
`},
		{"libm.so.6", "!!  GPUs             2, driver"},
		{"libm.so.6", "    wrong: SCAFFE_CUDNN_LIBRARY names no cuDNN: "},
	} {
		t.Setenv(cuda.EnvDNN, c.dnn)
		var b bytes.Buffer
		if Print(&b, []Finding{gpus()}) {
			t.Error("fatal")
		}
		if got := b.String(); !strings.Contains(got, c.want) {
			t.Errorf("%s\nwant\n%s", got, c.want)
		}
	}
}
