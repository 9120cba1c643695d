package solver

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/internal/atomicfile/errorfs"
)

const adam = `type: "Adam" base_lr: 0.01 lr_policy: "inv" gamma: 0.1 power: 0.75 momentum: 0.9 momentum2: 0.99 weight_decay: 0.01 max_iter: 6 `

// A run that is interrupted and resumed ends with the bits of one that is
// not, with dropout, iter_size and tests in between.
func TestResumeIsBitIdentical(t *testing.T) {
	for name, fields := range map[string]string{
		"SGD": sgd, "Adam": adam,
		"Nesterov": strings.Replace(sgd, "momentum", `type: "Nesterov" momentum`, 1),
		"AdaDelta": `type: "AdaDelta" base_lr: 1 lr_policy: "fixed" momentum: 0.95 delta: 1e-5 max_iter: 6 `,
	} {
		t.Run(name, func(t *testing.T) {
			fields += `iter_size: 2 test_iter: 1 test_interval: 2 snapshot: 3 random_seed: 11`
			whole := t.TempDir()
			solve(t, start(t, file(t, whole, fields), Options{}))

			parts := t.TempDir()
			first := start(t, file(t, parts, fields), Options{})
			step(t, first, 3)
			second := start(t, file(t, parts, fields), Options{})
			if err := second.Restore(filepath.Join(parts, "snap_iter_3.solverstate")); err != nil {
				t.Fatal(err)
			}
			if second.Iter() != 3 {
				t.Fatalf("resumed at iteration %d", second.Iter())
			}
			solve(t, second)
			a, err := os.ReadFile(filepath.Join(whole, "snap_iter_6.caffemodel"))
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(filepath.Join(parts, "snap_iter_6.caffemodel"))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(a, b) {
				t.Error("the models differ")
			}
			x, y := readState(t, filepath.Join(whole, "snap_iter_6.solverstate")), readState(t, filepath.Join(parts, "snap_iter_6.solverstate"))
			for i := range x.GetHistory() {
				if !slices.Equal(x.GetHistory()[i].GetData(), y.GetHistory()[i].GetData()) {
					t.Errorf("history %d differs", i)
				}
			}
		})
	}
}

