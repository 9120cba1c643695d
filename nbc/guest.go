package nbc

import (
	"context"
	"fmt"
	"time"
)

// A guest serves a program that has threads, signals and an MPI of its own. Its engine has
// no goroutine that turns the loop: nothing is called, least of all MPI, but within a call of
// Run, Do or Close, on the thread that makes it. So a library that was started for one thread
// is never called by another.
//
// Several threads may be in such calls at a time. One of them turns the loop, for all that are under
// way; when its own has ended, another goes on. Nobody waits for a thread that has left.
//
// Requests are executed by Run and RunAs. Start is refused: between Start and Wait nothing would move.
//
// A program waits for its peers as long as it likes, so beyond a guest's deadline what it waits for is said (Options.Warn),
// and only MaxDeadline, its owner's to choose, ends a call. It looks after what else the transport carries while it waits: a peer may first need a message from this rank that
// MPI has still to send. It rests for guestRest at most.

const (
	// guestRest bounds how long a guest's loop sleeps.
	guestRest = 100 * time.Microsecond
	// guestNap is how long a thread sleeps whose request another one looks after.
	guestNap = 20 * time.Microsecond
)

// runGuest is Run on an engine without a goroutine.
func (r *Request) runGuest(ctx context.Context) error {
	e := r.engine
	ended, err := r.begin(nil)
	if err == nil && !ended {
		if !e.drive(ctx, r) {
			err = e.submit(r)
		}
		e.attend(func() bool { return !r.active.Load() || ctx.Err() != nil })
	}
	if err != nil {
		return err
	}
	if e.Err() != nil { // let the other ranks hear of it, for a moment
		for end := time.Now().Add(tellWait); time.Now().Before(end); {
			told := true
			e.attend(func() bool { told = !e.tells(); return told || time.Now().After(end) })
			if told {
				break
			}
		}
	}
	return r.Wait(ctx)
}

// attend turns the loop, or leaves that to another thread that does, until ended.
func (e *Engine) attend(ended func() bool) {
	for !ended() {
		if !e.loopLock.TryLock() {
			time.Sleep(guestNap)
			continue
		}
		on := true
		e.onThread(func() {
			for n := 1; on && !ended(); n++ {
				on = e.turn(n)
			}
		})
		e.loopLock.Unlock()
		if !on {
			return
		}
	}
}

// awaitGuest waits for a call of Do that another thread, which turns the loop, executes, or this one once that has left.
func (e *Engine) awaitGuest(ctx context.Context, c *call) error {
	e.attend(func() bool { return len(c.result) > 0 || ctx.Err() != nil })
	switch {
	case !e.takeBack(c):
		return <-c.result
	case ctx.Err() != nil:
		return fmt.Errorf("nbc: another thread kept the engine: %w", context.Cause(ctx))
	}
	return ErrClosed
}

// closeGuest does what the loop does at its end.
func (e *Engine) closeGuest() {
	e.loopLock.Lock()
	defer e.loopLock.Unlock()
	select {
	case <-e.finished: // closed before
		return
	default:
	}
	e.onThread(func() {
		for n := 1; e.turn(n); n++ {
		}
		e.end()
	})
	close(e.finished)
}

// startGuest refuses what a guest cannot do.
func (r *Request) startGuest() error {
	return fmt.Errorf("nbc: %s: an engine without a thread executes requests by Run alone: nothing would move between Start and Wait", r.name())
}
