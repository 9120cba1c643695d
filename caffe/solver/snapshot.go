package solver

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/mem"
)

// checkSnapshots makes sure, before hours of training, that snapshots can be
// written where snapshot_prefix says.
func (s *Solver) checkSnapshots() error {
	if s.opts.NoSnapshots || s.param.GetSnapshot() == 0 && !s.param.GetSnapshotAfterTrain() {
		return nil
	}
	fs := s.opts.Writer.FS
	if fs == nil {
		fs = atomicfile.OS
	}
	probe := fmt.Sprintf("%s_probe_%016x.tmp", s.param.GetSnapshotPrefix(), rand.Uint64())
	f, err := fs.Create(probe)
	if err == nil {
		err = errors.Join(f.Close(), fs.Remove(probe))
	}
	if err != nil {
		return fieldError("snapshot_prefix", "snapshots cannot be written to %q: %v: create the directory %q, or set snapshot_prefix",
			s.param.GetSnapshotPrefix(), err, filepath.Dir(s.param.GetSnapshotPrefix()))
	}
	return nil
}

// checkSizes makes sure, before hours of training, that a model and a state
// can be written at all: Caffe's formats end at 2 GiB.
func (s *Solver) checkSizes() error {
	if s.opts.NoSnapshots || s.param.GetSnapshot() == 0 && !s.param.GetSnapshotAfterTrain() {
		return nil
	}
	const instead = "set snapshot: 0 and snapshot_after_train: false to train without snapshots"
	limit := s.opts.Writer.Limit()
	if size := pb.Size(s.net.ToProto()); size > limit {
		return fieldError("snapshot_prefix", "the model has %d bytes, more than a .caffemodel can hold (%d): %s", size, limit, instead)
	}
	if size := s.stateSize(); size > limit {
		return fieldError("type", "%s keeps %d values for each of %d parameters, and so a state of %d bytes, more than a .solverstate can hold (%d): use a type that keeps fewer, or %s",
			s.rule.Name(), s.rule.Histories(), s.net.ParamCount(), size, limit, instead)
	}
	return nil
}

// stateSize bounds the bytes of a .solverstate from the shapes alone: the
// history, which has those of the parameters, need not be there yet.
func (s *Solver) stateSize() int {
	data, _ := s.net.Packed()
	st := s.stateOf(fmt.Sprintf("%s_iter_%d.caffemodel", s.param.GetSnapshotPrefix(), math.MaxInt32),
		slices.Repeat([][]float32{mem.Float32s(data)}, s.rule.Histories()))
	st.Iter, st.CurrentStep = pb.Int32(math.MaxInt32), pb.Int32(math.MaxInt32)
	return pb.Size(st)
}

// Snapshot writes <snapshot_prefix>_iter_N.caffemodel, what Callbacks.Beside writes, and
// then .solverstate, each atomically: where there is a state, there is its model, and an
// earlier snapshot is never damaged. Parameters or a history that are not finite are a
// *NotFiniteError, and nothing is written. With NoSnapshots it only takes part
// in Callbacks.OnSnapshot.
func (s *Solver) Snapshot() error {
	if err := call(s.Callbacks.OnSnapshot, s.iter); err != nil {
		return err
	}
	s.written = s.iter
	if s.opts.NoSnapshots {
		return nil
	}
	history := s.wholeHistory()
	if err := s.checkNumbers(history); err != nil {
		return err
	}
	stem := fmt.Sprintf("%s_iter_%d", s.param.GetSnapshotPrefix(), s.iter)
	snap := Snapshot{Iter: s.iter, Model: stem + ".caffemodel", State: stem + ".solverstate"}
	if err := s.opts.Writer.Model(snap.Model, s.net.ToProto()); err != nil {
		return fmt.Errorf("snapshot of iteration %d: %w", s.iter, err)
	}
	if s.Callbacks.Beside != nil {
		if err := s.Callbacks.Beside(stem); err != nil {
			return fmt.Errorf("snapshot of iteration %d: %w", s.iter, err)
		}
	}
	if err := s.opts.Writer.State(snap.State, s.stateOf(snap.Model, history)); err != nil {
		return fmt.Errorf("snapshot of iteration %d: %w", s.iter, err)
	}
	if s.Events.OnSnapshot != nil {
		s.Events.OnSnapshot(snap)
	}
	return nil
}

