//go:build cuda && cgo && linux && (amd64 || arm64)

package train_test

import (
	"context"
	"math"
	"path/filepath"
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

const onDevice = `net_param { name: "small"
  layer { name: "data" type: "DummyData" top: "data" top: "target" dummy_data_param {
    shape { dim: 4 dim: 1 dim: 8 dim: 8 } shape { dim: 4 dim: 3 } data_filler { type: "gaussian" } data_filler { type: "gaussian" } } }
  layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
  layer { name: "drop" type: "Dropout" bottom: "conv" top: "conv" }
  layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
  layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "target" top: "loss" } }
base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: 20 snapshot_after_train: false `

// TestDevice: one rank trains on a GPU as on the CPU, and goes on there from a checkpoint that it has written there; what cannot
// be had is an error.
func TestDevice(t *testing.T) {
	dir := t.TempDir()
	library, err := cudatest.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(cuda.EnvLibrary, library)
	t.Setenv(cudatest.Env, "delay=5")
	run := func(ranks int, device, snapshot string, most int) (losses []float32, s train.Summary, err error) {
		err = launch.Run(context.Background(), launch.Options{Local: ranks}, func(ctx context.Context, comm *collectives.Comm) error {
			f, err := proto.ParseSolver("solver.prototxt", []byte(onDevice))
			if err != nil {
				return err
			}
			*f.Solver.MaxIter = int32(most)
			cfg := train.Config{Solver: f, Snapshot: snapshot, Checkpoint: train.Checkpoint{Dir: filepath.Join(dir, strings.ReplaceAll(device, ":", ""))}}
			if cfg.Device, err = train.ParseDevice(device); err != nil {
				return err
			}
			cfg.Events.Solver.OnIteration = func(i solver.Iteration) { losses = append(losses, i.Loss) }
			w, err := train.New(ctx, comm, cfg)
			if err != nil {
				return err
			}
			defer w.Close()
			s, err = w.Run(ctx)
			return err
		})
		return losses, s, err
	}
	same := func(what string, got, want []float32) {
		t.Helper()
		if len(got) != len(want) || len(got) == 0 {
			t.Fatalf("%s: %d losses, not %d", what, len(got), len(want))
		}
		for i, l := range want {
			if !(math.Abs(float64(got[i]-l)) <= 1e-4*float64(l)) {
				t.Fatalf("%s: loss %d is %v, on the CPU %v", what, i, got[i], l)
			}
		}
	}
	cpu, s, err := run(1, "cpu", "", 20)
	if err != nil || s.GPU != nil {
		t.Fatal(err, s.GPU)
	}
	first, s, err := run(1, "cuda", "", 12)
	if err != nil {
		t.Fatal(err)
	}
	same("cuda", first, cpu[:12])
	if g := s.GPU; g == nil || g.Memory == 0 || g.Pinned == 0 || g.Up == 0 || g.Down == 0 || g.Fetches+g.Waits == 0 || !strings.HasPrefix(g.Name, "cuda:0 (") {
		t.Errorf("the summary has %+v", g)
	}
	rest, _, err := run(1, "cuda:0", filepath.Join(dir, "cuda"), 20)
	if err != nil {
		t.Fatal(err)
	}
	same("from the checkpoint", rest, cpu[12:])
	for _, c := range []struct {
		ranks        int
		device, want string
	}{
		{2, "cuda", "there are 2"},
		{1, "cuda:9", "there is no GPU cuda:9: there are 1"},
		{1, "cuda:", "want cpu, cuda, or cuda:N"},
		{1, "cuda:-1", "want cpu, cuda, or cuda:N"},
		{1, "gpu", "want cpu, cuda, or cuda:N"},
	} {
		if _, _, err := run(c.ranks, c.device, "", 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d ranks, %s: the error is %v: want %q", c.ranks, c.device, err, c.want)
		}
	}
}
