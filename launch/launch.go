// Package launch starts the ranks of this process, runs one function on each,
// and ends them all together: with one message where something went wrong,
// and with nobody left waiting.
//
// Under mpirun a process is one rank and finds the others over MPI. Started
// alone it is a world of one rank, or of N in one process (Options.Local),
// which talk through memory. Under mpirun the ranks of one node talk through
// memory that they share (package nbc/shm); the environment variable
// SCAFFE_SHM=off leaves that to MPI.
//
//	err := launch.Run(ctx, launch.Options{}, func(ctx context.Context, comm *collectives.Comm) error {
//		return comm.Barrier(ctx)
//	})
//
// It owns engines, signals and the rule of who speaks; what the ranks do is
// none of its business.
package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/nbc/overmpi"
	"github.com/scaffe/scaffe/nbc/shm"
)

// ErrReported is what Run returns where another process prints the error:
// exit with a non-zero status and say nothing.
var ErrReported = errors.New("launch: the error is reported by rank 0")

// tellTimeout bounds how long a failing rank tries to tell the others.
const tellTimeout = 2 * time.Second

// Options say which ranks to start.
type Options struct {
	// Local, unless 0, is how many ranks to run in this process.
	Local int
	// Engine and Collectives are handed on.
	Engine      nbc.Options
	Collectives collectives.Options
	// Log takes what a rank says when it is told to stop; nil means os.Stderr.
	Log io.Writer
	// Requests, unless nil, notes signals that f acts on; see Run.
	Requests *Requests
}

// Run runs f once on each rank of this process. It returns when all of them
// have ended, in the good case not before f has ended on all ranks of the
// world. The error is the one message for people, or ErrReported.
//
// Where f fails on one rank, the others are told: their collectives end with
// an *nbc.AbortError. Rank 0 is the one that speaks.
//
// SIGINT and SIGTERM cancel f's context. With Options.Requests the first one is
// noted there instead, and the second one, some time later, cancels; a third
// one ends the process.
func Run(ctx context.Context, o Options, f func(context.Context, *collectives.Comm) error) error {
	engines, err := start(o)
	if err != nil {
		return err
	}
	if o.Log == nil {
		o.Log = os.Stderr
	}
	ctx, stop := untilSignal(ctx, engines, o)
	defer stop()
	errs := make([]error, len(engines))
	var wg sync.WaitGroup
	for i, e := range engines {
		wg.Go(func() { errs[i] = one(ctx, e, o, f) })
	}
	wg.Wait()
	for _, e := range engines {
		err := e.Close()
		errs[0] = errors.Join(errs[0], err)
	}
	for _, err := range errs { // rank 0 comes first
		if err != nil {
			return err
		}
	}
	return nil
}

// start starts one engine for every rank of this process.
func start(o Options) ([]*nbc.Engine, error) {
	n := max(1, o.Local)
	open := func(int) func() (nbc.Transport, error) { return overMPI }
	if o.Local > 0 {
		if l := mpi.DetectLauncher(); l.Size > 1 {
			return nil, fmt.Errorf("--local %d runs all ranks in one process, but %s started %d processes: use one of the two", o.Local, l.Name, l.Size)
		}
		open = inproc.NewWorld(n, inproc.Options{}).Open
	}
	var engines []*nbc.Engine
	for r := range n {
		k, err := kernels.NewCPU()
		if err != nil {
			return nil, err
		}
		e, err := nbc.Start(open(r), nbc.CPU(k), o.Engine)
		if err != nil {
			return nil, err
		}
		engines = append(engines, e)
	}
	return engines, nil
}

// overMPI opens the transport under mpirun: over MPI, and between the ranks of
// a node through shared memory unless SCAFFE_SHM=off.
func overMPI() (nbc.Transport, error) {
	open := overmpi.Open(overmpi.Options{})
	switch v := os.Getenv("SCAFFE_SHM"); v {
	case "", "on":
		return shm.Over(open, shm.Options{Warn: func(s string) { fmt.Fprintf(os.Stderr, "scaffe: warning: %s\n", s) }})()
	case "off":
		return open()
	default:
		return nil, fmt.Errorf("SCAFFE_SHM=%s: set it to on (the default) or off", v)
	}
}

// one runs f on one rank and sees to it that the others learn how it ended.
func one(ctx context.Context, e *nbc.Engine, o Options, f func(context.Context, *collectives.Comm) error) error {
	o.Collectives.Machine = Machine(o.Local)
	comm := collectives.World(e, o.Collectives)
	stop, err := watch(ctx, e, comm)
	if err == nil {
		err = configure(ctx, comm, o.Log)
	}
	if err == nil {
		err = f(ctx, comm)
	}
	if err == nil {
		err = comm.Agree(ctx, nil) // all are done
	}
	stop()
	if err == nil {
		err = comm.Barrier(ctx) // none leaves while another watches
	}
	if err != nil && comm.Size() > 1 {
		defer time.Sleep(noticeTime)
	}
	var abort *nbc.AbortError
	var agreed *collectives.AgreedError
	var deadline *nbc.DeadlineError
	me := comm.Rank()
	switch {
	case err == nil:
		return nil
	case errors.As(err, &agreed): // all know
		return spoken(me, comm.Size(), agreed.Rank, errors.New(agreed.Text))
	case errors.As(err, &abort) && abort.Rank != me: // the others were told, as this rank was
		return spoken(me, comm.Size(), abort.Rank, errors.New(abort.Reason))
	}
	tell, cancel := context.WithTimeout(context.Background(), tellTimeout)
	defer cancel()
	told := e.Abort(tell, err.Error())
	if me != 0 && told == nil && !errors.As(err, &deadline) {
		return ErrReported
	}
	return spoken(0, comm.Size(), me, err)
}

// configure makes the ranks select alike, and says what people should know.
func configure(ctx context.Context, comm *collectives.Comm, log io.Writer) error {
	warnings, err := comm.Configure(ctx)
	if comm.Rank() == 0 {
		for _, w := range warnings {
			fmt.Fprintf(log, "scaffe: warning: %s\n", w)
		}
	}
	return err
}

// spoken returns err as rank `of` says it where this rank, me, speaks.
func spoken(me, size, of int, err error) error {
	switch {
	case me != 0:
		return ErrReported
	case size == 1:
		return err
	}
	return fmt.Errorf("rank %d: %w", of, err)
}
