package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/scaffe/scaffe/collectives/selection"
)

// The tests of this file run the program as a user does. Those that need
// mpirun run where the tests were started by scripts/with-mpi, which says
// where the library's own mpirun is.

// scaffe is the program, built once with the flags of the tests themselves.
var scaffe string

func TestMain(m *testing.M) {
	if signal.Ignored(syscall.SIGHUP) { // by nohup: what the tests start would ignore it, too
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	dir, err := os.MkdirTemp("", "scaffe-e2e")
	if err == nil {
		scaffe = filepath.Join(dir, "scaffe")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", scaffe, ".").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot build scaffe:", err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// result is how a command ended.
type result struct {
	stdout, stderr string
	code           int
}

// command runs a command, which must end by itself.
func command(t *testing.T, dir, name string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s %s hung\n%s%s", name, strings.Join(args, " "), &stdout, &stderr)
	}
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// long skips a test that takes long, and that the MPI library does not change, in short runs.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long")
	}
}

// mpirun returns the mpirun of the library that the program has.
func mpirun(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("SCAFFE_MPI_DIR")
	if dir == "" {
		t.Skip("no MPI: run `make test-mpi`")
	}
	return filepath.Join(dir, "bin", "mpirun")
}

const testNet = `
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { mean_value: 127 scale: 0.0078 } data_param { source: "train_lmdb" batch_size: 30 backend: LMDB } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { mean_value: 127 scale: 0.0078 } data_param { source: "test_lmdb" batch_size: 20 backend: LMDB } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 6 kernel_size: 5 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "ip1" type: "InnerProduct" bottom: "conv1" top: "ip1" inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip1" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip1" bottom: "label" top: "loss" }
`

// workplace makes a folder with a data set, a net and a solver.
func workplace(t *testing.T, maxIter int) string {
	t.Helper()
	dir := t.TempDir()
	if r := command(t, dir, scaffe, "data", "glyphs", "--out", ".", "--train", "600", "--test", "100"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	write(t, dir, "net.prototxt", testNet)
	write(t, dir, "solver.prototxt", fmt.Sprintf(`net: "net.prototxt" test_iter: 5 test_interval: 25 base_lr: 0.01 momentum: 0.9
lr_policy: "fixed" display: 1 max_iter: %d snapshot_prefix: "s" random_seed: 3`, maxIter))
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

var lossLine = regexp.MustCompile(`(?m)^iteration (\d+): loss ([^,]+),`)

// losses reads the loss of every iteration from the log.
func losses(t *testing.T, r result) []float64 {
	t.Helper()
	if r.code != 0 {
		t.Fatalf("training ended with status %d\n%s", r.code, r.stderr)
	}
	var ls []float64
	for _, m := range lossLine.FindAllStringSubmatch(r.stderr, -1) {
		x, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		ls = append(ls, x)
	}
	return ls
}

// TestWorkersApartOverMPI: processes whose workers are some iterations apart train about as one alone.
func TestWorkersApartOverMPI(t *testing.T) {
	run := mpirun(t)
	const iters = 24
	dir := workplace(t, iters)
	write(t, dir, "solver.prototxt", fmt.Sprintf(`net: "net.prototxt" base_lr: 0.03 lr_policy: "fixed" display: 1 max_iter: %d
snapshot_prefix: "s" random_seed: 3`, iters))
	train := []string{"train", "--solver", "solver.prototxt", "--deadline", "10m"}
	want := losses(t, command(t, dir, scaffe, train...))
	args := append([]string{"-np", "3", scaffe}, train...)
	got := losses(t, command(t, dir, run, append(args, "--scheme", "ps", "--pair", "4K", "--consistency", "ssp:2")...))
	if len(want) != iters+1 || len(got) != len(want) {
		t.Fatalf("%d losses, with one rank %d", len(got), len(want))
	}
	for i := range want { // others' steps may be missing, two iterations long
		if !(math.Abs(got[i]-want[i]) <= 0.5*want[i]) {
			t.Errorf("loss %d is %v, with one rank %v", i, got[i], want[i])
		}
	}
	if got[iters] >= got[0] {
		t.Errorf("the loss does not fall: %v", got)
	}
}

// TestTheSameLossHoweverStarted: one rank, ranks in one process, and ranks
// under mpirun give the same curve; and the same command the same bits.
func TestTheSameLossHoweverStarted(t *testing.T) {
	dir := workplace(t, 50)
	train := []string{"train", "--solver", "solver.prototxt"}
	one := losses(t, command(t, dir, scaffe, train...))
	if len(one) != 51 {
		t.Fatalf("%d losses in the log", len(one))
	}
	same := func(name string, got []float64) {
		t.Helper()
		for i := range one {
			if i >= len(got) || math.Abs(got[i]-one[i]) > 1e-4*math.Abs(one[i]) {
				t.Fatalf("%s: the losses are %v, with one rank %v", name, got, one)
			}
		}
	}
	same("--local 4", losses(t, command(t, dir, scaffe, append(train, "--local", "4")...)))
	run := mpirun(t)
	measuredOnce(t)
	model := func() string {
		b, err := os.ReadFile(filepath.Join(dir, "s_iter_50.caffemodel"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, n := range []string{"2", "3"} {
		args := append([]string{"-np", n, scaffe}, train...)
		same("mpirun -np "+n, losses(t, command(t, dir, run, args...)))
		first := model()
		command(t, dir, run, args...)
		if model() != first {
			t.Errorf("two runs of mpirun -np %s gave different bits", n)
		}
	}
}

// measuredOnce has commands whose bits are compared choose the same specs: each of a machine's first three starts, by whatever
// test, measures it, and may have the next ones choose others.
func measuredOnce(t *testing.T) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv(selection.EnvMeasure, selection.MeasureOnce)
}

// TestOneRankHasBadInput: one rank's solver file is missing; all end, with one
// message that names the rank.
func TestOneRankHasBadInput(t *testing.T) {
	dir := workplace(t, 1000)
	r := command(t, dir, mpirun(t), "-np", "1", scaffe, "train", "--solver", "solver.prototxt", ":", "-np", "1", scaffe, "train", "--solver", "missing.prototxt")
	if r.code == 0 {
		t.Fatal("the run succeeded")
	}
	if n := strings.Count(r.stderr, "scaffe: "); n != 1 || !strings.Contains(r.stderr, "rank 1") || !strings.Contains(r.stderr, "missing.prototxt") {
		t.Errorf("%d messages:\n%s", n, r.stderr)
	}
}

// TestKilledRank: a rank is killed in the middle; the others end and the rank
// is named.
func TestKilledRank(t *testing.T) {
	dir := workplace(t, 1_000_000)
	r := begin(t, dir, mpirun(t), "-np", "3", scaffe, "train", "--solver", "solver.prototxt", "--deadline", "10m")
	r.until("^iteration 20:")
	victim := r.rank("1")
	r.signal(syscall.SIGKILL, "1")
	got := r.end()
	if got.code == 0 || !whoWasKilled(1, victim).MatchString(got.stderr) {
		t.Errorf("it ended with status %d; nobody says %q:\n%s", got.code, whoWasKilled(1, victim), last(got.stderr))
	}
}

// TestBadFlags: what cannot be satisfied is an error, never ignored.
func TestBadFlags(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"solver", []string{"train"}},
		{"none.prototxt", []string{"train", "--solver", "none.prototxt"}},
		{`"fast"`, []string{"train", "--solver", "none.prototxt", "--scal", "fast"}},
		{"chain:8", []string{"train", "--solver", "none.prototxt", "--algorithm", "chain:8"}},
		{"extra", []string{"train", "--solver", "none.prototxt", "extra"}},
		{`"tree"`, []string{"schedule", "reduce", "tree"}},
	} {
		r := command(t, t.TempDir(), scaffe, c.args...)
		if r.code == 0 || !strings.Contains(r.stderr+r.stdout, c.want) {
			t.Errorf("scaffe %s ended with status %d and %q, without %q", strings.Join(c.args, " "), r.code, r.stderr, c.want)
		}
	}
}
