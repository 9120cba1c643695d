package train_test

import (
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

	"github.com/scaffe/scaffe/caffe/data/dataset"
	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/trace"
	"github.com/scaffe/scaffe/train"
)

// netText is a small relative of CIFAR-10 quick without dropout; its batch of
// 30 divides by 3 and not by 4.
const netText = `
name: "small"
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { mean_value: 127 scale: 0.0078 mirror: true crop_size: 28 }
  data_param { source: "%[1]s/train_lmdb" batch_size: %[2]d backend: LMDB } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { mean_value: 127 scale: 0.0078 crop_size: 28 }
  data_param { source: "%[1]s/test_lmdb" batch_size: 20 backend: LMDB } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1" param { lr_mult: 1 } param { lr_mult: 2 }
  convolution_param { num_output: 6 kernel_size: 5 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layer { name: "ip1" type: "InnerProduct" bottom: "pool1" top: "ip1" inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip1" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip1" bottom: "label" top: "loss" }
`

const solverText = `
net: "%[1]s/net.prototxt"
test_iter: 5
test_interval: 25
base_lr: 0.01
momentum: 0.9
weight_decay: 0.001
lr_policy: "inv"
gamma: 0.01
power: 0.75
max_iter: 50
snapshot: 20
snapshot_prefix: "%[2]s/s"
random_seed: 3
`

// files writes a data set, a net and a solver and returns the solver's path.
func files(t *testing.T, batch int) (solverPath, dir string) {
	t.Helper()
	dir = t.TempDir()
	err := dataset.Glyphs(dataset.GlyphsOptions{
		Out:          dataset.Out{Train: filepath.Join(dir, "train_lmdb"), Test: filepath.Join(dir, "test_lmdb")},
		TrainSamples: 400, TestSamples: 100, Seed: 5,
	})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "net.prototxt"), fmt.Sprintf(netText, dir, batch))
	solverPath = filepath.Join(dir, "solver.prototxt")
	write(t, solverPath, fmt.Sprintf(solverText, dir, dir))
	return solverPath, dir
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// curve is what one run leaves.
type curve struct {
	loss, scores []float64
	snapshot     []byte
}

// run trains on n ranks of this process.
func run(t *testing.T, n int, path string, change func(rank int, c *train.Config)) (curve, error) {
	t.Helper()
	return runHooked(t, n, path, change, nil)
}

// runHooked is run; hook, unless nil, may change a rank's worker before it trains.
func runHooked(t *testing.T, n int, path string, change func(rank int, c *train.Config), hook func(rank int, w *train.Worker)) (curve, error) {
	t.Helper()
	return runWith(t, launch.Options{Local: n}, path, change, hook)
}

// runWith is runHooked of ranks that are started so.
func runWith(t *testing.T, opts launch.Options, path string, change func(rank int, c *train.Config), hook func(rank int, w *train.Worker)) (curve, error) {
	t.Helper()
	var got curve
	opts.Engine, opts.Log = nbc.Options{Deadline: 10 * time.Minute}, os.Stderr
	err := launch.Run(context.Background(), opts, func(ctx context.Context, comm *collectives.Comm) error {
		f, err := proto.ReadSolver(path)
		if err = comm.Agree(ctx, err); err != nil {
			return err
		}
		cfg := train.Config{Solver: f, Scheme: exchange.Reduce, Events: train.Events{Solver: solver.Events{
			OnIteration: func(i solver.Iteration) { got.loss = append(got.loss, float64(i.Loss)) },
			OnTest: func(r solver.Test) {
				for _, s := range r.Scores {
					got.scores = append(got.scores, s.Value)
				}
			},
			OnSnapshot: func(s solver.Snapshot) {
				b, err := os.ReadFile(s.Model)
				if err != nil {
					t.Error(err)
				}
				got.snapshot = b
			},
		}}}
		if change != nil {
			change(comm.Rank(), &cfg)
		}
		w, err := train.New(ctx, comm, cfg)
		if err != nil {
			return err
		}
		defer w.Close()
		if hook != nil {
			hook(comm.Rank(), w)
		}
		_, err = w.Run(ctx)
		return err
	})
	return got, err
}

func mustRun(t *testing.T, n int, path string, change func(rank int, c *train.Config)) curve {
	t.Helper()
	c, err := run(t, n, path, change)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mean(v []float64) float64 {
	var sum float64
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// near reports whether the curves agree within 1e-4 relative.
func near(a, b []float64) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d values beside %d", len(a), len(b))
	}
	for i := range a {
		if math.Abs(a[i]-b[i]) > 1e-4*math.Max(math.Abs(a[i]), math.Abs(b[i])) {
			return fmt.Errorf("value %d is %v beside %v", i, a[i], b[i])
		}
	}
	return nil
}

