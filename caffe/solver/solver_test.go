package solver

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

	"github.com/scaffe/scaffe/caffe/data"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/mem"
)

// regression learns random targets from random inputs, a new batch every
// pass, with dropout.
const regression = `net_param {
  name: "regression"
  layer { name: "data" type: "DummyData" top: "data" top: "target" dummy_data_param {
    shape { dim: 6 dim: 5 } shape { dim: 6 dim: 2 } data_filler { type: "gaussian" } data_filler { type: "gaussian" } } }
  layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
    inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
  layer { name: "relu" type: "ReLU" bottom: "ip1" top: "ip1" }
  layer { name: "drop" type: "Dropout" bottom: "ip1" top: "ip1" include { phase: TRAIN not_stage: "plain" } }
  layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
  layer { name: "loss" type: "EuclideanLoss" bottom: "ip2" bottom: "target" top: "loss" }
}
`

// file makes a solver file of regression with more fields, whose snapshots go
// to dir.
func file(t testing.TB, dir, fields string) *proto.SolverFile {
	t.Helper()
	text := regression + fmt.Sprintf("snapshot_prefix: %q\n", filepath.Join(dir, "snap")) + fields
	f, err := proto.ParseSolver("solver.prototxt", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const sgd = `base_lr: 0.1 lr_policy: "step" gamma: 0.7 stepsize: 2 momentum: 0.9 weight_decay: 0.01 max_iter: 6 `

func start(t testing.TB, f *proto.SolverFile, o Options) *Solver {
	t.Helper()
	s, err := New(f, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func solve(t testing.TB, s *Solver) {
	t.Helper()
	if err := s.Solve(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func step(t testing.TB, s *Solver, n int) {
	t.Helper()
	if err := s.Step(context.Background(), n); err != nil {
		t.Fatal(err)
	}
}

// weights returns the packed parameters.
func weights(s *Solver) []float32 {
	data, _ := s.Net().Packed()
	return mem.Float32s(data)
}

func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

// The whole update (clipping, iter_size, multipliers, decay, momentum, rate)
// against a float64 computation from the gradients that the net gave.
func TestUpdateAgainstFloat64(t *testing.T) {
	s := start(t, file(t, t.TempDir(), sgd+`iter_size: 2 clip_gradients: 1.5`), Options{})
	n := s.Net()
	want := make([]float64, n.PackedCount())
	hist := make([]float64, n.PackedCount())
	for i, v := range weights(s) {
		want[i] = float64(v)
	}
	clipped := 0
	s.Callbacks.OnGradientsReady = func(iter int, loss float64) (Gradients, float32, error) {
		_, buf := n.Packed()
		diff := mem.Float32s(buf)
		norm := 0.0
		for _, d := range diff {
			norm += float64(d) * float64(d)
		}
		scale := 1.0
		if norm = math.Sqrt(norm); norm > 1.5 {
			scale = 1.5 / norm
			clipped++
		}
		rate := 0.1 * math.Pow(0.7, float64(iter/2))
		for _, p := range n.Learnable() {
			for k := p.Offset; k < p.Offset+p.Blob.Count(); k++ {
				g := float64(diff[k])*scale/2 + 0.01*float64(p.DecayMult)*want[k]
				hist[k] = 0.9*hist[k] + rate*float64(p.LRMult)*g
				want[k] -= hist[k]
			}
		}
		return Apply, float32(loss), nil
	}
	for iter := range 6 {
		step(t, s, 1)
		for k, got := range weights(s) {
			if math.Abs(float64(got)-want[k]) > 1e-5 {
				t.Fatalf("after iteration %d parameter %d is %v, the reference has %v", iter, k, got, want[k])
			}
		}
	}
	if clipped == 0 {
		t.Error("no gradient was clipped: the test does not test clipping")
	}
}

// Workers that each take a part of every batch, sum their gradients and
// update on one of them train as one worker does.
func TestWorkersTrainAsOne(t *testing.T) {
	fields := sgd + `train_state { stage: "plain" } iter_size: 2 display: 1 test_iter: 5 test_interval: 3`
	run := func(workers int) (losses []float32, outputs, tests []float64) {
		w := newWorld(t, workers)
		w.run(func(rank int) error {
			o := Options{NoSnapshots: true}
			o.Data.Part.Index, o.Data.Part.Of = rank, workers
			s := start(t, file(t, t.TempDir(), fields), o)
			w.join(s, rank)
			if rank == 0 {
				s.Events.OnIteration = func(i Iteration) { losses = append(losses, i.Loss) }
				s.Events.OnDisplay = func(d Display) { outputs = append(outputs, d.Outputs[0].Value) }
				s.Events.OnTest = func(r Test) { tests = append(tests, r.Scores[0].Value) }
			}
			return s.Solve(context.Background())
		})
		return losses, outputs, tests
	}
	losses, outputs, tests := run(1)
	if len(losses) != 6 || len(outputs) != 7 || len(tests) != 3 {
		t.Fatalf("%d losses, %d displays, %d tests", len(losses), len(outputs), len(tests))
	}
	for _, workers := range []int{2, 3} {
		l, o, r := run(workers)
		for i := range losses {
			near := math.Abs(float64(l[i]-losses[i])) <= 1e-5*float64(losses[i])
			if !near || math.Abs(o[i]-outputs[i]) > 1e-5*outputs[i] {
				t.Errorf("%d workers: iteration %d has loss %v, outputs %v; one worker %v, %v", workers, i, l[i], o[i], losses[i], outputs[i])
			}
		}
		// DummyData draws for the global batch: equal tests need equal batches,
		// which they are where test_iter does not divide evenly.
		for i := range tests {
			if math.Abs(r[i]-tests[i]) > 1e-5*tests[i] {
				t.Errorf("%d workers: test %d scores %v, one worker %v", workers, i, r[i], tests[i])
			}
		}
	}
}

// What happens in which order, as Caffe's Solver::Solve has it.
func TestOrderOfEvents(t *testing.T) {
	var got []string
	note := func(format string, args ...any) { got = append(got, fmt.Sprintf(format, args...)) }
	s := start(t, file(t, t.TempDir(), strings.Replace(sgd, "max_iter: 6", "max_iter: 4", 1)+`display: 2 test_iter: 1 test_interval: 2 snapshot: 3`), Options{})
	s.Callbacks = Callbacks{
		OnStart:          func(i int) error { note("start %d", i); return nil },
		OnGradientsReady: func(i int, l float64) (Gradients, float32, error) { note("ready %d", i); return Apply, float32(l), nil },
		OnParams:         func(i int) error { note("params %d", i); return nil },
		OnSnapshot:       func(i int) error { note("gather %d", i); return nil },
		Requested:        func(i int) (Action, error) { note("ask %d", i); return Action{}, nil },
	}
	s.Events = Events{
		OnDisplay:  func(d Display) { note("display %d rate %.3g", d.Iter, d.Rate) },
		OnTest:     func(r Test) { note("test %d %s", r.Iter, r.Scores[0].Name) },
		OnSnapshot: func(p Snapshot) { note("snapshot %d %s", p.Iter, filepath.Base(p.State)) },
	}
	solve(t, s)
	want := `params 0, test 0 loss, start 0, ready 0, display 0 rate 0.1, ask 1,
start 1, ready 1, ask 2,
params 2, test 2 loss, start 2, ready 2, display 2 rate 0.07, ask 3, gather 3, snapshot 3 snap_iter_3.solverstate,
start 3, ready 3, ask 4,
params 4, gather 4, snapshot 4 snap_iter_4.solverstate, display 4 rate 0.049, params 4, test 4 loss`
	if g, w := strings.Join(got, ", "), strings.ReplaceAll(want, "\n", " "); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

// Hooks run in every pass of an iteration, know the last one, and never run in
// tests; the loss is known once.
func TestHooksRunInEveryPass(t *testing.T) {
	s := start(t, file(t, t.TempDir(), sgd+`iter_size: 3 test_iter: 2 test_interval: 1`), Options{})
	forward, between, backward, last, losses := 0, 0, 0, 0, 0
	s.Hooks = Hooks{
		BeforeForward:  func(int) error { forward++; return nil },
		BeforeBackward: func() error { between++; return nil },
		AfterBackward: func(int) error {
			backward++
			if s.LastPass() {
				last++
			}
			return nil
		},
	}
	s.Callbacks.OnLoss = func(iter int, loss float64) error {
		if losses++; !s.LastPass() || between != 3*losses || last != (losses-1)*len(s.Net().Layers()) || loss <= 0 {
			t.Errorf("the loss %v is known after %d passes", loss, between)
		}
		return nil
	}
	step(t, s, 2)
	layers := len(s.Net().Layers())
	if forward != 6*layers || backward != 6*layers || between != 6 || last != 2*layers || losses != 2 {
		t.Errorf("calls: forward %d, between %d, backward %d, of these in the last pass %d, losses %d", forward, between, backward, last, losses)
	}
}

// What is advised can be followed.
func TestNotFiniteAdvises(t *testing.T) {
	for _, c := range []struct{ fields, instead, want string }{
		{"", "", "lower base_lr, set clip_gradients, or"},
		{" clip_gradients: 5", "", "lower base_lr, lower clip_gradients, or"},
		{"", "lower momentum", "lower base_lr, lower momentum, or"},
	} {
		s := start(t, file(t, t.TempDir(), sgd+c.fields), Options{InsteadOfClipping: c.instead})
		wantError(t, s.NotFinite(7, float32(math.NaN())), "iteration 7: the loss is NaN", c.want)
	}
}

// A gradient that is not finite ends training, or leaves the parameters as they
// are where that is asked for.
func TestGradientThatIsNotFinite(t *testing.T) {
	for _, skip := range []bool{false, true} {
		s := start(t, file(t, t.TempDir(), sgd), Options{SkipNotFinite: skip})
		var skipped []Skip
		s.Events.OnSkip = func(k Skip) { skipped = append(skipped, k) }
		step(t, s, 2)
		before := slices.Clone(weights(s))
		s.Callbacks.OnGradientsReady = func(iter int, loss float64) (Gradients, float32, error) {
			_, diff := s.Net().Packed()
			last := s.Net().Learnable()[len(s.Net().Learnable())-1]
			mem.Float32s(diff)[last.Offset] = float32(math.NaN())
			return Apply, float32(loss), nil
		}
		err := s.Step(context.Background(), 1)
		if skip && !slices.Equal(weights(s), before) {
			t.Error("skipping: parameters have changed")
		}
		if !skip {
			wantError(t, err, "iteration 2: a gradient is NaN", "of layer", "lower base_lr")
			continue
		}
		var e *NotFiniteError
		if err != nil || len(skipped) != 1 || skipped[0].Iter != 2 || !errors.As(skipped[0].Err, &e) || e.Gradient == "" {
			t.Fatalf("skipping: %v, %v", err, skipped)
		}
		s.Callbacks.OnGradientsReady = nil
		step(t, s, 1)
		if slices.Equal(weights(s), before) || slices.ContainsFunc(weights(s), func(x float32) bool { return x != x }) {
			t.Error("the iteration after the skipped one does not learn")
		}
	}
}

func TestLossIsSmoothed(t *testing.T) {
	m := smoother{window: 3}
	var got []float32
	for _, l := range []float32{3, 5, 7, 9, 2} {
		m.add(l)
		got = append(got, m.value)
	}
	if !slices.Equal(got, []float32{3, 4, 5, 7, 6}) {
		t.Errorf("smoothed losses %v", got)
	}
}

func TestLossThatIsNotFinite(t *testing.T) {
	s := start(t, file(t, t.TempDir(), sgd), Options{})
	step(t, s, 2)
	before := slices.Clone(weights(s))
	before[0] = float32(math.Inf(1))
	weights(s)[0] = before[0]
	err := s.Step(context.Background(), 1)
	wantError(t, err, "iteration 2: the loss is", `"ip1"`, "lower base_lr")
	var e *NotFiniteError
	if !errors.As(err, &e) || e.Layer != "ip1" && e.Layer != "relu" {
		t.Errorf("error %#v", err)
	}
	if !slices.Equal(before, weights(s)) {
		t.Error("the update was applied")
	}
}

// TestLastUpdateIsChecked: no loss is computed after the last update, so the
// parameters that it leaves are looked at; a snapshot is never written of what
// is not finite, with either policy.
func TestLastUpdateIsChecked(t *testing.T) {
	const fields = `base_lr: 3e38 lr_policy: "fixed" max_iter: 1 `
	for name, more := range map[string]string{
		"after training": "", "every iteration": "snapshot: 1", "no snapshot": "snapshot_after_train: false", "with momentum": "momentum: 0.9",
	} {
		for _, skip := range []bool{false, true} {
			dir := t.TempDir()
			s := start(t, file(t, dir, fields+more), Options{SkipNotFinite: skip})
			err := s.Solve(context.Background())
			wantError(t, err, "iteration 0: its update made parameter", `of layer "ip`, "lower base_lr")
			var e *NotFiniteError
			if !errors.As(err, &e) || e.Parameter == "" || e.Layer == "" || Finite(float64(e.Value)) {
				t.Errorf("%s: error %#v", name, err)
			}
			if got := names(t, dir); len(got) > 0 {
				t.Errorf("%s: files %v", name, got)
			}
		}
	}
}

// TestHistoryIsChecked: a history that is not finite would spoil the run that
// is resumed from it.
func TestHistoryIsChecked(t *testing.T) {
	for _, elsewhere := range []bool{false, true} { // others remember it, and the snapshot has it from them
		dir := t.TempDir()
		s := start(t, file(t, dir, sgd), Options{})
		step(t, s, 2)
		whole := s.History()
		if elsewhere {
			s.Hold(nil)
			s.Callbacks.History = func() [][]float32 { return whole }
		}
		whole[0][s.Net().Learnable()[1].Offset] = float32(math.Inf(1))
		wantError(t, s.Snapshot(), "iteration 1: its update made the solver's history of parameter", `of layer "ip1"`)
		if got := names(t, dir); len(got) > 0 {
			t.Errorf("files %v", got)
		}
	}
}

// TestLossAfterTheLastUpdate: parameters may be finite and what they compute not.
func TestLossAfterTheLastUpdate(t *testing.T) {
	dir := t.TempDir()
	s := start(t, file(t, dir, `base_lr: 1e30 lr_policy: "fixed" max_iter: 1 display: 1`), Options{})
	err := s.Solve(context.Background())
	wantError(t, err, "iteration 1: the loss is", "lower base_lr")
	if got := names(t, dir); len(got) > 0 {
		t.Errorf("files %v", got)
	}
}

// TestLastDisplayLeavesTheSnapshotAlone: the pass that finds the last loss gathers
// statistics, of which the snapshot knows nothing, and the test that follows does.
func TestLastDisplayLeavesTheSnapshotAlone(t *testing.T) {
	const normed = `net_param {
  layer { name: "data" type: "DummyData" top: "data" top: "target" dummy_data_param {
    shape { dim: 6 dim: 5 } shape { dim: 6 dim: 2 } data_filler { type: "gaussian" } data_filler { type: "gaussian" } } }
  layer { name: "norm" type: "BatchNorm" bottom: "data" top: "norm" }
  layer { name: "ip" type: "InnerProduct" bottom: "norm" top: "ip" inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
  layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "target" top: "loss" }
}
base_lr: 0.1 lr_policy: "fixed" max_iter: 4 `
	run := func(fields string) (model []byte, statistics [][]float32) {
		dir := t.TempDir()
		f, err := proto.ParseSolver("solver.prototxt", fmt.Appendf(nil, "%s snapshot_prefix: %q %s", normed, filepath.Join(dir, "snap"), fields))
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, f, Options{})
		solve(t, s)
		if model, err = os.ReadFile(filepath.Join(dir, "snap_iter_4.caffemodel")); err != nil {
			t.Fatal(err)
		}
		return model, s.Net().Statistics()
	}
	plain, before := run("")
	shown, after := run("display: 4")
	if !bytes.Equal(plain, shown) {
		t.Error("the snapshot has other statistics where the last loss is shown")
	}
	if len(before) != 3 || before[2][0] == after[2][0] {
		t.Errorf("the pass left statistics %v and %v", before, after)
	}
}

func TestStopAndSnapshotOnRequest(t *testing.T) {
	dir := t.TempDir()
	s := start(t, file(t, dir, sgd+`snapshot: 4 snapshot_after_train: false`), Options{})
	s.Callbacks.Requested = func(iter int) (Action, error) {
		return Action{Snapshot: iter == 2, Stop: iter == 3}, nil
	}
	solve(t, s)
	if s.Iter() != 3 {
		t.Errorf("stopped at %d", s.Iter())
	}
	if got := names(t, dir); !slices.Equal(got, []string{"snap_iter_2.caffemodel", "snap_iter_2.solverstate"}) {
		t.Errorf("files %v", got)
	}
}

func TestContextEndsTraining(t *testing.T) {
	s := start(t, file(t, t.TempDir(), sgd), Options{})
	ctx, cancel := context.WithCancelCause(context.Background())
	gone := errors.New("rank 3 is gone")
	s.Callbacks.OnStart = func(iter int) error {
		if iter == 1 {
			cancel(gone)
		}
		return nil
	}
	if err := s.Solve(ctx); !errors.Is(err, gone) {
		t.Errorf("Solve returned %v", err)
	}
	if s.Iter() != 2 {
		t.Errorf("stopped at %d", s.Iter())
	}
}

func TestCallbackErrorsEndTraining(t *testing.T) {
	bad := errors.New("broken")
	fail := func(int) error { return bad }
	for name, c := range map[string]Callbacks{
		"OnStart":          {OnStart: fail},
		"OnGradientsReady": {OnGradientsReady: func(int, float64) (Gradients, float32, error) { return Drop, 0, bad }},
		"OnParams":         {OnParams: fail},
		"OnSnapshot":       {OnSnapshot: fail},
		"Sum":              {Sum: func([]float64) ([]float64, error) { return nil, bad }},
		"Requested":        {Requested: func(int) (Action, error) { return Action{}, bad }},
	} {
		s := start(t, file(t, t.TempDir(), sgd+`test_iter: 1 test_interval: 1`), Options{})
		s.Callbacks = c
		if err := s.Solve(context.Background()); !errors.Is(err, bad) {
			t.Errorf("%s: Solve returned %v", name, err)
		}
	}
}

// A test goes on in its data where the test before it stopped, and a resumed
// run's tests see what an uninterrupted run's tests see.
func TestTestsAreRepeatable(t *testing.T) {
	fields := `base_lr: 0 lr_policy: "fixed" max_iter: 4 test_iter: 2 test_interval: 2 test_compute_loss: true`
	run := func(from int) (got []float64) {
		s := start(t, file(t, t.TempDir(), fields), Options{})
		if err := s.SetIter(from); err != nil {
			t.Fatal(err)
		}
		s.Events.OnTest = func(r Test) {
			if !r.HasLoss || math.Abs(r.Loss-r.Scores[0].Value) > 1e-6 {
				t.Errorf("test %+v", r)
			}
			got = append(got, r.Loss)
		}
		solve(t, s)
		return got
	}
	all, late := run(0), run(2)
	if len(all) != 3 || all[0] == all[1] || all[1] == all[2] {
		t.Errorf("tests %v, want three different ones", all)
	}
	if !slices.Equal(all[1:], late) {
		t.Errorf("from iteration 2: tests %v, want %v", late, all[1:])
	}
}

func TestNewRefuses(t *testing.T) {
	dir := t.TempDir()
	for fields, words := range map[string][]string{
		`lr_policy: "fixed"`:                                   {"base_lr is missing"},
		"base_lr: 1\nlr_policy: \"stepp\"":                     {`unknown lr_policy "stepp"`},
		sgd + "\ntype: \"Adamax\"":                             {`unknown solver type "Adamax"`},
		sgd + "\niter_size: 0":                                 {"iter_size is 0"},
		sgd + "\nsnapshot_format: HDF5":                        {"HDF5 is not supported"},
		sgd + "\nweights: \"/no/such.caffemodel\"":             {"/no/such.caffemodel"},
		sgd + "\ntest_net: \"/no/such.prototxt\" test_iter: 1": {"/no/such.prototxt"},
	} {
		_, err := New(file(t, dir, fields), Options{})
		wantError(t, err, words...)
	}
	// Errors about a field have its line.
	f, err := proto.ParseSolver("solver.prototxt", []byte(regression+"base_lr: 1\nlr_policy: \"stepp\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(f, Options{NoSnapshots: true})
	wantError(t, err, fmt.Sprintf("solver.prototxt:%d:1: unknown lr_policy", strings.Count(regression, "\n")+2))
	_, err = New(file(t, "/no/such/dir", sgd), Options{})
	wantError(t, err, "solver.prototxt:", `snapshots cannot be written to "/no/such/dir/snap"`, `create the directory "/no/such/dir"`)
	_, err = New(file(t, dir, sgd), Options{Data: data.Options{Part: data.Part{Index: 2, Of: 2}}})
	wantError(t, err, "part 2 of 2 does not exist")
	s := start(t, file(t, dir, `base_lr: 1 lr_policy: "fixed"`), Options{})
	wantError(t, s.Solve(context.Background()), "max_iter is missing")
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("files are left behind: %v", got)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range es {
		out = append(out, e.Name())
	}
	return out
}
