package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/nbc"
)

const (
	// tellTimeout bounds how long a failing rank tries to tell the others.
	tellTimeout = 2 * time.Second
	// lingerTime is how long a rank that has failed waits before its process
	// ends, so that its notice arrives before that is noticed, and the launcher
	// has read what it printed.
	lingerTime = 200 * time.Millisecond
)

// rank is one rank of this process.
type rank struct {
	engine *nbc.Engine
	comm   *collectives.Comm
	log    io.Writer
	watch  *watch
	report *report // nil where all ranks are in this process
	gpu    *gpu    // nil where none is asked for
}

// newRank prepares a rank of a process that has `here` ranks.
func newRank(e *nbc.Engine, o Options, here int) *rank {
	o.Collectives.Machine = Machine(o.Local)
	if o.Collectives.Measure {
		o.Collectives.Node = Node(o.Local)
	}
	r := &rank{engine: e, comm: collectives.World(e, o.Collectives), log: o.Log, watch: &watch{engine: e}}
	if e.Size() > here {
		r.report = newReport(e, o.Log, r.watch)
	}
	return r
}

// run runs f and sees to it that the other ranks learn how it ended.
func (r *rank) run(ctx context.Context, f func(context.Context, *collectives.Comm) error) error {
	ended := make(chan struct{})
	defer close(ended)
	defer r.watch.close()
	go r.watchEngine(ended)
	if err := r.work(ctx, f); err != nil {
		return r.fail(err)
	}
	return nil
}

// work is the run of a rank that does not fail.
func (r *rank) work(ctx context.Context, f func(context.Context, *collectives.Comm) error) error {
	if err := r.watch.start(ctx, r.comm, r.gpu != nil); err != nil {
		return err
	}
	if r.gpu != nil {
		if err := r.comm.Agree(ctx, r.gpu.need()); err != nil {
			return err
		}
		if all, err := r.allHaveGPUs(ctx); err != nil {
			return err
		} else if all {
			if err := r.join(ctx); err != nil {
				return err
			}
		}
	}
	if err := r.configure(ctx); err != nil {
		return err
	}
	if err := f(ctx, r.comm); err != nil {
		return err
	}
	if err := r.comm.Agree(ctx, nil); err != nil { // all ranks have ended f
		return err
	}
	r.watch.stop()
	return r.comm.Barrier(ctx) // no process ends while another still watches it
}

// configure makes the ranks select alike, and prints warnings.
func (r *rank) configure(ctx context.Context) error {
	warnings, err := r.comm.Configure(ctx)
	if r.comm.Rank() == 0 {
		for _, w := range warnings {
			fmt.Fprintf(r.log, "scaffe: warning: %s\n", w)
		}
	}
	return err
}

// failure is why a run failed.
type failure struct {
	rank  int  // that failed
	known bool // to all ranks
	exit  bool // another process has ended, which all ranks of its node notice
	err   error
}

// classify says whose failure err, which rank me has got, is.
func classify(me int, err error) failure {
	var agreed *collectives.AgreedError
	if errors.As(err, &agreed) {
		return failure{rank: agreed.Rank, known: true, err: errors.New(agreed.Text)}
	}
	var abort *nbc.AbortError
	switch {
	case !errors.As(err, &abort):
		return failure{rank: me, err: err}
	case abort.Rank == me: // by watch
		return failure{rank: me, exit: true, err: err}
	}
	return failure{rank: abort.Rank, known: true, err: errors.New(abort.Reason)}
}

// message is the error for people, in a world of size ranks.
func (f failure) message(size int) error {
	if size == 1 {
		return f.err
	}
	return fmt.Errorf("rank %d: %w", f.rank, f.err)
}

// fail ends a rank whose work ended with err: the other ranks are told, and the
// reason is printed, here or elsewhere. It returns what Run is to return.
func (r *rank) fail(err error) error {
	f := classify(r.comm.Rank(), err)
	if r.report == nil {
		return r.failHere(f)
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		if !f.known {
			r.tell(f.err)
		}
	}()
	r.report.fail(f, told)
	r.watch.stop()
	time.Sleep(lingerTime)
	if r.comm.Rank() != 0 {
		return ErrReported
	}
	return &reportedError{f.message(r.comm.Size())}
}

// failHere is fail where no other process needs to know.
func (r *rank) failHere(f failure) error {
	if !f.known {
		r.tell(f.err)
	}
	r.watch.stop()
	if r.comm.Rank() != 0 {
		return ErrReported
	}
	return f.message(r.comm.Size())
}

// tell ends the collectives of all ranks.
func (r *rank) tell(err error) {
	ctx, cancel := context.WithTimeout(context.Background(), tellTimeout)
	defer cancel()
	_ = r.engine.Abort(ctx, err.Error()) // report does not rely on it
}

// watchEngine reports a failure of the engine that f, which may be computing,
// has not noticed, until the rank's run has ended.
func (r *rank) watchEngine(ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-r.engine.Failed():
	}
	r.watch.stop() // what ends from now on has a reason
	if r.report != nil {
		r.report.engineFailed(ended)
	}
}

// reportedError is an error that has been printed.
type reportedError struct{ err error }

func (e *reportedError) Error() string   { return e.err.Error() }
func (e *reportedError) Unwrap() []error { return []error{e.err, ErrReported} }
