package train

import (
	"fmt"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/trace"
)

// Scaling says what a rank's batch is.
type Scaling uint8

const (
	// Strong scaling divides the net's batch_size by the ranks: the global
	// batch stays what the prototxt says.
	Strong Scaling = iota
	// Weak scaling keeps batch_size on every rank.
	Weak
)

// ParseScaling reads "strong" or "weak".
func ParseScaling(s string) (Scaling, error) {
	switch s {
	case "strong":
		return Strong, nil
	case "weak":
		return Weak, nil
	}
	return 0, fmt.Errorf("unknown scaling %q: want strong (batch_size divided by the ranks) or weak (batch_size per rank)", s)
}

// Config says what to train and how.
type Config struct {
	// Solver is the solver file, read and checked.
	Solver *proto.SolverFile
	// Device is where workers compute, alike on all ranks.
	Device Device
	// Math is how a GPU's cuBLAS and cuDNN compute products of float32.
	Math cuda.Math
	// Scaling divides the batch.
	Scaling Scaling
	// Snapshot, unless empty, is what to resume from: a .solverstate, a directory with
	// checkpoints (of which it takes the newest), or the manifest of one.
	Snapshot string
	// Checkpoint has the ranks keep checkpoints.
	Checkpoint Checkpoint
	// Weights are .caffemodels to start from (fine-tuning).
	Weights []string
	// Design is when parameters and gradients move, Scheme how gradients become
	// parameters everywhere (the zero value, Auto, chooses for each layer), and Bucket the least size of what moves as one, in
	// bytes; 0 leaves that to package exchange.
	Design exchange.Design
	Scheme exchange.Scheme
	Bucket int
	// Workers are the ranks that compute, the zero value all: the batch is divided among
	// them. Servers are the ranks that hold the parameters with the scheme PS, the zero value
	// all; every rank works or serves. Pair is the size of their KV pairs in bytes, 0
	// coordinator.DefaultPair; a Slice but coordinator.AutoSlice takes its place, and cuts what
	// moves by other schemes too.
	Workers, Servers coordinator.Places
	Pair             int
	Slice            coordinator.Slice
	Placement        coordinator.Placement // of KV pairs
	Pull             coordinator.Pull      // how they come back
	// MaySlice is what Auto may cut to where Slice is coordinator.AutoSlice, if the predicted iteration gains by it; 0: nothing.
	MaySlice coordinator.Slice
	// Credit is asked for as coordinator.Credit has it.
	Credit int
	// Sparse is what the scheme DGC sends of gradients; nil is coordinator.DefaultSparse.
	Sparse *coordinator.Sparse
	// Consistency says for whom an iteration waits.
	Consistency Consistency
	// Asked, unless nil, asks for schemes layer by layer, in place of Scheme.
	Asked *coordinator.Asked
	// Spec, unless it has no levels, says which collectives move them.
	Spec spec.Spec
	// Options are handed to the solver, its Data.Part, Alloc and NoSnapshots
	// excepted, which New sets. A Memory of 0 is this rank's share of
	// what is available on its node.
	Options solver.Options
	// Requests, unless nil, returns whether somebody has asked for a snapshot or a
	// stop (a signal) since the last call; what one rank is asked, all do. It is
	// called in every iteration, between the batches of a test, and between the
	// passes of an iteration with iter_size above 1. A stop leaves a test or such
	// an iteration unfinished. It is nil on all ranks or on none.
	Requests func() (snapshot, stop bool)
	// Events are what the root reports; the other ranks report nothing.
	Events Events
	// Trace takes what this rank does; it may be nil.
	Trace *trace.Recorder
}
