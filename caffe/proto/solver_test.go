package proto

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// good is the least that a solver must say.
const good = "net: 'n' lr_policy: 'fixed' "

func validatedSolver(text string, options ...SolverOption) string {
	f, err := ParseSolver("s", []byte(text), options...)
	if err == nil {
		err = f.Validate()
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestSolverErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"hdf5", good + "\nsnapshot_format: HDF5", "s:2:1: snapshot_format: " + hdf5},
		{"typo", good + "\nmomentun: 0.9", `s:2:1: unknown field "momentun" (did you mean "momentum"?)`},
		{"policy", "net: 'n'\nlr_policy: 'stpe'", `s:2:1: lr_policy: invalid value "stpe": must be one of fixed, step, exp, inv, multistep, poly, sigmoid`},
		{"no policy", "net: 'n'", "s: lr_policy is missing: it must be one of fixed, step, exp, inv, multistep, poly, sigmoid"},
		{"stepsize", "net: 'n'\nlr_policy: 'step'", "s: lr_policy step needs a stepsize of at least 1"},
		{"gamma", good + "\ngamma: -1", "s:2:1: gamma must not be negative"},
		{"regularization", good + "\nregularization_type: 'L3'", `s:2:1: regularization_type: invalid value "L3": must be one of L1, L2`},
		{"type", good + "\ntype: 'LBFGS'", `s:2:1: type: invalid value "LBFGS": must be one of SGD, Nesterov, AdaGrad, RMSProp, AdaDelta, Adam`},
		{"both types", good + "\ntype: 'SGD'\nsolver_type: SGD", "s:3:1: type and solver_type cannot be used together: keep type"},
		{"momentum", good + "type: 'AdaGrad'\nmomentum: 0.9", "s:2:1: momentum cannot be used with AdaGrad: remove it"},
		{"rms_decay", good + "type: 'RMSProp'\nrms_decay: 1", "s:2:1: rms_decay must be at least 0 and less than 1"},
		{"debug", good + "\ndebug_info: true", "s:2:1: debug_info: debug output is not supported: remove it"},
		{"diff", good + "\nsnapshot_diff: true", "s:2:1: snapshot_diff: snapshots hold no gradients: remove it"},
		{"iter_size", good + "\niter_size: 0", "s:2:1: iter_size: must be at least 1"},
		{"second test_iter", good + "test_interval: 1\ntest_iter: 1\ntest_iter: 0", "s:3:1: test_iter: must be at least 1"},
		{"no net", "lr_policy: 'fixed'", "s: no train net: set one of net, net_param, train_net, train_net_param"},
		{"two nets", good + "\ntrain_net: 'm'", "s:2:1: more than one train net (net, train_net): keep one"},
		{"test_interval", good + "\ntest_iter: 1", "s: test_interval must be at least 1 if test_iter is set"},
		{"test_iter", good + "test_net: 'a'\ntest_net: 'b'\ntest_iter: 1\ntest_interval: 1", "s:3:1: 1 test_iter for 2 test nets: want one each"},
		{"test_iter without a net", "train_net: 'n' lr_policy: 'fixed'\ntest_iter: 1\ntest_interval: 1", "s:2:1: 1 test_iter for 0 test nets: want one each"},
		{"test_state", good + "test_interval: 1 test_iter: 1\ntest_state { }\ntest_state { }", "s:2:1: 2 test_state for 1 test nets: give none, or one each"},
		{"inline typo", "lr_policy: 'fixed'\ntrain_net_param {\n  layer { name: 'a' tipe: 'ReLU' }\n}", `s:3:21: unknown field "tipe" in layer "a" (did you mean "type"?)`},
		{"inline layer", "lr_policy: 'fixed'\ntrain_net_param {\n  layer { name: 'a' type: 'Rely' }\n}", `s:3:21: layer "a": type "Rely" is not supported (did you mean "ReLU"?)`},
		{
			"inline test net", "test_iter: [1, 1] test_interval: 1 net: 'n' lr_policy: 'fixed'\ntest_net_param { }\ntest_net_param {\n  debug_info: true\n  layer { name: 'a' }\n}",
			"s:4:3: debug_info: debug output is not supported: remove it\ns:5:3: layer \"a\": has no type",
		},
		{"base_lr nan", good + "base_lr: nan", "s:1:29: base_lr: must be a finite number (got nan)"},
		{"base_lr inf", good + "\nbase_lr: 1\nmomentum: inf", "s:3:1: momentum: must be a finite number (got +inf)"},
		{"inline old form", "lr_policy: 'fixed' net_param { layers { name: 'a' type: BNLL } }", `s:1:51: layer "a": type "BNLL" is not supported: supported are ` + strings.Join(LayerTypes(), ", ")},
	} {
		if got := validatedSolver(c.text); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestSolverAccepts(t *testing.T) {
	for _, text := range []string{
		good + "solver_mode: GPU device_id: 3 layer_wise_reduce: false debug_info: false snapshot_diff: false",
		good + "type: 'RMSProp' rms_decay: 0.98 momentum: 0",
		good + "weights: 'a,b' clip_gradients: 35 snapshot_after_train: false test_initialization: false test_compute_loss: true",
	} {
		if got := validatedSolver(text); got != "" {
			t.Errorf("%s\n%s", text, got)
		}
	}
}

func TestSnapshotFormatOverride(t *testing.T) {
	format, err := ParseSnapshotFormat("binaryproto")
	if err != nil {
		t.Fatal(err)
	}
	if got := validatedSolver(good+"snapshot_format: HDF5", WithSnapshotFormat(format)); got != "" {
		t.Errorf("got %s", got)
	}
	for _, bad := range []string{"hdf5", "", "zip"} {
		if _, err := ParseSnapshotFormat(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestCaffe_UpgradeSolverType maps each old name onto today's.
func TestCaffe_UpgradeSolverType(t *testing.T) {
	for old, want := range map[string]string{"SGD": "SGD", "NESTEROV": "Nesterov", "ADAGRAD": "AdaGrad", "RMSPROP": "RMSProp", "ADADELTA": "AdaDelta", "ADAM": "Adam"} {
		f, err := ParseSolver("s", []byte("solver_type: "+old))
		if err != nil || f.Solver.GetType() != want || f.Solver.SolverType != nil {
			t.Errorf("%s became %q, %v, want %q", old, f.Solver.GetType(), err, want)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCaffe_SnapshotPrefix: missing, a directory, and neither.
func TestCaffe_SnapshotPrefix(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "my_solver.prototxt")
	for extra, want := range map[string]string{
		"":                                  filepath.Join(dir, "my_solver"),
		"snapshot_prefix: '" + dir + "'":    filepath.Join(dir, "my_solver"),
		"snapshot_prefix: '" + dir + "/x1'": filepath.Join(dir, "x1"),
	} {
		write(t, path, good+extra)
		f, err := ReadSolver(path)
		if err != nil || f.Solver.GetSnapshotPrefix() != want {
			t.Errorf("%s: got %q, %v, want %q", extra, f.Solver.GetSnapshotPrefix(), err, want)
		}
	}
}

// TestCaffe_TestNetsInOrder: test_net_param, then test_net, then net for each
// test_iter that is left; the states are merged in their order.
func TestCaffe_TestNetsInOrder(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "generic", "name: 'generic' state { stage: 'n' level: 3 }")
	write(t, "own", "name: 'own'")
	write(t, "s", `net: "generic" lr_policy: "fixed" test_interval: 1 test_iter: [1, 2, 3, 4]
		test_net: "own" test_net_param { name: "inline" layer { name: "a" type: "Silence" } }
		train_state { stage: "t" } test_state { } test_state { level: 9 } test_state { stage: "s" } test_state { phase: TRAIN }`)
	f, err := ReadSolver("s")
	if err != nil {
		t.Fatal(err)
	}
	train, err := f.TrainNet()
	if err != nil {
		t.Fatal(err)
	}
	tests, err := f.TestNets()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range append([]*NetFile{train}, tests...) {
		s := n.Net.GetState()
		got = append(got, strings.Join(append([]string{n.Net.GetName(), s.GetPhase().String(), string(rune('0' + s.GetLevel()))}, s.GetStage()...), " "))
	}
	want := []string{"generic TRAIN 3 n t", "inline TEST 0", "own TEST 9", "generic TEST 3 n s", "generic TRAIN 3 n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if p := tests[0].LayerPos(0, "type").String(); p != "s:2:69" {
		t.Errorf("the place of an inline net's layer is %s", p)
	}
}

func TestTrainNetForms(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "file", "name: 'of a file'")
	for text, want := range map[string]string{
		"net: 'file'":                         "of a file",
		"train_net: 'file'":                   "of a file",
		"net_param { name: 'inline' }":        "inline",
		"train_net_param { name: 'inline2' }": "inline2",
	} {
		f, err := ParseSolver("s", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		n, err := f.TrainNet()
		if err != nil || n.Net.GetName() != want || n.Net.GetState().GetPhase() != Phase_TRAIN {
			t.Errorf("%s: got %v, %v", text, n, err)
		}
	}
}

func TestMissingNetNamesTheSolversLine(t *testing.T) {
	t.Chdir(t.TempDir())
	f, err := ParseSolver("s", []byte("max_iter: 1\nnet: 'none.prototxt'"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.TrainNet()
	if err == nil || !strings.HasPrefix(err.Error(), "s:2:1: net: read net: open none.prototxt") || !strings.Contains(err.Error(), "working directory") {
		t.Errorf("got %v", err)
	}
	write(t, "none.prototxt", "layer { type: 'Nix' name: 'x' }")
	if _, err = f.TrainNet(); err == nil || !strings.HasPrefix(err.Error(), `none.prototxt:1:9: layer "x": type "Nix" is not supported`) {
		t.Errorf("got %v", err)
	}
}