func readState(t *testing.T, path string) *proto.SolverState {
	t.Helper()
	st, err := proto.ReadState(path)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// The layout is Caffe's: each history in the order and shape of the
// parameters, the second ones (Adam's v) after all the first.
func TestStateLayout(t *testing.T) {
	dir := t.TempDir()
	s := start(t, file(t, dir, adam), Options{})
	step(t, s, 4)
	if err := s.Snapshot(); err != nil {
		t.Fatal(err)
	}
	st := readState(t, filepath.Join(dir, "snap_iter_4.solverstate"))
	if st.GetIter() != 4 || st.GetLearnedNet() != filepath.Join(dir, "snap_iter_4.caffemodel") {
		t.Errorf("iteration %d, model %q", st.GetIter(), st.GetLearnedNet())
	}
	params := s.Net().Learnable()
	if len(st.GetHistory()) != 2*len(params) {
		t.Fatalf("%d histories for %d parameters", len(st.GetHistory()), len(params))
	}
	for i, h := range st.GetHistory() {
		p := params[i%len(params)]
		if !slices.Equal(proto.BlobShapeOf(h), p.Blob.Shape()) {
			t.Errorf("history %d has shape %v, parameter %s %v", i, proto.BlobShapeOf(h), p.Name, p.Blob.Shape())
		}
		want := s.History()[i/len(params)][p.Offset:][:p.Blob.Count()]
		if !slices.Equal(h.GetData(), want) {
			t.Errorf("history %d is not that of %s", i, p.Name)
		}
	}
	if st := start(t, file(t, dir, sgd), Options{}); st.currentStep() != 0 {
		t.Errorf("current_step %d at the start", st.currentStep())
	}
	m := start(t, file(t, dir, `base_lr: 1 lr_policy: "multistep" gamma: 1 stepvalue: 2 stepvalue: 5`), Options{})
	if err := m.SetIter(6); err != nil {
		t.Fatal(err)
	}
	if m.currentStep() != 2 {
		t.Errorf("current_step %d after iteration 5", m.currentStep())
	}
}

func TestRestoreRefuses(t *testing.T) {
	dir := t.TempDir()
	s := start(t, file(t, dir, sgd), Options{})
	step(t, s, 2)
	if err := s.Snapshot(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "snap_iter_2.solverstate")
	otherSolver := start(t, file(t, dir, adam), Options{})
	before := slices.Clone(weights(otherSolver))
	wantError(t, otherSolver.Restore(path), path, "the state has 4 histories, but solver type Adam with the 4 parameters", "another solver type")

	// with renames ip1, or makes it wider where it keeps its name.
	with := func(from, to string) *Solver {
		t.Helper()
		f := file(t, dir, sgd)
		for _, l := range f.Solver.GetNetParam().GetLayer() {
			if l.GetName() == from {
				*l.Name = to
				if from == to {
					*l.InnerProductParam.NumOutput = 9
				}
			}
		}
		return start(t, f, Options{})
	}
	wantError(t, with("ip1", "ip1").Restore(path), "history 0 has shape [4 5]", `parameter "ip1.0" has [9 5]`, "another net")
	wantError(t, with("ip1", "fc1").Restore(path), `layer "fc1"`, "another net")
	if !slices.Equal(before, weights(otherSolver)) || otherSolver.Iter() != 0 {
		t.Error("a refused snapshot changed the solver")
	}
	wantError(t, s.Restore(filepath.Join(dir, "none.solverstate")), "none.solverstate")
	wantError(t, s.Restore(filepath.Join(dir, "snap_iter_2.caffemodel")), "snap_iter_2.caffemodel")
	state, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(dir, "cut.solverstate")
	if err := os.WriteFile(cut, state[:len(state)/2], 0o666); err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(cut); !errors.Is(err, proto.ErrFormat) {
		t.Errorf("a truncated state gave %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "snap_iter_2.caffemodel")); err != nil {
		t.Fatal(err)
	}
	wantError(t, s.Restore(path), "its model", "snap_iter_2.caffemodel")
}

// A snapshot that was moved to another folder is found beside its state.
func TestRestoreMovedSnapshot(t *testing.T) {
	dir := t.TempDir()
	s := start(t, file(t, dir, sgd), Options{})
	step(t, s, 2)
	if err := s.Snapshot(); err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	other := start(t, file(t, t.TempDir(), sgd+`random_seed: 5`), Options{})
	if err := other.Restore(filepath.Join(moved, "snap_iter_2.solverstate")); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(weights(s), weights(other)) {
		t.Error("the parameters differ")
	}
}

// A disk that fills up during a snapshot ends training with an error that
// says so, and leaves the earlier snapshot as it was.
func TestFullDiskDuringSnapshot(t *testing.T) {
	dir := t.TempDir()
	first := start(t, file(t, dir, sgd), Options{})
	step(t, first, 2)
	if err := first.Snapshot(); err != nil {
		t.Fatal(err)
	}
	before := contents(t, dir)
	model := int64(len(before["snap_iter_2.caffemodel"]))
	for _, fits := range []int64{0, 10, model + 5} {
		fs := &errorfs.FS{Fault: errorfs.Write, After: fits}
		s := start(t, file(t, dir, sgd), Options{Writer: proto.Writer{FS: fs}})
		step(t, s, 2)
		err := s.Snapshot()
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("%d bytes fit: error %v", fits, err)
		}
		wantError(t, err, "snapshot of iteration 2")
		for name, b := range contents(t, dir) {
			if !bytes.Equal(b, before[name]) {
				t.Errorf("%d bytes fit: %s changed", fits, name)
			}
		}
	}
}

func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, n := range names(t, dir) {
		b, err := os.ReadFile(filepath.Join(dir, n))
		if err != nil {
			t.Fatal(err)
		}
		out[n] = b
	}
	return out
}

