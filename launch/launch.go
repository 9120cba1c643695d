// Package launch starts the ranks of this process, runs one function on each,
// and ends them together: where a rank fails, the others end too, and the
// reason is printed once.
//
// Under mpirun a process is one rank and finds the others over MPI. Started
// alone it is a world of one rank, or of N ranks in one process (Options.Local)
// that exchange messages through memory. Under mpirun the ranks of one node
// exchange messages through shared memory (package nbc/shm); with the
// environment variable SCAFFE_SHM=off they use MPI for that.
//
//	func main() {
//		launch.Main()
//		err := launch.Run(ctx, launch.Options{}, func(ctx context.Context, comm *collectives.Comm) error {
//			return comm.Barrier(ctx)
//		})
//		...
//	}
//
// It owns engines, signals, and the report of a failure. It must not know what
// the ranks do.
//
// # Failures
//
// A rank whose function fails tells all other ranks, whose collectives end with
// an *nbc.AbortError. Rank 0's process prints the reason as soon as it learns of
// it, whatever its function is doing. The other ranks end when rank 0 has
// printed it: a launcher kills all processes when the first one fails. Where
// rank 0 does not confirm in time, the rank that failed prints the reason
// itself.
//
// A process that is killed reports nothing, so the ranks of a node watch each
// other's processes, and so does a child process of the node's lowest rank, the
// sentinel, which survives them for a moment (see Main).
package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/nbc/overmpi"
	"github.com/scaffe/scaffe/nbc/shm"
)

// ErrReported is what Run's error wraps where the reason has been printed
// already, by this process or another: exit with a non-zero status and print
// nothing.
var ErrReported = errors.New("launch: the error has been reported")

// Options say which ranks to start.
type Options struct {
	// Local, unless 0, is how many ranks to run in this process, at most
	// MaxLocal.
	Local int
	// CUDA gives every rank a GPU, whose memory buffers of collectives may then lie in: the ranks of a node take
	// its GPUs in turn. Where a rank has none, or is not to have one, all ranks end with the reason before f is called.
	CUDA bool
	// GPUs, unless nil, are the numbers of those that the ranks of a node take in turn, in place of all.
	GPUs []int
	// MayLack has ranks that can have no GPU go on without one: buffers of theirs lie in the host's memory
	// alone. So does a rank that is alone, which exchanges nothing.
	MayLack bool
	// Engine and Collectives are passed on.
	Engine      nbc.Options
	Collectives collectives.Options
	// Log takes what a rank has to say before Run returns, such as the reason of
	// a failure where there are several processes; nil means os.Stderr.
	Log io.Writer
	// Requests, unless nil, records signals that f acts on; see Run.
	Requests *Requests
}

// MaxLocal is the largest Options.Local. Each rank has an OS thread, and memory
// for each of the other ranks: one machine has neither for many thousands.
const MaxLocal = 1024

// Run runs f once on each rank of this process. It returns when all of them
// have ended and, where none failed, not before f has ended on all ranks of the
// world.
//
// Where f fails on one rank, the others are told: their collectives end with
// an *nbc.AbortError. Run then returns the reason on rank 0, and ErrReported on
// the other ranks. Where the world has several processes the reason has been
// printed to Options.Log by then, and rank 0's error wraps ErrReported too.
//
// SIGINT and SIGTERM cancel f's context, and the next signal kills the process.
// With Options.Requests the first one is recorded there instead; a later one
// ends the process at once, whatever f is doing, with the reason reported.
func Run(ctx context.Context, o Options, f func(context.Context, *collectives.Comm) error) error {
	if o.Log == nil {
		o.Log = os.Stderr
	}
	if log := o.Log; o.Engine.Warn == nil {
		o.Engine.Warn = func(text string) { fmt.Fprintf(log, "scaffe: warning: %s\n", text) }
	}
	gpus := newGPUs(o)
	engines, err := start(o, gpus)
	if err != nil {
		return errors.Join(err, closeGPUs(gpus))
	}
	ranks := make([]*rank, len(engines))
	for i, e := range engines {
		ranks[i] = newRank(e, o, len(engines))
		if o.CUDA {
			ranks[i].gpu = gpus[i]
		}
	}
	ctx, stop := untilSignal(ctx, ranks, o)
	defer stop()
	errs := make([]error, len(ranks))
	var wg sync.WaitGroup
	for i, r := range ranks {
		wg.Go(func() {
			// A rank that goes from thread to thread leaves its core's caches behind. Not unlocked: the thread ends.
			runtime.LockOSThread()
			errs[i] = r.run(ctx, f)
		})
	}
	wg.Wait()
	errs[0] = errors.Join(errs[0], closeAll(engines))
	if err := closeGPUs(gpus); errs[0] == nil { // of one that has failed the reason is known
		errs[0] = err
	}
	for _, err := range errs { // rank 0 comes first
		if err != nil {
			return err
		}
	}
	return nil
}

// start starts one engine for every rank of this process.
func start(o Options, gpus []*gpu) ([]*nbc.Engine, error) {
	if o.Local < 0 || o.Local > MaxLocal {
		return nil, fmt.Errorf("--local must be at most %d (got %d): all ranks share the memory and threads of one machine", MaxLocal, o.Local)
	}
	provide()
	n := max(1, o.Local)
	open := func(int) func() (nbc.Transport, error) { return overMPI }
	if o.Local > 0 {
		if l := mpi.DetectLauncher(); l.Size > 1 {
			return nil, fmt.Errorf("--local %d runs all ranks in one process, but %s started %d processes: use one of the two", o.Local, l.Name, l.Size)
		}
		open = inproc.NewWorld(n, inproc.Options{}).Open
	}
	return startEach(n, open, gpus, o.Engine)
}

// startEach starts n engines, with a GPU each unless there are none. Where one of them fails, those before it are
// closed.
func startEach(n int, open func(rank int) func() (nbc.Transport, error), gpus []*gpu, o nbc.Options) (engines []*nbc.Engine, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll(engines))
			engines = nil
		}
	}()
	for r := range n {
		k, err := kernels.NewCPU()
		if err != nil {
			return engines, err
		}
		e, err := nbc.StartWith(func() (nbc.Transport, nbc.Device, error) {
			cpu := device.CPU(k)
			t, err := open(r)()
			if err == nil && len(gpus) > 0 {
				t, d := gpus[r].over(t, cpu)
				return t, d, nil
			}
			return t, cpu, err
		}, o)
		if err != nil {
			return engines, err
		}
		engines = append(engines, e)
	}
	return engines, nil
}

func closeAll(engines []*nbc.Engine) error {
	var errs []error
	for _, e := range engines {
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}

// overMPI opens the transport under mpirun: over MPI, and between the ranks of
// a node through shared memory unless SCAFFE_SHM=off.
func overMPI() (nbc.Transport, error) {
	var o overmpi.Options
	if v := os.Getenv("SCAFFE_TAG_BOUND"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("invalid SCAFFE_TAG_BOUND=%q: want the largest MPI tag to use, at least 1", v)
		}
		o.TagBound = n
	}
	open := overmpi.Open(o)
	switch v := os.Getenv("SCAFFE_SHM"); v {
	case "", "on":
		return shm.Over(open, shm.Options{Warn: func(s string) { fmt.Fprintf(os.Stderr, "scaffe: warning: %s\n", s) }})()
	case "off":
		return open()
	default:
		return nil, fmt.Errorf("invalid SCAFFE_SHM=%q: want on (the default) or off", v)
	}
}
