package launch

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/scaffe/scaffe/nbc"
)

// Requests are what signals ask of a run that can do better than to end at
// once, as Caffe's SignalHandler takes them:
//
//	SIGINT, SIGTERM, SIGUSR2   snapshot and stop
//	SIGHUP, SIGUSR1            snapshot and go on
//
// The last of each row is for launchers that keep the others to themselves
// (docs/signals.md): Open MPI's mpirun hands on SIGUSR1 and SIGUSR2, MPICH's
// SIGINT, SIGTERM and SIGUSR1.
//
// A signal may reach one rank or all: the ranks must agree on what to do. The
// zero value is ready. Safe for concurrent use.
type Requests struct{ asked atomic.Uint32 }

// The bits of Requests.asked.
const (
	askedSnapshot = 1 << iota
	askedStop
)

// Take returns what this process was asked for since the last call. Ranks of
// one process share their Requests: one of them gets to know.
func (r *Requests) Take() (snapshot, stop bool) {
	if r.asked.Load() == 0 {
		return false, false
	}
	asked := r.asked.Swap(0)
	return asked&askedSnapshot != 0, asked&askedStop != 0
}

const (
	// oneRequest is how close together two signals are one request to stop: a
	// person who signals all processes reaches mpirun too, and Open MPI's then
	// signals the ranks again, a second later.
	oneRequest = 1500 * time.Millisecond
	// stopGrace is how long after SIGTERM the request may lie untaken before
	// this rank says what it waits for: Open MPI kills a second after SIGTERM.
	stopGrace = 500 * time.Millisecond
)

// listener is what one process makes of signals.
type listener struct {
	engines  []*nbc.Engine
	log      io.Writer
	requests *Requests // may be nil
	stop     time.Time // when the first signal to stop came
	grace    <-chan time.Time
}

// untilSignal returns a context that ends with SIGINT or SIGTERM; where there
// are Requests to note them in, with the second.
func untilSignal(ctx context.Context, engines []*nbc.Engine, o Options) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if o.Requests != nil {
		signal.Notify(signals, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	}
	l := &listener{engines: engines, log: o.Log, requests: o.Requests}
	go func() {
		for {
			select {
			case s := <-signals:
				if l.heard(s) {
					continue
				}
				cancel(fmt.Errorf("stopped by %v", s))
				signal.Stop(signals) // the next one ends the process at once
				return
			case <-l.grace:
				if l.requests.asked.Load()&askedStop != 0 && !l.blocked(syscall.SIGTERM) {
					l.grace = time.After(stopGrace) // not blocked so far
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// heard reports whether the run goes on after a signal.
func (l *listener) heard(s os.Signal) bool {
	r, now := l.requests, time.Now()
	switch {
	case r != nil && (s == syscall.SIGHUP || s == syscall.SIGUSR1):
		r.asked.Or(askedSnapshot)
		return true
	case r != nil && (l.stop.IsZero() || now.Sub(l.stop) < oneRequest):
		if l.stop.IsZero() {
			l.stop = now
			r.asked.Or(askedSnapshot | askedStop)
			l.answer(s)
		}
		if s == syscall.SIGTERM && l.grace == nil {
			l.grace = time.After(stopGrace)
		}
		return true
	case s == syscall.SIGTERM:
		l.blocked(s)
	}
	return false
}

// answer tells a person that the request was heard; rank 0 speaks.
func (l *listener) answer(s os.Signal) {
	if l.engines[0].Rank() == 0 {
		fmt.Fprintf(l.log, "scaffe: asked to stop (%v): will do so between two iterations; ask again to end at once\n", s)
	}
}

// blocked says what the ranks here wait for. The launcher sends SIGTERM when
// another rank has died: this names the rank that is gone. It reports whether
// there was anything to say.
func (l *listener) blocked(s os.Signal) (said bool) {
	for _, e := range l.engines {
		for _, edge := range e.Blocked() {
			said = true
			fmt.Fprintf(l.log, "scaffe: told to stop (%v) while %v\n", s, edge)
		}
	}
	return said
}
