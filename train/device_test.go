//go:build cuda && cgo && linux && (amd64 || arm64)

package train_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/trace"
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

// standInPath is where the driver's stand-in was when the first test that asked loaded it.
var standInPath string

// standIn has the driver's stand-in take the driver's place, as it is without failures.
func standIn(t *testing.T) {
	t.Helper()
	if standInPath == "" {
		library, err := cudatest.Build()
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(cudatest.Env, "delay=5")
		if err := cudatest.Load(library); err != nil {
			t.Fatal(err)
		}
		standInPath = library
	}
}

// TestDevice: one rank trains on a GPU as on the CPU, and goes on there from a checkpoint that it has written there; what cannot
// be had is an error.
func TestDevice(t *testing.T) {
	standIn(t)
	dir := t.TempDir()
	run := func(ranks int, device, snapshot string, most int) (losses []float32, s train.Summary, err error) {
		err = launch.Run(context.Background(), launch.Options{Local: ranks}, func(ctx context.Context, comm *collectives.Comm) error {
			f, err := proto.ParseSolver("solver.prototxt", []byte(onDevice))
			if err != nil {
				return err
			}
			*f.Solver.MaxIter = int32(most)
			cfg := train.Config{Solver: f, Bucket: 1, Snapshot: snapshot, Checkpoint: train.Checkpoint{Dir: filepath.Join(dir, strings.ReplaceAll(device, ":", ""))}}
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
	if s.GPU.Fetches > 12 {
		t.Errorf("a lone rank of several buckets has waited %d times for what 12 passes come to: want once for each", s.GPU.Fetches)
	}
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
		{1, "cuda:9", "there is no GPU cuda:9: there are 1"},
		{2, "cuda:0,9", "rank 1: device cuda:0,9: cuda: there is no GPU cuda:9: there are 1"},
		{1, "cuda:", "want cpu, cuda, or cuda:LIST"},
		{1, "cuda:-1", "want cpu, cuda, or cuda:LIST"},
		{1, "gpu", "want cpu, cuda, or cuda:LIST"},
	} {
		if _, _, err := run(c.ranks, c.device, "", 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d ranks, %s: the error is %v: want %q", c.ranks, c.device, err, c.want)
		}
	}
}

// TestDeviceRanks: ranks that share a GPU learn what ranks on the CPU learn, by every design and scheme, with tests and
// snapshots between, which move from one to the other; all ranks' parameters stay equal where every rank updates.
func TestDeviceRanks(t *testing.T) {
	standIn(t)
	path, dir := files(t, 30)
	short(t, path)
	most := map[string]curve{} // on the CPU, by scheme
	for _, c := range []struct {
		name    string
		ranks   int
		designs []exchange.Design
		change  func(c *train.Config)
	}{
		{"allreduce", 2, []exchange.Design{exchange.SCB, exchange.SCOBR}, nil},
		{"ps", 2, []exchange.Design{exchange.SCOBR}, nil},
		{"sfb", 2, []exchange.Design{exchange.SCB, exchange.SCOBR}, nil},
		{"adam", 2, []exchange.Design{exchange.SCOBR}, nil},
		{"poseidon", 2, []exchange.Design{exchange.SCOBR}, nil},
		{"onebit", 2, []exchange.Design{exchange.SCOBR}, nil},
		{"dgc", 2, []exchange.Design{exchange.SCOBR}, func(c *train.Config) { c.Sparse = &coordinator.Sparse{Sparsity: 0.9} }},
		{"reduce,ip*=allreduce", 2, []exchange.Design{exchange.SCOBR}, nil},
		{"reduce", 3, []exchange.Design{exchange.SCOBR}, nil},
		{"reduce", 2, []exchange.Design{exchange.SCOBR}, func(c *train.Config) { c.Slice, c.Credit = 1<<10, 2 }},
		{"reduce", 2, exchange.All(), nil},
	} {
		config := func(d exchange.Design, device string) func(int, *train.Config) {
			return func(_ int, cfg *train.Config) {
				cfg.Device, cfg.Design, cfg.Asked, cfg.Bucket = onGPU(t, device), d, ask(t, c.name), 1
				if c.change != nil {
					c.change(cfg)
				}
			}
		}
		cpu, known := most[c.name]
		if !known {
			cpu = mustRun(t, c.ranks, path, config(exchange.SCOBR, "cpu"))
			most[c.name] = cpu
		}
		for _, d := range c.designs {
			got := mustRun(t, c.ranks, path, config(d, "cuda:0,0"))
			if err := errors.Join(near(cpu.loss, got.loss), near(cpu.scores, got.scores)); err != nil {
				t.Errorf("%d ranks, %s, %v: %v", c.ranks, c.name, d, err)
			}
		}
	}
	cpu := most["reduce"]
	resumed := func(device string, snapshot string) error {
		got := mustRun(t, 2, path, func(_ int, c *train.Config) { c.Device, c.Snapshot = onGPU(t, device), snapshot })
		return near(cpu.loss[10:], got.loss)
	}
	state := filepath.Join(dir, "s_iter_10.solverstate") // of a GPU's run
	if err := resumed("cpu", state); err != nil {
		t.Errorf("from a GPU's snapshot on the CPU: %v", err)
	}
	mustRun(t, 2, path, nil)
	for _, device := range []string{"cuda", "cuda:0,0"} {
		if err := resumed(device, state); err != nil {
			t.Errorf("from the CPU's snapshot on %s: %v", device, err)
		}
	}
}

// short makes the solver's run short.
func short(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.NewReplacer("test_iter: 5", "test_iter: 2", "test_interval: 25", "test_interval: 10", "max_iter: 50", "max_iter: 20", "snapshot: 20", "snapshot: 10").Replace(string(text)))
}

// inPlace starts ranks whose gradients are reduced in the memory of the GPU that they share.
func inPlace(ranks int) launch.Options {
	return launch.Options{Local: ranks, CUDA: true, GPUs: []int{0}, MayLack: true}
}

// bits reports where curves differ in a bit.
func bits(a, b []float64) error {
	if !slices.Equal(a, b) {
		return fmt.Errorf("%v, and not %v", a, b)
	}
	return nil
}

// TestDeviceInPlace: gradients that are reduced where they lie, by every design, give the bits that they give through the
// host, scores and snapshots included, and the host waits once in an iteration, for the loss.
func TestDeviceInPlace(t *testing.T) {
	standIn(t)
	path, _ := files(t, 30)
	short(t, path)
	spec, err := spec.Parse("binomial")
	if err != nil {
		t.Fatal(err)
	}
	host := map[string]curve{} // through the host
	for _, c := range []struct {
		scheme string
		ranks  int
		slice  coordinator.Slice
	}{{"reduce", 2, 0}, {"allreduce", 2, 0}, {"allreduce", 3, 1 << 10}, {"reduce", 3, 1 << 10}} {
		designs := []exchange.Design{exchange.SCOBR}
		switch {
		case c.scheme == "reduce" && c.ranks == 2:
			designs = append(exchange.All(), exchange.WFBP, exchange.TF)
		case c.ranks == 2:
			designs = append(designs, exchange.SCB, exchange.SCOBNaive)
		}
		for _, d := range designs {
			config := func(_ int, cfg *train.Config) {
				cfg.Device, cfg.Design, cfg.Asked, cfg.Bucket, cfg.Spec, cfg.Slice = onGPU(t, "cuda:0"), d, ask(t, c.scheme), 1, spec, c.slice
				*cfg.Solver.Solver.MaxIter = 12
			}
			key := fmt.Sprint(c)
			want, known := host[key]
			if !known {
				want = mustRun(t, c.ranks, path, config)
				host[key] = want
			}
			workers := make([]*train.Worker, c.ranks)
			got, err := runWith(t, inPlace(c.ranks), path, config, func(rank int, w *train.Worker) {
				if workers[rank] = w; !w.InPlace() {
					t.Errorf("rank %d: %v goes through the host", rank, c)
				}
			})
			if err != nil {
				t.Fatalf("%v, %v: %v", c, d, err)
			}
			for rank, w := range workers {
				if n := w.WaitsInside(); n > 0 {
					t.Errorf("%v, %v: rank %d has waited %d times for its GPU in iterations, besides for the loss", c, d, rank, n)
				}
			}
			if err := errors.Join(bits(want.loss, got.loss), bits(want.scores, got.scores)); err != nil || !bytes.Equal(want.snapshot, got.snapshot) {
				t.Errorf("%v, %v: %v, or another snapshot", c, d, err)
			}
		}
	}
}

// TestDeviceInPlaceResumes: a run goes on from a snapshot with the bits of one that was not interrupted.
func TestDeviceInPlaceResumes(t *testing.T) {
	standIn(t)
	path, dir := files(t, 30)
	short(t, path)
	for _, scheme := range []string{"reduce", "allreduce"} {
		train := func(snapshot string) curve {
			c, err := runWith(t, inPlace(2), path, func(_ int, c *train.Config) {
				c.Device, c.Asked, c.Bucket, c.Snapshot = onGPU(t, "cuda"), ask(t, scheme), 1, snapshot
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		whole, rest := train(""), train(filepath.Join(dir, "s_iter_10.solverstate"))
		if err := bits(whole.loss[10:], rest.loss); err != nil || !bytes.Equal(whole.snapshot, rest.snapshot) {
			t.Errorf("%s: %v, or another snapshot", scheme, err)
		}
	}
}

// TestDeviceInPlaceMistakes: each wait that may be left out is found out, as the curve is another one, or no number.
func TestDeviceInPlaceMistakes(t *testing.T) {
	standIn(t)
	path, _ := files(t, 30)
	short(t, path)
	cpu := mustRun(t, 2, path, nil)
	tell := func(text string) {
		if err := cudatest.Tell(standInPath, text); err != nil {
			t.Error(err)
		}
	}
	held := func(kernel, scheme, mistake string) (curve, error) { // a GPU that is at one kernel for long
		return runWith(t, inPlace(2), path, func(rank int, c *train.Config) {
			c.Device, c.Asked, c.Bucket = onGPU(t, "cuda"), ask(t, scheme), 1
		}, func(rank int, w *train.Worker) {
			if mistake != "" {
				w.Mistake(mistake)
			}
			s := w.Solver()
			before := s.Hooks.BeforeBackward
			s.Hooks.BeforeBackward = func() error {
				if rank == 0 && s.Iter() == 3 {
					tell("hold=" + kernel)
					time.AfterFunc(200*time.Millisecond, func() { tell("hold=none") })
				}
				return before()
			}
		})
	}
	for _, c := range []struct{ mistake, kernel, scheme string }{
		{train.Mistakes[0], "max_backward", "reduce"},
		{train.Mistakes[0], "max_backward", "allreduce"},
		{train.Mistakes[1], "update_sgd", "reduce"},
		{train.Mistakes[2], "update_sgd", "allreduce"},
	} {
		if got, err := held(c.kernel, c.scheme, ""); err != nil || near(cpu.loss, got.loss) != nil {
			t.Errorf("%s, which nobody has made: %v, or %v", c.mistake, err, near(cpu.loss, got.loss))
		}
		if got, err := held(c.kernel, c.scheme, c.mistake); err == nil && near(cpu.loss, got.loss) == nil {
			t.Errorf("%s by %s: nothing was wrong", c.mistake, c.scheme)
		}
	}
}

// TestDeviceTrace: what a GPU does and copies is in the trace, by its own events on the rank's clock: a pass that is held there takes long
// there, and not on the host, which has only begun it.
func TestDeviceTrace(t *testing.T) {
	standIn(t)
	path, _ := files(t, 30)
	short(t, path)
	const at, long = 3, 500 * time.Millisecond
	const clocks = 20 * time.Millisecond // they are compared within, on a busy machine
	var got *trace.Trace
	err := launch.Run(context.Background(), inPlace(2), func(ctx context.Context, comm *collectives.Comm) error {
		f, err := proto.ReadSolver(path)
		if err != nil {
			return err
		}
		*f.Solver.MaxIter = 8
		rec := trace.New(comm.Rank(), trace.Options{})
		w, err := train.New(ctx, comm, train.Config{Solver: f, Trace: rec, Device: onGPU(t, "cuda")})
		if err != nil {
			return err
		}
		defer w.Close()
		s := w.Solver()
		before := s.Hooks.BeforeBackward
		s.Hooks.BeforeBackward = func() error {
			if comm.Rank() == 0 && s.Iter() == at {
				if err := cudatest.Tell(standInPath, "hold=max_backward"); err != nil {
					return err
				}
				time.AfterFunc(long, func() { _ = cudatest.Tell(standInPath, "hold=none") })
			}
			return before()
		}
		if _, err := w.Run(ctx); err != nil {
			return err
		}
		t, err := trace.Gather(ctx, comm, rec)
		if comm.Rank() == 0 {
			got = t
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range got.Ranks {
		type key struct {
			kind trace.Kind
			name string
			iter int32
		}
		found := map[key]trace.Record{}
		last := map[trace.Kind]time.Duration{}
		bytes := map[trace.Kind]int64{}
		for _, e := range r.Events {
			kind := e.Kind
			if kind == trace.OnBackward {
				kind = trace.OnForward // of one stream
			}
			if kind == trace.OnForward || kind == trace.CopyUp || kind == trace.CopyDown {
				if e.Begin < last[kind]-clocks || e.End < e.Begin {
					t.Errorf("rank %d: %v %s of iteration %d is from %v to %v, after %v", r.Rank, e.Kind, e.Name, e.Iter, e.Begin, e.End, last[kind])
				}
				last[kind] = e.End
				bytes[kind] += e.Bytes
			}
			found[key{e.Kind, e.Name, e.Iter}] = e
		}
		for iter := range int32(8) {
			for _, name := range []string{"conv1", "pool1", "ip1"} {
				f, b := found[key{trace.OnForward, name, iter}], found[key{trace.OnBackward, name, iter}]
				begun := found[key{trace.Forward, name, iter}]
				if f.Name == "" || b.Name == "" || f.End > b.Begin || f.Begin < begun.Begin-clocks {
					t.Errorf("rank %d, iteration %d: %s: on the GPU from %v to %v and from %v to %v, begun at %v", r.Rank, iter, name, f.Begin, f.End, b.Begin, b.End, begun.Begin)
				}
			}
		}
		on, host := found[key{trace.OnBackward, "pool1", at}], found[key{trace.Backward, "pool1", at}]
		if took := on.End - on.Begin; took < long/2 || host.End-host.Begin > took/2 {
			t.Errorf("rank %d: a pass that was held for %v took %v on the GPU, and %v on the host", r.Rank, long, took, host.End-host.Begin)
		}
		pushed := false
		for _, e := range r.Events {
			if e.Iter != at || !strings.HasPrefix(e.Name, "conv1") || e.Kind != trace.Push && e.Kind != trace.WaitPush {
				continue
			}
			pushed = pushed || e.Kind == trace.Push
			if e.Begin < on.End-clocks { // what lies before is no communication
				t.Errorf("rank %d: %v %s begins at %v, and the pass before it ends at %v", r.Rank, e.Kind, e.Name, e.Begin, on.End)
			}
		}
		if !pushed {
			t.Errorf("rank %d: no push", r.Rank)
		}
		if batch := int64(15 * (28*28*3 + 1) * 4); bytes[trace.CopyUp] < 8*batch || bytes[trace.CopyDown] < 8*4 {
			t.Errorf("rank %d: %v bytes copied in 8 iterations", r.Rank, bytes)
		}
	}
}

// TestDeviceRanksSettle: what ranks settle together besides sums is settled with GPUs too: running statistics, which no update
// makes, several passes, and the norm of all gradients.
func TestDeviceRanksSettle(t *testing.T) {
	standIn(t)
	path, dir := files(t, 30)
	short(t, path)
	text, err := os.ReadFile(filepath.Join(dir, "net.prototxt"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "net.prototxt"), strings.Replace(string(text), `layer { name: "relu1"`, `layer { name: "norm" type: "BatchNorm" bottom: "conv1" top: "conv1" }
layer { name: "scale" type: "Scale" bottom: "conv1" top: "conv1" scale_param { bias_term: true } }
layer { name: "relu1"`, 1))
	if text, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.NewReplacer("max_iter: 20", "max_iter: 8", "test_interval: 10", "test_interval: 4").Replace(string(text))+"iter_size: 2\nclip_gradients: 0.5\n")
	for _, scheme := range []string{"reduce", "allreduce", "ps", "sfb"} {
		run := func(device string) curve {
			return mustRun(t, 2, path, func(_ int, c *train.Config) {
				c.Device, c.Asked, c.Bucket = onGPU(t, device), ask(t, scheme), 1
			})
		}
		cpu, got := run("cpu"), run("cuda")
		if err := errors.Join(near(cpu.loss, got.loss), near(cpu.scores, got.scores)); err != nil {
			t.Errorf("%s: %v", scheme, err)
		}
		if scheme != "reduce" && scheme != "allreduce" {
			continue
		}
		got, err := runWith(t, inPlace(2), path, func(_ int, c *train.Config) {
			c.Device, c.Asked, c.Bucket = onGPU(t, "cuda"), ask(t, scheme), 1
		}, nil)
		if err := errors.Join(err, near(cpu.loss, got.loss), near(cpu.scores, got.scores)); err != nil {
			t.Errorf("%s, in place: %v", scheme, err)
		}
	}
}

// TestDeviceInPlaceNotFinite: a gradient of some rank that is infinite ends training, before a snapshot is written, with the parameter, or
// leaves an iteration out; layers whose gradients the host has computed are among what is reduced.
func TestDeviceInPlaceNotFinite(t *testing.T) {
	standIn(t)
	for _, skip := range []bool{false, true} {
		for _, scheme := range []string{"reduce", "allreduce"} {
			path, dir := files(t, 30)
			short(t, path)
			skipped := 0
			got, err := runWith(t, inPlace(2), path, func(rank int, c *train.Config) {
				c.Device, c.Asked, c.Bucket, c.Options.SkipNotFinite = onGPU(t, "cuda"), ask(t, scheme), 1, skip
				c.Events.Solver.OnSkip = func(s solver.Skip) { skipped = s.Iter }
			}, func(rank int, w *train.Worker) {
				s := w.Solver()
				after := s.Hooks.AfterBackward
				s.Hooks.AfterBackward = func(layer int) error {
					if rank == 1 && s.Iter() == 9 && s.Net().Layers()[layer].Name == "ip1" {
						s.Net().Learnable()[2].Blob.Diff()[7] = float32(math.Inf(1))
					}
					return after(layer)
				}
			})
			if skip {
				if err != nil || skipped != 9 || len(got.loss) != 20 {
					t.Errorf("%s: iteration %d was left out, %d losses: %v", scheme, skipped, len(got.loss), err)
				}
				continue
			}
			want := `iteration 9: a gradient is +Inf, that of parameter "ip1.0" of layer "ip1"`
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: ended with %v: want %q", scheme, err, want)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "s_iter_*.solverstate")); len(left) > 0 {
				t.Errorf("%s: there is a snapshot: %v", scheme, left)
			}
		}
	}
}

func onGPU(t *testing.T, text string) train.Device {
	d, err := train.ParseDevice(text)
	if err != nil {
		t.Error(err)
	}
	return d
}

// TestDeviceWaitsForGradients: gradients that are handed over before they have come are found out, as the curve is another one.
func TestDeviceWaitsForGradients(t *testing.T) {
	standIn(t)
	path, _ := files(t, 30)
	short(t, path)
	cpu := mustRun(t, 2, path, nil)
	for _, scheme := range []string{"reduce", "allreduce"} {
		got, err := runHooked(t, 2, path, func(_ int, c *train.Config) {
			c.Device, c.Asked = onGPU(t, "cuda"), ask(t, scheme)
		}, func(_ int, w *train.Worker) { w.HandOverEarly() })
		if err == nil && near(cpu.loss, got.loss) == nil {
			t.Errorf("%s: nobody waited for gradients, and nothing was wrong", scheme)
		}
	}
}

// TestDeviceFaults: what goes wrong on a GPU, or between ranks with and without, ends all ranks with what and where, and leaves
// the snapshots that there are.
func TestDeviceFaults(t *testing.T) {
	standIn(t)
	for _, c := range []struct {
		name, fail string
		change     func(rank int, c *train.Config)
		snapshots  int
		want       []string
	}{
		{"a rank without", "", func(rank int, c *train.Config) {
			if rank == 1 {
				c.Device = train.Device{}
			}
		}, 0, []string{"1 of 2 ranks are to compute on GPUs, and 1 on the CPU"}},
		{"passes beside the loop", "", func(_ int, c *train.Config) { c.Scheme, c.Consistency.SSP = exchange.PS, true }, 0, []string{"consistency ssp:0", "device cuda"}},
		{"no memory", "fail=cuMemAlloc_v2:1:2", nil, 0, []string{"rank ", "memory"}},
		{"a fault", "fail=cuLaunchKernel:1:700", nil, 1, []string{"rank ", "iteration 15", "cuda:0 (stand-in 0)", "CUDA_ERROR_ILLEGAL_ADDRESS, 700"}},
	} {
		for place, opts := range map[string]launch.Options{"through the host": {Local: 2}, "in place": inPlace(2)} {
			t.Run(c.name+", "+place, func(t *testing.T) {
				path, dir := files(t, 30)
				short(t, path)
				begun := false
				_, err := runWith(t, opts, path, func(rank int, cfg *train.Config) {
					cfg.Device = onGPU(t, "cuda")
					if c.change != nil {
						c.change(rank, cfg)
					}
					if c.fail != "" && c.snapshots == 0 && !begun {
						begun = true
						if err := cudatest.Tell(standInPath, c.fail); err != nil {
							t.Error(err)
						}
					}
				}, func(rank int, w *train.Worker) {
					before := w.Solver().Hooks.BeforeForward
					w.Solver().Hooks.BeforeForward = func(layer int) error {
						if c.fail != "" && rank == 1 && w.Solver().Iter() == 15 && layer == 2 {
							if err := cudatest.Tell(standInPath, c.fail); err != nil {
								return err
							}
						}
						return before(layer)
					}
				})
				if err := cudatest.Tell(standInPath, "fail=none"); err != nil {
					t.Fatal(err)
				}
				for _, want := range c.want {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("ended with %v: want %q", err, want)
					}
				}
				left, _ := filepath.Glob(filepath.Join(dir, "s_iter_*.solverstate"))
				if len(left) != c.snapshots {
					t.Errorf("snapshots: %v, not %d", left, c.snapshots)
				}
				if c.snapshots > 0 {
					if _, err := run(t, 2, path, func(_ int, cfg *train.Config) { cfg.Snapshot = left[0] }); err != nil {
						t.Errorf("going on from the snapshot before: %v", err)
					}
				}
			})
		}
	}
}
