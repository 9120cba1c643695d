package nbc

import (
	"context"
	"fmt"
	"slices"
)

// call is a function for the thread that turns the loop.
type call struct {
	f      func() error
	result chan error
}

// Do runs f on the thread that the transport belongs to, between messages, and
// returns what it returns. Set-up code that must talk to MPI itself uses it;
// nothing progresses meanwhile. Like Request.Run it takes the engine over where
// nothing else is under way: then that is the caller's thread.
//
// Where ctx ends before f has begun, f never runs, and Do returns the context's
// error. An f that has begun is waited for.
func (e *Engine) Do(ctx context.Context, f func() error) error {
	if done, err := e.doHere(f); done {
		return err
	}
	c, err := e.enqueue(f)
	if err != nil {
		return err
	}
	if e.opts.Guest {
		return e.awaitGuest(ctx, c)
	}
	select {
	case err := <-c.result:
		return err
	case <-ctx.Done():
	}
	if e.takeBack(c) {
		return fmt.Errorf("nbc: the engine's thread did not come to a call: %w", context.Cause(ctx))
	}
	return <-c.result
}

// enqueue hands f to the loop.
func (e *Engine) enqueue(f func() error) (*call, error) {
	c := &call{f, make(chan error, 1)}
	e.mu.Lock()
	if e.closing {
		e.mu.Unlock()
		return nil, ErrClosed
	}
	e.calls = append(e.calls, c)
	e.mu.Unlock()
	e.wake()
	return c, nil
}

// takeBack takes a call out of the queue, and reports whether it was there.
func (e *Engine) takeBack(c *call) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := slices.Index(e.calls, c)
	if i >= 0 {
		e.calls = slices.Delete(e.calls, i, i+1)
	}
	return i >= 0
}

// nextCall takes the oldest call out of the queue, nil if there is none.
func (e *Engine) nextCall() *call {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.calls) == 0 {
		return nil
	}
	c := e.calls[0]
	e.calls = slices.Delete(e.calls, 0, 1)
	return c
}

// doHere runs f on the calling goroutine, if nothing is under way, and reports
// whether it has.
func (e *Engine) doHere(f func() error) (done bool, err error) {
	if !e.enter() {
		return false, nil
	}
	defer e.leave()
	done = e.onThread(func() { err = f() })
	return done, err
}
