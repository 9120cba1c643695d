package train_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/train"
)

// runPoisoned is run on 2 ranks, of which rank 1 has a NaN in a gradient of
// layer ip1 in iteration 7.
func runPoisoned(t *testing.T, path string, change func(rank int, c *train.Config)) (curve, error) {
	t.Helper()
	return runHooked(t, 2, path, change, func(rank int, w *train.Worker) {
		if rank != 1 {
			return
		}
		after := w.Solver().Hooks.AfterBackward
		w.Solver().Hooks.AfterBackward = func(layer int) error {
			if n := w.Solver().Net(); w.Solver().Iter() == 7 && n.LayerName(layer) == "ip1" {
				p := n.Learnable()[n.Layers()[layer].Params[0]]
				p.Blob.Diff()[3] = float32(math.NaN())
				n.Blob("ip1").Diff()[3] = float32(math.NaN()) // of which factors are made
			}
			return after(layer)
		}
	})
}

// TestNumbersThatAreNotFinite: a gradient that is NaN on one rank ends training
// with its layer's name, or costs one update.
func TestNumbersThatAreNotFinite(t *testing.T) {
	path, _ := files(t, 30)
	for _, d := range []exchange.Design{exchange.SCB, exchange.SCOBR} {
		for _, scheme := range []exchange.Scheme{exchange.Reduce, exchange.Allreduce, exchange.PS, exchange.Adam, exchange.OneBit} {
			for _, skip := range []bool{false, true} {
				skipped := 0
				c, err := runPoisoned(t, path, func(_ int, c *train.Config) {
					c.Design, c.Scheme, c.Bucket, c.Options.SkipNotFinite = d, scheme, 1, skip
					c.Events.Solver.OnSkip = func(solver.Skip) { skipped++ }
				})
				switch {
				case skip && (err != nil || len(c.loss) != 50 || skipped == 0 || math.IsNaN(c.loss[49])):
					t.Errorf("%v, %v: skipping: %v, %d iterations, %d skipped", d, scheme, err, len(c.loss), skipped)
				case !skip && (err == nil || !strings.Contains(err.Error(), "iteration 7: a gradient is NaN") || !strings.Contains(err.Error(), `layer "ip1"`)):
					t.Errorf("%v, %v: a poisoned gradient ended with %v", d, scheme, err)
				}
			}
		}
	}
}

// TestLastUpdateIsChecked: parameters that the very last update made infinite
// end training on all ranks, with the rank, the layer and the iteration, and no
// snapshot is left.
func TestLastUpdateIsChecked(t *testing.T) {
	path, dir := files(t, 30)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.NewReplacer("base_lr: 0.01", "base_lr: 3e38", "max_iter: 50", "max_iter: 1").Replace(string(text))
	write(t, path, changed)
	for _, n := range []int{1, 2} {
		for _, d := range []exchange.Design{exchange.SCB, exchange.SCOBR} {
			for _, scheme := range []exchange.Scheme{exchange.Reduce, exchange.Allreduce, exchange.PS} {
				for _, skip := range []bool{false, true} {
					_, err := run(t, n, path, func(_ int, c *train.Config) {
						c.Design, c.Scheme, c.Bucket, c.Options.SkipNotFinite = d, scheme, 1, skip
					})
					if err == nil || !strings.Contains(err.Error(), "iteration 0: its update made parameter") || !strings.Contains(err.Error(), `of layer "`) {
						t.Errorf("%d ranks, %v, %v, skip %v: ended with %v", n, d, scheme, skip, err)
					}
				}
			}
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "s_iter_*")); len(left) > 0 {
		t.Errorf("snapshots of it: %v", left)
	}
}

