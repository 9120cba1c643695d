package launch

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

const (
	// oneRequest is how close together two signals are one request to stop: a
	// person who signals all processes reaches mpirun too, and Open MPI's then
	// signals the ranks again, a second later.
	oneRequest = 1500 * time.Millisecond
	// stopGrace is how long after SIGTERM the request may be pending before
	// this rank says what it waits for: Open MPI kills a second after SIGTERM.
	stopGrace = 500 * time.Millisecond
	// blockedTime is how long the ranks here may take to say what they wait for: an
	// engine answers at once or, where a collective of the library blocks it, after
	// a fifth of a second.
	blockedTime = time.Second
	// exitGrace is how long Run has to return when it was asked to stop twice,
	// before the process ends without it.
	exitGrace = 500 * time.Millisecond
)

// exit is replaced in tests.
var exit = os.Exit

// listener is what one process makes of signals.
type listener struct {
	ranks    []*rank
	log      io.Writer
	requests *Requests // may be nil
	cancel   context.CancelCauseFunc
	returned chan struct{} // closed when all ranks have ended

	first time.Time // when the first signal to stop came
	grace <-chan time.Time
}

// untilSignal returns a context that ends with SIGINT or SIGTERM; where there
// are Requests to record them in, with the second.
func untilSignal(ctx context.Context, ranks []*rank, o Options) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if o.Requests != nil {
		signal.Notify(signals, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	}
	l := &listener{ranks: ranks, log: o.Log, requests: o.Requests, cancel: cancel, returned: make(chan struct{})}
	go func() {
		defer signal.Stop(signals)
		l.listen(signals)
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(l.returned)
		cancel(nil)
	}
}

// listen handles signals until the run has ended or is to end at once.
func (l *listener) listen(signals chan os.Signal) {
	for {
		select {
		case s := <-signals:
			if l.handleSignal(s) {
				continue
			}
			signal.Stop(signals) // the next one kills the process
			l.stop(s)
			return
		case <-l.grace:
			if l.requests.asked.Load()&askedStop != 0 && !l.blocked(syscall.SIGTERM) {
				l.grace = time.After(stopGrace) // not blocked so far
			}
		case <-l.returned:
			return
		}
	}
}

// handleSignal reports whether the run continues after a signal.
func (l *listener) handleSignal(s os.Signal) bool {
	r, now := l.requests, time.Now()
	if l.failing() {
		return false
	}
	switch {
	case r != nil && (s == syscall.SIGHUP || s == syscall.SIGUSR1):
		r.asked.Or(askedSnapshot)
		return true
	case r != nil && (l.first.IsZero() || now.Sub(l.first) < oneRequest):
		if l.first.IsZero() {
			l.first = now
			r.asked.Or(askedSnapshot | askedStop)
			l.acknowledge(s)
		}
		if s == syscall.SIGTERM && l.grace == nil {
			l.grace = time.After(stopGrace)
		}
		return true
	}
	return false
}

// failing reports whether a rank here has failed and is about to end, and hurries
// it.
func (l *listener) failing() bool {
	report := l.ranks[0].report
	return report != nil && report.signaled()
}

// acknowledge tells a person that the signal was received; rank 0 prints it.
func (l *listener) acknowledge(s os.Signal) {
	if l.ranks[0].engine.Rank() == 0 {
		fmt.Fprintf(l.log, "scaffe: received %v: stopping after this iteration; signal again to exit immediately\n", s)
	}
}

// stop ends the run after a signal. Where it was asked before, what the ranks
// compute is not waited for.
func (l *listener) stop(s os.Signal) {
	if s == syscall.SIGTERM {
		l.blocked(s) // now, for the waiting ends with the context
	}
	l.cancel(fmt.Errorf("stopped by %v", s))
	if l.requests == nil {
		return
	}
	select {
	case <-l.returned:
		return
	case <-time.After(exitGrace):
	}
	l.abandon(fmt.Errorf("stopped by %v", s))
	exit(1)
}

// abandon reports that this process ends although its ranks have not ended.
func (l *listener) abandon(err error) {
	if l.failing() {
		return // for another reason, which is reported
	}
	if l.ranks[0].report == nil {
		fmt.Fprintf(l.log, "scaffe: %v\n", err)
		return
	}
	failed := make(chan struct{})
	go func() {
		defer close(failed)
		_ = l.ranks[0].fail(err)
	}()
	wait(failed, exitGrace)
}

// blocked prints what the ranks here wait for. The launcher sends SIGTERM when
// another rank has died: this names it. It reports whether there was anything
// to print.
func (l *listener) blocked(s os.Signal) bool {
	var mu sync.Mutex
	said, over := false, false
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, r := range l.ranks {
			edges := r.engine.Blocked() // may take long where a collective of the library blocks
			mu.Lock()
			for _, edge := range edges {
				if !over {
					said = true
					fmt.Fprintf(l.log, "scaffe: received %v while %v\n", s, edge)
				}
			}
			mu.Unlock()
		}
	}()
	wait(done, blockedTime)
	mu.Lock()
	defer mu.Unlock()
	over = true
	return said
}