// TestSCaffe_StrongScalingTrainsAsOneRank: with strong scaling "the batch-size is
// divided by the number of" solvers (section 6.2), and any number of them gives
// the same loss curve and the same scores up to rounding, a repeated run the same
// bits. Batches that do not divide evenly, mirror and random crop are included.
func TestSCaffe_StrongScalingTrainsAsOneRank(t *testing.T) {
	path, _ := files(t, 30)
	one := mustRun(t, 1, path, nil)
	if len(one.loss) != 50 || mean(one.loss[40:]) > mean(one.loss[:10])-0.1 {
		t.Fatalf("one rank did not learn: %v", one.loss)
	}
	for _, n := range []int{2, 3, 4} {
		c := mustRun(t, n, path, nil)
		if err := near(one.loss, c.loss); err != nil {
			t.Errorf("loss of %d ranks: %v", n, err)
		}
		if err := near(one.scores, c.scores); err != nil {
			t.Errorf("scores of %d ranks: %v", n, err)
		}
		if n != 3 {
			continue
		}
		again := mustRun(t, n, path, nil)
		if string(again.snapshot) != string(c.snapshot) {
			t.Error("two runs of the same command gave different bits")
		}
		levels, err := spec.Parse("chain:2,chunk=1K/binomial")
		if err != nil {
			t.Fatal(err)
		}
		spec := mustRun(t, n, path, func(_ int, c *train.Config) { c.Spec = levels })
		if err := near(one.loss, spec.loss); err != nil {
			t.Errorf("loss with %v: %v", levels, err)
		}
	}
}

// TestSummedLosses: a loss that is a sum over the batch, and no mean, is the same
// on any number of ranks too, alone and next to one that is a mean.
func TestSummedLosses(t *testing.T) {
	for name, more := range map[string][2]string{
		"a sum":          {`loss_param { normalization: NONE }`, ``},
		"a sum and mean": {`loss_param { normalization: NONE } loss_weight: 0.5`, `layer { name: "mean" type: "SoftmaxWithLoss" bottom: "ip1" bottom: "label" top: "mean" include { phase: TRAIN } }`},
	} {
		path, dir := files(t, 30)
		net, err := os.ReadFile(filepath.Join(dir, "net.prototxt"))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "net.prototxt"), strings.Replace(string(net), `top: "loss" }`, `top: "loss" `+more[0]+" }\n"+more[1], 1))
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, strings.NewReplacer("base_lr: 0.01", "base_lr: 0.0003", "max_iter: 50", "max_iter: 10 display: 5").Replace(string(text)))
		shown := map[int][]float64{}
		with := func(n int) func(int, *train.Config) {
			return func(_ int, c *train.Config) {
				c.Events.Solver.OnDisplay = func(d solver.Display) {
					for _, o := range d.Outputs {
						shown[n] = append(shown[n], o.Value)
					}
				}
			}
		}
		one := mustRun(t, 1, path, with(1))
		if one.loss[0] < 20 {
			t.Errorf("%s: the first loss is %v, no sum over 30 samples", name, one.loss[0])
		}
		for _, n := range []int{2, 4} {
			c := mustRun(t, n, path, with(n))
			if err := errors.Join(near(one.loss, c.loss), near(one.scores, c.scores), near(shown[1], shown[n])); err != nil {
				t.Errorf("%s on %d ranks: %v", name, n, err)
			}
		}
	}
}

// TestSCaffe_DesignsTrainAlike: for one spec all designs write the same bits, and
// with either way to aggregate learn what one rank learns.
func TestSCaffe_DesignsTrainAlike(t *testing.T) {
	path, _ := files(t, 30)
	one := mustRun(t, 1, path, nil)
	for _, scheme := range []exchange.Scheme{exchange.Reduce, exchange.Allreduce, exchange.PS} {
		for _, text := range []string{"chain,chunk=1K", "direct"} {
			spec, err := spec.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			var first curve
			for i, d := range append(exchange.All(), exchange.WFBP) {
				c := mustRun(t, 3, path, func(_ int, c *train.Config) {
					c.Design, c.Scheme, c.Spec, c.Bucket = d, scheme, spec, 1
				})
				if i == 0 {
					first = c
				}
				if string(c.snapshot) != string(first.snapshot) || !slices.Equal(c.loss, first.loss) || !slices.Equal(c.scores, first.scores) {
					t.Errorf("%v with %v and %s: other bits than SC-B", d, scheme, text)
				}
			}
			if err := near(one.loss, first.loss); err != nil {
				t.Errorf("%v with %s: %v", scheme, text, err)
			}
			if err := near(one.scores, first.scores); err != nil {
				t.Errorf("scores, %v with %s: %v", scheme, text, err)
			}
		}
	}
}

// TestUpdatesThatNeedAllGradients: clip_gradients and iter_size are those of one
// worker, however the gradients arrive.
func TestUpdatesThatNeedAllGradients(t *testing.T) {
	for _, field := range []string{"clip_gradients: 0.5", "iter_size: 3", "iter_size: 2 clip_gradients: 0.5"} {
		path, _ := files(t, 30)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		plain := mustRun(t, 1, path, nil)
		write(t, path, string(text)+field)
		one := mustRun(t, 1, path, nil)
		if near(plain.loss, one.loss) == nil {
			t.Fatalf("%s has no effect", field)
		}
		for _, scheme := range []exchange.Scheme{exchange.Reduce, exchange.Allreduce, exchange.PS} {
			c := mustRun(t, 3, path, func(_ int, c *train.Config) { c.Scheme, c.Bucket = scheme, 1 })
			if err := near(one.loss, c.loss); err != nil {
				t.Errorf("%s, %v: %v", field, scheme, err)
			}
		}
	}
}

