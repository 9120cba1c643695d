//go:build cuda && cgo && linux && (amd64 || arm64)

package train_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/train"
)

// Training learns with cuBLAS and cuDNN what it learns on the CPU, on one rank and on two that share a GPU, twice with the same
// bits, and says with which; TF32 without what it takes is an error, as is a library that fails, before anything is trained or in an iteration.
func TestDeviceLibraries(t *testing.T) {
	standIn(t)
	run := func(ranks int, device string, m cuda.Math) (losses []float32, s train.Summary, err error) {
		err = launch.Run(context.Background(), launch.Options{Local: ranks}, func(ctx context.Context, comm *collectives.Comm) error {
			f, err := proto.ParseSolver("solver.prototxt", []byte(onDevice))
			if err != nil {
				return err
			}
			cfg := train.Config{Solver: f, Math: m}
			if cfg.Device, err = train.ParseDevice(device); err != nil {
				return err
			}
			if comm.Rank() == 0 {
				cfg.Events.Solver.OnIteration = func(i solver.Iteration) { losses = append(losses, i.Loss) }
			}
			w, err := train.New(ctx, comm, cfg)
			if err != nil {
				return err
			}
			defer w.Close()
			of, err := w.Run(ctx)
			if comm.Rank() == 0 {
				s = of
			}
			return err
		})
		return losses, s, err
	}
	for _, ranks := range []int{1, 2} {
		want, _, err := run(ranks, "cpu", cuda.F32)
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(cuda.EnvBLAS, standInPath)
		t.Setenv(cuda.EnvDNN, standInPath)
		got, s, err := run(ranks, "cuda:0", cuda.F32)
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := run(ranks, "cuda:0", cuda.F32)
		if err != nil || len(got) != len(want) || len(again) != len(want) || len(want) == 0 {
			t.Fatalf("%d, %d and %d losses, %v", len(want), len(got), len(again), err)
		}
		for i, w := range want {
			if !(math.Abs(float64(got[i]-w)) <= 1e-4*float64(w)) || got[i] != again[i] {
				t.Fatalf("%d ranks, loss %d: %v and again %v, on the CPU %v", ranks, i, got[i], again[i], w)
			}
		}
		if g := s.GPU; g == nil || !strings.HasSuffix(g.Name, "), cuBLAS 12.4.5, cuDNN 9.1.0") {
			t.Errorf("%d ranks: the summary has %+v", ranks, g)
		}
	}
	if _, s, err := run(1, "cuda", cuda.TF32); err != nil || s.GPU == nil || !strings.HasSuffix(s.GPU.Name, "cuDNN 9.1.0, tf32") {
		t.Errorf("tf32: %+v, %v", s.GPU, err)
	}
	fails := func(ranks int, device string, m cuda.Math, want string) {
		t.Helper()
		if _, _, err := run(ranks, device, m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d ranks, device %s, math %v: the error is %v: want %q", ranks, device, m, err, want)
		}
	}
	fails(1, "cpu", cuda.TF32, "math tf32 is of GPUs, and the device is cpu")
	cudatest.Change(t, standInPath, "fail=cudnnConvolutionForward:5:8", "fail=none")
	fails(2, "cuda:0", cuda.F32, "cudnnConvolutionForward: CUDNN_STATUS_EXECUTION_FAILED (8)")
	cudatest.Change(t, standInPath, "fail=none fail=cublasCreate_v2:1:3", "fail=none")
	fails(2, "cuda:0", cuda.F32, "device cuda:0: cuda:0 (stand-in 0): use NVIDIA's libraries: cuBLAS 12.4.5 (")
	t.Setenv(cuda.EnvBLAS, cuda.NoLibrary)
	fails(1, "cuda", cuda.TF32, "math tf32 takes cuBLAS, which is missing")
}
