package proto

import (
	"os"
	"path/filepath"
	"strings"

	pb "google.golang.org/protobuf/proto"
)

// upgrade replaces the old forms of a net that Caffe still takes.
func (f *NetFile) upgrade() error {
	if err := f.upgradeLayers(); err != nil {
		return err
	}
	f.upgradeBatchNorm()
	return f.upgradeInput()
}

// upgradeInput turns input with input_shape or input_dim into an Input layer
// before all others, named "input", as Caffe does.
func (f *NetFile) upgradeInput() error {
	n := f.Net
	inputs, shapes, dims := len(n.Input), len(n.InputShape), len(n.InputDim)
	switch {
	case inputs == 0 && shapes == 0 && dims == 0:
		return nil
	case f.model: // old models name inputs without shapes
		n.Input, n.InputShape, n.InputDim = nil, nil, nil
		return nil
	case inputs == 0:
		return errorAt(f.FieldPos("input_shape"), "input_shape or input_dim without input: name the inputs, or use an Input layer")
	case shapes > 0 && dims > 0:
		return errorAt(f.FieldPos("input_dim"), "input_shape and input_dim cannot be used together: keep one")
	case shapes == 0 && dims == 0:
		return errorAt(f.FieldPos("input"), "input %q has no shape: add input_shape { dim: ... }", n.Input[0])
	case shapes > 0 && shapes != inputs:
		return errorAt(f.FieldPos("input_shape"), "%d input_shape for %d input: want one each", shapes, inputs)
	case dims > 0 && dims != 4*inputs:
		return errorAt(f.FieldPos("input_dim"), "%d input_dim for %d input: want four each", dims, inputs)
	}
	layer := &LayerParameter{Name: pb.String("input"), Type: pb.String("Input"), Top: n.Input, InputParam: &InputParameter{Shape: n.InputShape}}
	for i := 0; i < dims; i += 4 {
		shape := &BlobShape{}
		for _, d := range n.InputDim[i : i+4] {
			shape.Dim = append(shape.Dim, int64(d))
		}
		layer.InputParam.Shape = append(layer.InputParam.Shape, shape)
	}
	if f.layers != nil || len(n.Layer) == 0 {
		f.layers = append([]*node{f.root.find("input")}, f.layers...)
	}
	n.Layer = append([]*LayerParameter{layer}, n.Layer...)
	n.Input, n.InputShape, n.InputDim = nil, nil, nil
	return nil
}

// upgradeBatchNorm keeps the solver from changing the three blobs of a BatchNorm
// layer that lists all three of them, as Caffe does: they are statistics, not
// weights.
func (f *NetFile) upgradeBatchNorm() {
	for _, l := range f.Net.Layer {
		if l.GetType() != "BatchNorm" || len(l.Param) != 3 {
			continue
		}
		for _, p := range l.Param {
			p.LrMult, p.DecayMult = pb.Float32(0), pb.Float32(0)
		}
	}
}

// solverTypes are the values of type for each solver_type.
var solverTypes = map[SolverParameter_SolverType]string{
	SolverParameter_SGD:      "SGD",
	SolverParameter_NESTEROV: "Nesterov",
	SolverParameter_ADAGRAD:  "AdaGrad",
	SolverParameter_RMSPROP:  "RMSProp",
	SolverParameter_ADADELTA: "AdaDelta",
	SolverParameter_ADAM:     "Adam",
}

// upgrade replaces solver_type by type.
func (f *SolverFile) upgrade() error {
	s := f.Solver
	if s.SolverType == nil {
		return nil
	}
	if s.Type != nil {
		return errorAt(f.FieldPos("solver_type"), "type and solver_type cannot be used together: keep type")
	}
	s.Type = pb.String(solverTypes[s.GetSolverType()])
	s.SolverType = nil
	return nil
}

func (f *SolverFile) setSnapshotPrefix() {
	stem := strings.TrimSuffix(f.Path, filepath.Ext(f.Path))
	prefix := f.Solver.GetSnapshotPrefix()
	if f.Solver.SnapshotPrefix == nil {
		f.Solver.SnapshotPrefix = pb.String(stem)
	} else if info, err := os.Stat(prefix); err == nil && info.IsDir() {
		f.Solver.SnapshotPrefix = pb.String(filepath.Join(prefix, filepath.Base(stem)))
	}
}