// TestStatisticsFollowTheRoot: BatchNorm's running means are the root's in every
// test, whoever aggregates how.
func TestStatisticsFollowTheRoot(t *testing.T) {
	path, dir := files(t, 30)
	text, err := os.ReadFile(filepath.Join(dir, "net.prototxt"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "net.prototxt"), strings.Replace(string(text), `layer { name: "relu1"`,
		`layer { name: "bn1" type: "BatchNorm" bottom: "conv1" top: "conv1" }
layer { name: "relu1"`, 1))
	reduce := mustRun(t, 3, path, nil)
	allreduce := mustRun(t, 3, path, func(_ int, c *train.Config) { c.Scheme = exchange.Allreduce })
	if err := near(reduce.scores, allreduce.scores); err != nil {
		t.Error(err)
	}
}

// TestWeightsOfTestNets: parameters of layers that only a test net has are those
// of --weights on all ranks, whose shares of a test would else be scored by what
// their fillers gave them.
func TestWeightsOfTestNets(t *testing.T) {
	path, dir := files(t, 30)
	text, err := os.ReadFile(filepath.Join(dir, "net.prototxt"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "net.prototxt"), string(text)+`
layer { name: "probe" type: "InnerProduct" bottom: "pool1" top: "probe" include { phase: TEST } inner_product_param { num_output: 10 weight_filler { type: "gaussian" std: 3 } } }
layer { name: "probed" type: "SoftmaxWithLoss" bottom: "probe" bottom: "label" top: "probed" include { phase: TEST } }
`)
	// A model that has the layer, with values of its own.
	f, err := proto.ReadNet(filepath.Join(dir, "net.prototxt"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := net.New(f, net.Options{Phase: proto.Phase_TEST, Seed: 99})
	if err != nil {
		t.Fatal(err)
	}
	weights := filepath.Join(dir, "w.caffemodel")
	if err := (&proto.Writer{}).Model(weights, source.ToProto()); err != nil {
		t.Fatal(err)
	}
	if err := source.Close(); err != nil { // a data set is open once in a process
		t.Fatal(err)
	}
	if text, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.Replace(string(text), "max_iter: 50", "max_iter: 1", 1))
	for _, scheme := range []exchange.Scheme{exchange.Reduce, exchange.Allreduce, exchange.PS} {
		with := func(rank int, c *train.Config) {
			c.Scheme = scheme
			if rank == 0 { // the others need not have the file
				c.Weights = []string{weights}
			}
		}
		one, two := mustRun(t, 1, path, with), mustRun(t, 2, path, with)
		if len(one.scores) == 0 {
			t.Fatal("no test ran")
		}
		if err := near(one.scores, two.scores); err != nil {
			t.Errorf("%v: scores of 2 ranks and of one: %v", scheme, err)
		}
	}
}

// TestSCaffe_WeakScaling: the batch size "remains constant for each" solver
// (section 6.2), so that n ranks with a batch of 15 each are one rank with 15·n.
func TestSCaffe_WeakScaling(t *testing.T) {
	path, _ := files(t, 15)
	weak := mustRun(t, 2, path, func(_ int, c *train.Config) { c.Scaling = train.Weak })
	path, _ = files(t, 30)
	if err := near(mustRun(t, 1, path, nil).loss, weak.loss); err != nil {
		t.Error(err)
	}
}

// TestTraceMarksTheWarmUp: the first iteration of a run, resumed or not.
func TestTraceMarksTheWarmUp(t *testing.T) {
	path, dir := files(t, 30)
	first := func(change func(*train.Config)) (warmUp, iterations int) {
		err := launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
			f, err := proto.ReadSolver(path)
			if err != nil {
				return err
			}
			rec := trace.New(comm.Rank(), trace.Options{})
			c := train.Config{Solver: f, Trace: rec}
			change(&c)
			w, err := train.New(ctx, comm, c)
			if err != nil {
				return err
			}
			defer w.Close()
			if _, err := w.Run(ctx); err != nil {
				return err
			}
			got, err := trace.Gather(ctx, comm, rec)
			if err == nil && comm.Rank() == 0 {
				warmUp, iterations = got.WarmUp, len(trace.Analyze(got).Iterations)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return warmUp, iterations
	}
	if w, n := first(func(*train.Config) {}); w != 1 || n != 49 {
		t.Errorf("from the start: warm-up until %d, %d iterations in the means", w, n)
	}
	if w, n := first(func(c *train.Config) { c.Snapshot = filepath.Join(dir, "s_iter_40.solverstate") }); w != 41 || n != 9 {
		t.Errorf("resumed at 40: warm-up until %d, %d iterations in the means", w, n)
	}
}