func TestWeightsFineTune(t *testing.T) {
	dir := t.TempDir()
	s := start(t, file(t, dir, sgd), Options{})
	step(t, s, 2)
	if err := s.Snapshot(); err != nil {
		t.Fatal(err)
	}
	model := filepath.Join(dir, "snap_iter_2.caffemodel")
	f := file(t, dir, sgd+`random_seed: 5`)
	for _, l := range f.Solver.GetNetParam().GetLayer() {
		if l.GetName() == "ip2" {
			*l.Name = "new"
		}
	}
	tuned := start(t, f, Options{})
	old := slices.Clone(tuned.Net().Learnable()[2].Blob.Data())
	if err := tuned.Weights(model); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(tuned.Net().Learnable()[0].Blob.Data(), s.Net().Learnable()[0].Blob.Data()) {
		t.Error("ip1 was not copied")
	}
	if !slices.Equal(tuned.Net().Learnable()[2].Blob.Data(), old) {
		t.Error("the new layer was changed")
	}
	if tuned.Iter() != 0 {
		t.Errorf("iteration %d", tuned.Iter())
	}
	// The same through the solver's own field.
	f.Solver.Weights = []string{" " + model + " ,"}
	again := start(t, f, Options{})
	if !slices.Equal(weights(again), weights(tuned)) {
		t.Error("weights: in the solver file gave other parameters")
	}
}

// Workers that write no snapshots take part in OnSnapshot and need no folder.
func TestNoSnapshots(t *testing.T) {
	f := file(t, filepath.Join(t.TempDir(), "missing"), sgd+`snapshot: 2`)
	s := start(t, f, Options{NoSnapshots: true})
	calls := 0
	s.Callbacks.OnSnapshot = func(int) error { calls++; return nil }
	solve(t, s)
	if calls != 3 {
		t.Errorf("OnSnapshot ran %d times", calls)
	}
}

// Files that would be too large are refused before training begins. (The limit
// of 2 GiB is made small here.)
func TestTooLargeSnapshotsAreRefusedAtStart(t *testing.T) {
	for _, typ := range []string{"SGD", "Adam"} {
		f := func(fields string) *proto.SolverFile {
			text := strings.Replace(regression, "num_output: 4", "num_output: 100", 1) +
				fmt.Sprintf("base_lr: 0.1 lr_policy: 'fixed' max_iter: 1 type: %q snapshot_prefix: %q ", typ, filepath.Join(t.TempDir(), "snap")) + fields
			f, err := proto.ParseSolver("solver.prototxt", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		s := start(t, f(""), Options{})
		solve(t, s)
		prefix := s.Param().GetSnapshotPrefix()
		size := func(name string) int {
			info, err := os.Stat(prefix + name)
			if err != nil {
				t.Fatal(err)
			}
			return int(info.Size())
		}
		model, state := size("_iter_1.caffemodel"), size("_iter_1.solverstate")
		if got := s.stateSize(); got < state || got > state+32 {
			t.Errorf("%s: a state of %d bytes was foreseen, %d were written", typ, got, state)
		}

		largest := func(n int) Options { return Options{Writer: proto.Writer{MaxBytes: n}} }
		_, err := New(f(""), largest(model-1))
		wantError(t, err, "solver.prototxt:12:", fmt.Sprintf("the model has %d bytes", model), "set snapshot: 0")
		if typ == "Adam" { // whose state is larger than its model
			_, err = New(f(""), largest(state-1))
			wantError(t, err, "solver.prototxt:", "Adam keeps 2 values for each of 802 parameters", fmt.Sprintf("more than a .solverstate can hold (%d)", state-1))
		}
		solve(t, start(t, f(""), largest(max(model, s.stateSize()))))
		solve(t, start(t, f("snapshot_after_train: false"), largest(model-1)))
		o := largest(model - 1)
		o.NoSnapshots = true // another worker writes
		start(t, f(""), o)
	}
}
