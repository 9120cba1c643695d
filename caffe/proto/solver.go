package proto

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	pb "google.golang.org/protobuf/proto"
)

// SolverOption changes how a solver file is read.
type SolverOption func(*SolverFile)

// WithSnapshotFormat overrides the file's snapshot_format, as --snapshot-format
// does.
func WithSnapshotFormat(format SolverParameter_SnapshotFormat) SolverOption {
	return func(f *SolverFile) { f.Solver.SnapshotFormat = format.Enum() }
}

// ParseSnapshotFormat reads the value of --snapshot-format, in any case.
func ParseSnapshotFormat(text string) (SolverParameter_SnapshotFormat, error) {
	v, ok := SolverParameter_SnapshotFormat_value[strings.ToUpper(text)]
	if !ok || v == int32(SolverParameter_HDF5) {
		return 0, fmt.Errorf("snapshot format %q is not supported: use binaryproto", text)
	}
	return SolverParameter_SnapshotFormat(v), nil
}

// Validate reports every field of the solver that scaffe does not support or
// that contradicts another, as NetFile.Validate does. It does not read nets that
// are named by path.
func (f *SolverFile) Validate() error {
	s := f.Solver
	report := func(path []string, format string, args ...any) error {
		return errorAt(f.FieldPos(path...), format, args...)
	}
	errs := checkMessage(s.ProtoReflect(), nil, report)
	errs = append(errs, checkPolicy(s, report)...)
	errs = append(errs, checkUpdate(s, report)...)
	errs = append(errs, checkNets(s, report)...)
	for _, in := range f.inlineNets() {
		nf, err := f.inline(in.step, in.net)
		if err == nil {
			err = nf.checkLayers()
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return byLine(errs)
}

// checkLayers is Validate without the fields of the net itself, which
// SolverFile.Validate checks.
func (f *NetFile) checkLayers() error {
	var errs []error
	for i, l := range f.Net.GetLayer() {
		errs = append(errs, f.checkLayer(i, l)...)
	}
	return byLine(errs)
}

func checkPolicy(s *SolverParameter, report reporter) []error {
	var errs []error
	if s.LrPolicy == nil {
		errs = append(errs, report(nil, "lr_policy is missing: it %s", rules["caffe.SolverParameter.lr_policy"].why))
	}
	if p := s.GetLrPolicy(); p == "step" && s.GetStepsize() <= 0 {
		errs = append(errs, report([]string{"stepsize"}, "lr_policy step needs a stepsize of at least 1"))
	}
	if s.GetGamma() < 0 {
		errs = append(errs, report([]string{"gamma"}, "gamma must not be negative"))
	}
	return errs
}

// checkUpdate refuses what Caffe's solvers refuse.
func checkUpdate(s *SolverParameter, report reporter) []error {
	var errs []error
	typ := s.GetType()
	if (typ == "AdaGrad" || typ == "RMSProp") && s.GetMomentum() != 0 {
		errs = append(errs, report([]string{"momentum"}, "momentum cannot be used with %s: remove it", typ))
	}
	if typ == "RMSProp" && (s.GetRmsDecay() < 0 || s.GetRmsDecay() >= 1) {
		errs = append(errs, report([]string{"rms_decay"}, "rms_decay must be at least 0 and less than 1"))
	}
	return errs
}

// checkNets compares the numbers of nets, test_iter and test_state.
func checkNets(s *SolverParameter, report reporter) []error {
	var errs []error
	train := trainFields(s)
	if len(train) == 0 {
		errs = append(errs, report(nil, "no train net: set one of net, net_param, train_net, train_net_param"))
	}
	if len(train) > 1 {
		errs = append(errs, report([]string{train[1]}, "more than one train net (%s): keep one", strings.Join(train, ", ")))
	}
	own, tests := len(s.TestNetParam)+len(s.TestNet), len(s.TestIter)
	generic := s.Net != nil || s.NetParam != nil
	if tests < own || tests > own && !generic {
		errs = append(errs, report([]string{"test_iter"}, "%d test_iter for %d test nets: want one each", tests, own))
	}
	if n := len(s.TestState); n != 0 && n != tests {
		errs = append(errs, report([]string{"test_state"}, "%d test_state for %d test nets: give none, or one each", n, tests))
	}
	if tests > 0 && s.GetTestInterval() == 0 {
		errs = append(errs, report([]string{"test_interval"}, "test_interval must be at least 1 if test_iter is set"))
	}
	return errs
}

// trainFields lists those of the fields naming a train net that are set.
func trainFields(s *SolverParameter) []string {
	var out []string
	for _, c := range []struct {
		set  bool
		name string
	}{
		{s.Net != nil, "net"},
		{s.NetParam != nil, "net_param"},
		{s.TrainNet != nil, "train_net"},
		{s.TrainNetParam != nil, "train_net_param"},
	} {
		if c.set {
			out = append(out, c.name)
		}
	}
	return out
}

type inlineNet struct {
	step string
	net  *NetParameter
}

func (f *SolverFile) inlineNets() []inlineNet {
	var out []inlineNet
	add := func(step string, n *NetParameter) {
		if n != nil {
			out = append(out, inlineNet{step, n})
		}
	}
	add("net_param", f.Solver.NetParam)
	add("train_net_param", f.Solver.TrainNetParam)
	for i, n := range f.Solver.TestNetParam {
		add(fmt.Sprintf("test_net_param[%d]", i), n)
	}
	return out
}

// inline makes a NetFile of a net within the solver.
func (f *SolverFile) inline(step string, net *NetParameter) (*NetFile, error) {
	at := f.root.find(step)
	if at == f.root {
		at = &node{pos: f.root.pos}
	}
	return newNetFile(f.Path, pb.Clone(net).(*NetParameter), at)
}

// file reads a net that the solver names by path. As in Caffe, paths are
// relative to the working directory.
func (f *SolverFile) file(step, path string) (*NetFile, error) {
	nf, err := ReadNet(path)
	var open *fs.PathError
	if errors.As(err, &open) {
		return nil, errorAt(f.FieldPos(step), "%s: %w (paths are relative to the working directory, as in Caffe)", step, err)
	}
	return nf, err
}

// TrainNet reads the train net. Its state, to which include and exclude rules
// apply, is the phase TRAIN, merged with the net's own state and then with the
// solver's train_state.
func (f *SolverFile) TrainNet() (*NetFile, error) {
	s := f.Solver
	var nf *NetFile
	var err error
	switch {
	case s.TrainNetParam != nil:
		nf, err = f.inline("train_net_param", s.TrainNetParam)
	case s.TrainNet != nil:
		nf, err = f.file("train_net", s.GetTrainNet())
	default:
		nf, err = f.generic()
	}
	if err != nil {
		return nil, err
	}
	nf.setState(Phase_TRAIN, s.TrainState)
	return nf, nil
}

// generic reads the net that is used for both training and testing.
func (f *SolverFile) generic() (*NetFile, error) {
	switch {
	case f.Solver.NetParam != nil:
		return f.inline("net_param", f.Solver.NetParam)
	case f.Solver.Net != nil:
		return f.file("net", f.Solver.GetNet())
	}
	return nil, errorAt(Pos{File: f.Path}, "no train net: set one of net, net_param, train_net, train_net_param")
}

// TestNets reads the test nets in Caffe's order: first each test_net_param,
// then each test_net, then net or net_param once for each test_iter that is
// left; net i is tested for test_iter[i] batches. Each one's state is the phase
// TEST, merged with the net's own state and then with its test_state.
func (f *SolverFile) TestNets() ([]*NetFile, error) {
	s := f.Solver
	nets := make([]*NetFile, 0, len(s.TestIter))
	for i := range s.TestIter {
		nf, err := f.testNet(i)
		if err != nil {
			return nil, err
		}
		var state *NetState
		if i < len(s.TestState) {
			state = s.TestState[i]
		}
		nf.setState(Phase_TEST, state)
		nets = append(nets, nf)
	}
	return nets, nil
}

func (f *SolverFile) testNet(i int) (*NetFile, error) {
	s := f.Solver
	if i < len(s.TestNetParam) {
		return f.inline(fmt.Sprintf("test_net_param[%d]", i), s.TestNetParam[i])
	}
	if i -= len(s.TestNetParam); i < len(s.TestNet) {
		return f.file(fmt.Sprintf("test_net[%d]", i), s.TestNet[i])
	}
	return f.generic()
}

func (f *NetFile) setState(phase Phase, last *NetState) {
	state := &NetState{Phase: phase.Enum()}
	pb.Merge(state, f.Net.GetState())
	if last != nil {
		pb.Merge(state, last)
	}
	f.Net.State = state
}