// TestBadInputEndsAllRanks: whatever is wrong, on whichever rank, all ranks
// end with one clear message.
func TestBadInputEndsAllRanks(t *testing.T) {
	path, dir := files(t, 30)
	sub := func(old, with string) string {
		text := strings.Replace(fmt.Sprintf(netText, dir, 30), old, with, 1)
		if !strings.Contains(text, with) {
			t.Fatalf("%q is not in the net", old)
		}
		file := filepath.Join(t.TempDir(), "net.prototxt")
		write(t, file, text)
		s := filepath.Join(filepath.Dir(file), "solver.prototxt")
		write(t, s, strings.Replace(fmt.Sprintf(solverText, dir, t.TempDir()), dir+"/net.prototxt", file, 1))
		return s
	}
	onRank1 := func(change func(*train.Config)) func(int, *train.Config) {
		return func(rank int, c *train.Config) {
			if rank == 1 {
				change(c)
			}
		}
	}
	for _, c := range []struct {
		name, path string
		change     func(int, *train.Config)
		want       []string
	}{
		{"a typo", sub("kernel_size", "kernle_size"), nil, []string{"kernle_size", "net.prototxt:"}},
		{"a layer that is not supported", sub(`"ReLU"`, `"PReLU"`), nil, []string{"PReLU", "net.prototxt:"}},
		{"shapes that do not fit", sub("kernel_size: 5", "kernel_size: 50"), nil, []string{"conv1"}},
		{"a missing data set", sub("/train_lmdb", "/no_lmdb"), nil, []string{"no_lmdb"}},
		{"fewer samples than ranks", sub("batch_size: 30", "batch_size: 2"), nil, []string{"2", "3"}},
		{"a missing snapshot", path, func(_ int, c *train.Config) { c.Snapshot = dir + "/none.solverstate" }, []string{"rank 0", "none.solverstate"}},
		{"a file that is missing on one rank", path, onRank1(func(c *train.Config) {
			c.Options.Rewrite = func(l *proto.LayerParameter) error {
				if l.GetType() == "Data" {
					return errors.New("train_lmdb: no such file")
				}
				return nil
			}
		}), []string{"rank 1", "no such file"}},
		{"another net on one rank", path, onRank1(func(c *train.Config) {
			c.Options.Rewrite = func(l *proto.LayerParameter) error {
				if l.GetName() == "ip1" {
					n := uint32(11)
					l.InnerProductParam.NumOutput = &n
				}
				return nil
			}
		}), []string{"different nets"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := run(t, 3, c.path, c.change)
			if err == nil {
				t.Fatal("training went on")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the message %q does not have %q", err, want)
				}
			}
			if n := strings.Count(err.Error(), "\n"); n > 0 {
				t.Errorf("the message has %d lines: %q", n+1, err)
			}
		})
	}
}

// TestNetsBeyondMemory: a net that does not fit is one error for all ranks, with
// the layer and the bytes, before anything of that size is allocated.
func TestNetsBeyondMemory(t *testing.T) {
	for _, c := range []struct {
		outputs string
		memory  int64
		want    []string
	}{
		{"2000000000", 0, []string{`layer "ip1"`, "parameter 0", "bytes", "at most 2147483647"}},
		{"4294967295", 0, []string{`layer "ip1"`, "parameter 0", "bytes", "at most 2147483647"}},
		{"100000", 1 << 24, []string{`layer "ip1"`, "its parameters need", "bytes", "16.0 MiB available"}},
	} {
		path, dir := files(t, 30)
		text, err := os.ReadFile(filepath.Join(dir, "net.prototxt"))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "net.prototxt"), strings.Replace(string(text), "num_output: 10", "num_output: "+c.outputs, 1))
		_, err = run(t, 3, path, func(rank int, cfg *train.Config) {
			if rank > 0 { // one rank's node may have less than the others
				cfg.Options.Memory = c.memory
			}
		})
		for _, w := range c.want {
			if err == nil || !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s outputs: %v does not say %q in a line", c.outputs, err, w)
			}
		}
	}
}

// TestAnotherNetsSnapshot is refused, by layer and shapes.
func TestAnotherNetsSnapshot(t *testing.T) {
	path, dir := files(t, 30)
	mustRun(t, 1, path, nil)
	write(t, filepath.Join(dir, "net.prototxt"), strings.Replace(fmt.Sprintf(netText, dir, 30), "num_output: 6", "num_output: 7", 1))
	_, err := run(t, 2, path, func(_ int, c *train.Config) { c.Snapshot = filepath.Join(dir, "s_iter_50.solverstate") })
	if err == nil || !strings.Contains(err.Error(), "conv1") {
		t.Errorf("the snapshot of another net ended with %v", err)
	}
}

// TestFailureInTheMiddle: a rank that fails in an iteration ends the others.
func TestFailureInTheMiddle(t *testing.T) {
	path, _ := files(t, 30)
	for _, rank := range []int{0, 2} {
		begun := time.Now()
		err := launch.Run(context.Background(), launch.Options{Local: 3, Engine: nbc.Options{Deadline: 10 * time.Minute}}, func(ctx context.Context, comm *collectives.Comm) error {
			f, err := proto.ReadSolver(path)
			if err != nil {
				return err
			}
			w, err := train.New(ctx, comm, train.Config{Solver: f})
			if err != nil {
				return err
			}
			defer w.Close()
			if comm.Rank() == rank {
				before := w.Solver().Hooks.BeforeForward
				w.Solver().Hooks.BeforeForward = func(layer int) error {
					if w.Solver().Iter() == 7 && layer == 2 {
						return errors.New("record 17 is corrupt")
					}
					return before(layer)
				}
			}
			_, err = w.Run(ctx)
			return err
		})
		if want := fmt.Sprintf("rank %d: ", rank); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "record 17 is corrupt") {
			t.Errorf("rank %d failed, and the run ended with %v", rank, err)
		}
		if took := time.Since(begun); took > 9*time.Minute { // the deadline must not be what ended the run
			t.Errorf("the others ended after %v", took)
		}
	}
}
