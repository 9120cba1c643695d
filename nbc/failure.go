package nbc

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Abort ends every request here and on all other ranks, which learn the
// reason, unless this engine has failed before: then they have been told of that,
// or are being told. It returns when they have been told or ctx ends, even if the
// engine's thread is busy; the engine then fails once its thread is free.
func (e *Engine) Abort(ctx context.Context, reason string) error {
	var told chan struct{}
	give := func() error {
		e.fail(&AbortError{Rank: e.rank, Reason: reason})
		told = e.told
		return nil
	}
	if done, _ := e.doHere(give); !done {
		c, err := e.enqueue(give)
		if err != nil {
			return err
		}
		select {
		case <-c.result:
		case <-ctx.Done():
			return e.transport.Abort(ctx, reason)
		}
	}
	if told == nil {
		return e.transport.Abort(ctx, reason) // which the loop sends: it turns on
	}
	select {
	case <-told:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("nbc: rank %d gave up before every other rank was told: %w", e.rank, context.Cause(ctx))
	}
}

// fail ends every request with err; the engine starts no more.
func (e *Engine) fail(err error) {
	if e.failed != nil {
		return
	}
	e.adopt(true)
	e.failed = err
	e.links.clear()
	e.held = nil
	e.device.Drain() // the buffers are about to be the callers' again
	if d, ok := e.transport.(Drainer); ok {
		d.Drain()
	}
	e.mu.Lock()
	e.err = err
	e.mu.Unlock()
	close(e.hasFailed)
	now := time.Now()
	for _, r := range e.exec.fail() {
		if r.left == 0 && !r.divided {
			r.end(nil)
			continue
		}
		r.end(e.stalls.failure(r, err, now))
	}
	for _, r := range e.after {
		r.event = nil
		r.end(fmt.Errorf("%s failed before it began: %w", r.name(), err))
	}
	e.after = nil
}

// tellWait bounds how long a rank that fails by itself tries to tell the others.
const tellWait = 2 * time.Second

// failAndTell fails the engine, and tells the other ranks. Where a collective
// has stalled, the deadlines of many ranks end together, and each would tell all
// others: they begin one after another, since a rank that has been told before
// it begins has nothing to add.
func (e *Engine) failAndTell(err error) {
	if e.failed != nil {
		return
	}
	e.fail(err)
	var turn time.Duration
	if deadline := (*DeadlineError)(nil); errors.As(err, &deadline) {
		turn = min(time.Duration(e.rank)*time.Millisecond, tellWait/2)
	}
	told := make(chan struct{})
	e.told = told
	go func() { // the loop must keep polling for the notice to be sent
		defer close(told)
		time.Sleep(turn)
		ctx, cancel := context.WithTimeout(context.Background(), tellWait)
		defer cancel()
		_ = e.transport.Abort(ctx, err.Error())
	}()
}

// tells reports whether the other ranks are still being told of a failure.
func (e *Engine) tells() bool {
	if e.told == nil {
		return false
	}
	select {
	case <-e.told:
		return false
	default:
		return true
	}
}