// wholeHistory returns what the rule remembers of all parameters.
func (s *Solver) wholeHistory() [][]float32 {
	if s.Callbacks.History != nil {
		return s.Callbacks.History()
	}
	return s.History()
}

// stateOf is what a solver needs to resume, besides the model: in Caffe's layout,
// the first history of all parameters, then the second.
func (s *Solver) stateOf(model string, history [][]float32) *proto.SolverState {
	st := &proto.SolverState{
		Iter: pb.Int32(int32(s.iter)), LearnedNet: &model, CurrentStep: pb.Int32(s.currentStep()),
	}
	for _, h := range history {
		for _, p := range s.net.Learnable() {
			st.History = append(st.History, proto.NewBlob(p.Blob.Shape(), h[p.Offset:p.Offset+p.Blob.Count()], nil))
		}
	}
	return st
}

// currentStep is what Caffe remembers of the policies step and multistep: it
// is that of the last iteration done.
func (s *Solver) currentStep() int32 {
	last := max(s.iter-1, 0)
	switch s.param.GetLrPolicy() {
	case "step":
		return int32(last / int(s.param.GetStepsize()))
	case "multistep":
		return int32(passed(s.param.GetStepvalue(), last))
	}
	return 0
}

// Restore resumes from a snapshot: path is its .solverstate. The model is looked
// for where the state says, then next to the state. A snapshot of
// another net or another solver type is an error, and then nothing has
// changed.
func (s *Solver) Restore(path string) error {
	st, err := proto.ReadState(path)
	if err != nil {
		return err
	}
	model, err := readModelOf(st, path)
	if err != nil {
		return err
	}
	if err := s.checkHistory(st); err != nil {
		return fmt.Errorf("restore %s: %w", path, err)
	}
	if err := s.net.CopyFrom(model, true); err != nil {
		return fmt.Errorf("restore %s: %w", path, err)
	}
	params := s.net.Learnable()
	for k, h := range s.History() {
		for i, p := range params {
			copy(h[p.Offset:], proto.BlobData(st.GetHistory()[k*len(params)+i]))
		}
	}
	return s.SetIter(int(st.GetIter()))
}

// readModelOf reads the model that belongs to a state.
func readModelOf(st *proto.SolverState, path string) (*proto.NetParameter, error) {
	if st.GetLearnedNet() == "" {
		return nil, fmt.Errorf("restore %s: it names no model (learned_net)", path)
	}
	model, err := proto.ReadModel(st.GetLearnedNet())
	if errors.Is(err, os.ErrNotExist) {
		model, err = proto.ReadModel(filepath.Join(filepath.Dir(path), filepath.Base(st.GetLearnedNet())))
	}
	if err != nil {
		return nil, fmt.Errorf("restore %s: its model: %w", path, err)
	}
	return model, nil
}

// checkHistory holds a state's history against the net and the rule.
func (s *Solver) checkHistory(st *proto.SolverState) error {
	params := s.net.Learnable()
	if want := s.rule.Histories() * len(params); len(st.GetHistory()) != want {
		return fmt.Errorf("the state has %d histories, but solver type %s with the %d parameters of net %q has %d: it is a state of another net or another solver type",
			len(st.GetHistory()), s.rule.Name(), len(params), s.net.Name(), want)
	}
	for k, h := range st.GetHistory() {
		p := params[k%len(params)]
		if !net.FitsBlob(h, p.Blob) {
			return fmt.Errorf("history %d has shape %v, but parameter %q has %v: it is a state of another net",
				k, proto.BlobShapeOf(h), p.Name, p.Blob.Shape())
		}
	}
	return nil
}

// Weights sets the parameters of layers to those of the same names in models
// (.caffemodel), one after the other: how a net is fine-tuned. Layers that a
// model lacks are left alone.
func (s *Solver) Weights(paths ...string) error {
	for _, path := range paths {
		m, err := proto.ReadModel(path)
		if err != nil {
			return err
		}
		for _, n := range append(s.TestNets(), s.net) { // a test net may have layers that the training net lacks
			if err := n.CopyFrom(m, false); err != nil {
				return fmt.Errorf("weights %s: %w", path, err)
			}
		}
	}
	return nil
}
