//go:build cuda && cgo && linux && (amd64 || arm64)

package solver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/caffe/layers"
	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
)

// openGPU opens the driver's stand-in, which the first test that asks loads.
func openGPU(t *testing.T) *gpu.Device {
	t.Helper()
	if os.Getenv(cuda.EnvLibrary) == "" {
		library, err := cudatest.Build()
		if err != nil {
			t.Fatal(err)
		}
		os.Setenv(cuda.EnvLibrary, library)
		os.Setenv(cudatest.Env, "delay=5")
		if _, err := cuda.GPUs(); err != nil {
			t.Fatal(err)
		}
	}
	d, err := gpu.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// parameters returns a copy of the packed parameters.
func parameters(s *Solver) []float32 {
	s.Net().ToHost()
	return slices.Clone(weights(s))
}

// far is the largest difference of two vectors, over the largest value.
func far(a, b []float32) float64 {
	most, diff := 0.0, 0.0
	for i := range a {
		most = max(most, math.Abs(float64(a[i])))
		if d := math.Abs(float64(a[i] - b[i])); !(d <= diff) {
			diff = d
		}
	}
	return diff / most
}

// cifar10Quick is Caffe's net of that name, with samples that the program sets, and with dropout.
const cifar10Quick = `net_param {
  name: "CIFAR10_quick"
  layer { name: "cifar" type: "MemoryData" top: "data" top: "label" memory_data_param { batch_size: 4 channels: 3 height: 32 width: 32 } }
  layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1" param { lr_mult: 1 } param { lr_mult: 2 }
    convolution_param { num_output: 32 pad: 2 kernel_size: 5 stride: 1 weight_filler { type: "gaussian" std: 0.001 } } }
  layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
  layer { name: "relu1" type: "ReLU" bottom: "pool1" top: "pool1" }
  layer { name: "conv2" type: "Convolution" bottom: "pool1" top: "conv2" param { lr_mult: 1 } param { lr_mult: 2 }
    convolution_param { num_output: 32 pad: 2 kernel_size: 5 stride: 1 weight_filler { type: "gaussian" std: 0.02 } } }
  layer { name: "relu2" type: "ReLU" bottom: "conv2" top: "conv2" }
  layer { name: "pool2" type: "Pooling" bottom: "conv2" top: "pool2" pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
  layer { name: "conv3" type: "Convolution" bottom: "pool2" top: "conv3" param { lr_mult: 1 } param { lr_mult: 2 }
    convolution_param { num_output: 64 pad: 2 kernel_size: 5 stride: 1 weight_filler { type: "gaussian" std: 0.02 } } }
  layer { name: "relu3" type: "ReLU" bottom: "conv3" top: "conv3" }
  layer { name: "pool3" type: "Pooling" bottom: "conv3" top: "pool3" pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
  layer { name: "ip1" type: "InnerProduct" bottom: "pool3" top: "ip1" param { lr_mult: 1 } param { lr_mult: 2 }
    inner_product_param { num_output: 64 weight_filler { type: "gaussian" std: 0.1 } } }
  layer { name: "drop" type: "Dropout" bottom: "ip1" top: "ip1" }
  layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" param { lr_mult: 1 } param { lr_mult: 2 }
    inner_product_param { num_output: 10 weight_filler { type: "gaussian" std: 0.1 } } }
  layer { name: "accuracy" type: "Accuracy" bottom: "ip2" bottom: "label" top: "accuracy" include { phase: TEST } }
  layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
}
base_lr: 0.0002 momentum: 0.9 weight_decay: 0.004 lr_policy: "fixed" test_iter: 2 test_interval: 20 max_iter: 50 `

// quick makes a solver of cifar10Quick with samples that can be learned, its snapshots in dir.
func quick(t *testing.T, dir string, fields string, o Options) *Solver {
	t.Helper()
	text := cifar10Quick + fmt.Sprintf("snapshot_prefix: %q ", filepath.Join(dir, "quick")) + fields
	f, err := proto.ParseSolver("solver.prototxt", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, f, o)
	const samples, size = 40, 3 * 32 * 32
	r := rand.New(rand.NewPCG(1, 2))
	data, labels := make([]float32, samples*size), make([]float32, samples)
	for i := range labels {
		labels[i] = float32(i % 10)
		for k := range size {
			data[i*size+k] = float32(50*math.Sin(float64(k)*(1+labels64(i))/70) + 10*r.NormFloat64())
		}
	}
	for _, n := range append(s.TestNets(), s.Net()) {
		for _, l := range n.Layers() {
			if m, ok := l.Layer.(*layers.MemoryData); ok {
				if err := m.Set(data, labels); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return s
}

func labels64(i int) float64 { return float64(i % 10) }

func sum(x []float32) (sum float32) {
	for _, v := range x {
		sum += v
	}
	return sum
}

// told is what a run has said of its losses and scores.
type told struct {
	losses []float32
	scores []float64
}

func listen(s *Solver) *told {
	var r told
	s.Events.OnIteration = func(i Iteration) { r.losses = append(r.losses, i.Loss) }
	s.Events.OnTest = func(t Test) {
		for _, x := range t.Scores {
			r.scores = append(r.scores, x.Value)
		}
	}
	return &r
}

// TestGPUTrainsAsTheCPU: CIFAR-10 quick for 50 iterations, with tests and dropout. The first loss is the CPU's within
// 1e-5, and the host waits once in an iteration, for the loss.
func TestGPUTrainsAsTheCPU(t *testing.T) {
	iterations := 50
	if testing.Short() {
		iterations = 12
	}
	cpu := quick(t, t.TempDir(), "snapshot_after_train: false", Options{})
	d := openGPU(t)
	s := quick(t, t.TempDir(), "snapshot_after_train: false", Options{GPU: d})
	if w := s.Warnings(); len(w) > 0 {
		t.Errorf("layers that the host computes: %q", w)
	}
	want, got := listen(cpu), listen(s)
	step(t, cpu, iterations)
	step(t, s, 2)
	before := d.Counts()
	step(t, s, 5)
	c := d.Counts().Sub(before)
	batch := int64(4 * 4 * (3*32*32 + 1))
	// Up: the batch, the mask of dropout. Down: the loss, and what is found of gradients.
	if up, down := 5*(batch+4*4*64), int64(5*(4+16)); c.Up != up || c.Down != down || c.Waits != 0 || c.Fetches > 5 {
		t.Errorf("5 iterations: %+v: want %d bytes up, %d down, a fetch each and no other wait", c, up, down)
	}
	step(t, s, iterations-7)
	if math.Abs(float64(got.losses[0]-want.losses[0])) > 1e-5*float64(want.losses[0]) {
		t.Errorf("the first loss is %v, on the CPU %v", got.losses[0], want.losses[0])
	}
	if x := far(want.losses[:12], got.losses[:12]); x > 1e-5 {
		t.Errorf("the first losses are %.2g apart:\n%v, on the CPU\n%v", x, got.losses, want.losses)
	}
	if x := far(want.losses, got.losses); x > 2e-2 { // later ones have grown apart by rounding, with batches of 4
		t.Errorf("losses are %.2g apart:\n%v, on the CPU\n%v", x, got.losses, want.losses)
	}
	if first, last := sum(got.losses[:10]), sum(got.losses[iterations-10:]); iterations == 50 && last > first*2/3 {
		t.Errorf("the first ten losses add up to %v, the last to %v: nothing is learned", first, last)
	}
	if len(got.scores) == 0 || len(got.scores) != len(want.scores) {
		t.Fatalf("scores %v, on the CPU %v", got.scores, want.scores)
	}
	for i, w := range want.scores {
		if math.Abs(got.scores[i]-w) > 1e-2*(1+math.Abs(w)) {
			t.Errorf("score %d is %v, on the CPU %v", i, got.scores[i], w)
		}
	}
	if x := far(parameters(cpu), parameters(s)); x > 1e-2 {
		t.Errorf("parameters are %.2g apart", x)
	}
}

// TestGPUAndHostLayers: a net with every type of layer, some of them computed by the host, by every rule, with two passes an iteration and
// clipped gradients.
func TestGPUAndHostLayers(t *testing.T) {
	for _, rule := range []string{
		// delta: where gradients are nothing but rounding, as before a BatchNorm, they stay small
		`type: "SGD" momentum: 0.9`, `type: "Nesterov" momentum: 0.9`, `type: "AdaGrad" delta: 0.1`, `type: "RMSProp" rms_decay: 0.9 delta: 0.1`,
		`type: "AdaDelta" momentum: 0.9 delta: 1e-4`, `type: "Adam" momentum: 0.9 delta: 0.1`,
	} {
		t.Run(rule, func(t *testing.T) {
			d := openGPU(t)
			var got [2][]float32
			for side, o := range []Options{{}, {GPU: d}} {
				text := everyLayer + `base_lr: 0.01 lr_policy: "fixed" weight_decay: 0.001 clip_gradients: 1 iter_size: 2 snapshot_after_train: false ` + rule
				f, err := proto.ParseSolver("solver.prototxt", []byte(text))
				if err != nil {
					t.Fatal(err)
				}
				s := start(t, f, o)
				if side == 1 {
					var named []string
					for _, w := range s.Warnings() {
						if strings.Contains(w, "has no kernels for GPUs") {
							named = append(named, w[strings.Index(w, "(")+1:strings.Index(w, ")")])
						}
					}
					if want := []string{"Sigmoid", "TanH", "Power", "EuclideanLoss", "SigmoidCrossEntropyLoss"}; !slices.Equal(named, want) {
						t.Errorf("the host computes %q: want %q", named, want)
					}
				}
				step(t, s, 4)
				got[side] = parameters(s)
				if side == 1 {
					for k, h := range s.History() {
						if len(h) != len(got[0]) || !slices.ContainsFunc(h, func(x float32) bool { return x != 0 }) {
							t.Errorf("history %d: %d numbers, or all are 0", k, len(h))
						}
					}
				}
			}
			if x := far(got[0], got[1]); !(x < 1e-4) {
				t.Errorf("parameters are %.2g apart", x)
			}
		})
	}
}

// TestGPUSnapshotsMove: a snapshot that was taken on the GPU is resumed on the CPU, and the other way round, and goes
// on as where it came from; on the GPU with the same bits as a run without a break.
func TestGPUSnapshotsMove(t *testing.T) {
	const fields = `snapshot: 3 snapshot_after_train: false`
	for _, from := range []string{"CPU", "GPU"} {
		t.Run(from, func(t *testing.T) {
			dir, d := t.TempDir(), openGPU(t)
			options := map[string]Options{"CPU": {}, "GPU": {GPU: d}}
			s := quick(t, dir, fields, options[from])
			step(t, s, 5)
			want := parameters(s)
			for to, o := range options {
				r := quick(t, t.TempDir(), fields, o)
				if err := r.Restore(filepath.Join(dir, "quick_iter_3.solverstate")); err != nil {
					t.Fatal(err)
				}
				step(t, r, 2)
				switch x := far(want, parameters(r)); {
				case to == from && x != 0:
					t.Errorf("resumed on the %s: parameters are %.2g from those of the run without a break", to, x)
				case !(x < 1e-4):
					t.Errorf("resumed on the %s: parameters are %.2g apart", to, x)
				}
			}
		})
	}
}

// TestGPUGradientNotFinite: a gradient that is infinite ends training before the update, with the parameter's name, or leaves the
// update out.
func TestGPUGradientNotFinite(t *testing.T) {
	for _, skip := range []bool{false, true} {
		t.Run(fmt.Sprint("skip ", skip), func(t *testing.T) {
			s := quick(t, t.TempDir(), "snapshot_after_train: false", Options{GPU: openGPU(t), SkipNotFinite: skip})
			skipped := 0
			s.Events.OnSkip = func(Skip) { skipped++ }
			step(t, s, 1)
			before := parameters(s)
			k := slices.IndexFunc(s.Net().Layers(), func(l net.Layer) bool { return l.Name == "conv2" })
			spoil := true
			s.Hooks.AfterBackward = func(layer int) error {
				if layer == k && spoil {
					s.Net().Learnable()[s.Net().Layers()[k].Params[0]].Blob.Diff()[7] = float32(math.Inf(1))
				}
				return nil
			}
			err := s.Step(context.Background(), 1)
			if skip {
				spoil = false
				if err != nil || skipped != 1 {
					t.Fatalf("%v, %d skipped", err, skipped)
				}
			} else if bad := (*NotFiniteError)(nil); !errors.As(err, &bad) || bad.Gradient != "conv2.0" || bad.Iter != 1 || !math.IsInf(float64(bad.Value), 1) {
				t.Fatalf("the error is %v", err)
			}
			if x := far(before, parameters(s)); x != 0 {
				t.Errorf("parameters have changed, by %.2g", x)
			}
			if skip {
				step(t, s, 1)
				if x := far(before, parameters(s)); x == 0 || math.IsNaN(x) {
					t.Errorf("the next iteration changes parameters by %v", x)
				}
			}
		})
	}
}

// TestGPUOutOfMemory: what was asked for and what there is.
func TestGPUOutOfMemory(t *testing.T) {
	d := openGPU(t)
	s := quick(t, t.TempDir(), "snapshot_after_train: false", Options{GPU: d})
	for i := 0; i < 30 && d.Err() == nil; i++ { // others take what there is
		d.Alloc(40 << 20)
	}
	err := s.Step(context.Background(), 1)
	wantError(t, err, "allocate", "bytes", "out of memory", "are free", "cuda:0")
}
