package solver

import (
	"errors"
	"time"

	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/caffe/layers"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/mem"
)

// Callbacks let others join in an iteration. Any may be nil.
type Callbacks struct {
	// OnStart runs before the forward pass of iteration iter.
	OnStart func(iter int) error
	// OnLoss runs when this worker's part of the iteration's loss is known: after
	// the last forward pass, before its backward pass; on a GPU when all of that has been begun. The workers' parts add up
	// to the loss over the global batch.
	OnLoss func(iter int, part float64) error
	// OnGradientsReady runs after the backward pass, with the same part of the
	// loss. It returns what is to become of the gradients, and the loss over all
	// workers. Without it both are as in a worker alone.
	OnGradientsReady func(iter int, part float64) (g Gradients, globalLoss float32, err error)
	// OnNotFinite runs where the loss over all workers, or after the last update a parameter
	// on any of them, is NaN or infinite, on all of them. e is what this worker knows; what it
	// returns is the error.
	OnNotFinite func(e *NotFiniteError) error
	// OnParams runs before parameters are read outside of an iteration (a
	// test, the last display, the check of the last update): they must be current
	// when it returns.
	OnParams func(iter int) error
	// OnSnapshot runs before a snapshot, also on workers that do not write it:
	// parameters and history must be current on the one that does, or be there for History.
	OnSnapshot func(iter int) error
	// History runs on the worker that writes a snapshot, after OnSnapshot, and returns the history of all
	// parameters, each slice laid out as these are, where the worker itself remembers parts (Hold). It is
	// read for the snapshot alone.
	History func() [][]float32
	// Beside runs on the worker that writes a snapshot, after its model and before its
	// state: it writes what else is to lie there once there is a state, to files of which
	// stem is the beginning of the name.
	Beside func(stem string) error
	// Sum adds vectors over workers, elementwise, and gives all of them the
	// result. All workers call it at the same points.
	Sum func(v []float64) ([]float64, error)
	// Requested is asked after every iteration; all workers must get the same
	// answer.
	Requested func(iter int) (Action, error)
	// Interrupted is asked between the batches of a test and between the passes
	// of an iteration with iter_size above 1; all workers must get the same
	// answer. True leaves the test or the iteration unfinished and ends training,
	// with a snapshot of the last iteration that was finished.
	Interrupted func() (bool, error)
	// Share, with Options.Apart, is what this worker's outputs of the iteration count for among
	// all workers', 0 where they are of another iteration; without it, its part of the batch.
	Share func() float64
	// Outputs, with Options.Apart, returns what Solver.Outputs was when the passes of iteration iter
	// ended, for passes that have gone on since; nil where they have not.
	Outputs func(iter int) []float64
}

// ErrInterrupted says that a test was left unfinished, as Callbacks.Interrupted
// said.
var ErrInterrupted = errors.New("interrupted, as asked")

// Hooks are called in every pass of every training iteration. Any may be nil.
type Hooks struct {
	// BeforeForward and AfterBackward run around every layer; see net.Hooks.
	// With iter_size above 1 an AfterBackward finds the gradients of the
	// iteration complete in the LastPass only.
	BeforeForward, AfterBackward func(layer int) error
	// BeforeBackward runs between a pass's forward and its backward.
	BeforeBackward func() error
	// AfterReadAhead runs when a data layer has read, since began, the batch of the next pass, on a GPU, which is at this one.
	AfterReadAhead func(layer int, began time.Time)
}

// Gradients is what becomes of the gradients of an iteration.
type Gradients uint8

const (
	// Apply has the solver update the parameters with them.
	Apply Gradients = iota
	// Drop has it clear them: another worker updates.
	Drop
	// Taken leaves them to the callback, which may still be at work on them
	// when it returns. It sees to it that they are applied (Solver.Update) or
	// cleared before a layer's next backward pass.
	Taken
)

// Action is what an outsider (a signal) asks of a solver.
type Action struct {
	Snapshot bool // write a snapshot now
	Stop     bool // end training after this iteration
}

// Options says how one worker takes part.
type Options struct {
	// Data is passed to the training net's data layers. Its Seed, if 0, is
	// the solver's random_seed. Its Part divides tests too, by whole batches: this
	// worker runs those whose number is Index modulo Of.
	Data layers.DataOptions
	// Alloc gives the memory of the packed parameters and gradients; see
	// net.Pack.
	Alloc func(bytes int) (mem.Buffer, error)
	// Memory is how many bytes all nets together may take, as net.Memory counts;
	// 0 means what is available to the process.
	Memory int64
	// Writer writes snapshots.
	Writer proto.Writer
	// NoSnapshots is set where another worker writes the snapshots.
	NoSnapshots bool
	// SkipNotFinite leaves out the update of an iteration whose loss or
	// gradients are NaN or infinite, instead of ending with that error.
	SkipNotFinite bool
	// InsteadOfClipping is what a *NotFiniteError advises where clip_gradients cannot be had; "" where it can.
	InsteadOfClipping string
	// Rewrite and MadeAs are passed to the nets; see net.Options.
	Rewrite func(*proto.LayerParameter) error
	MadeAs  func(*proto.LayerParameter) (*proto.LayerParameter, error)
	// Idle is set for a worker that computes nothing, such as one that only serves
	// parameters: it runs no pass, and no batch of a test. Hooks and callbacks are called as
	// if it did, where the others call theirs. Data.Part is that of some other worker.
	Idle bool
	// Apart is set where the caller runs the training passes itself, on a net of their own
	// (Solver.Computes), while this solver's iterations go on. Hooks and callbacks are called as
	// with Idle; batches of tests are run. Whenever OnParams returns, no pass may be under way.
	Apart bool
	// GPU, unless nil, is where the nets compute and updates are made; see package caffe/net. It cannot be had with Apart, and means
	// nothing with Idle.
	GPU *gpu.Device
	// AllocOn is passed to the training net; see net.Options.
	AllocOn func(bytes int) (mem.Buffer, error)
}
