package nbc

import (
	"errors"
	"fmt"
	"time"
)

// Event is a point in the work of others, such as what a GPU has been given, that passes once.
type Event interface {
	// Passed reports whether it has passed; an error says that it never will. It is called by the thread that turns the loop,
	// and does not block.
	Passed() (bool, error)
}

// StartAfter is Start of an execution that begins when an event has passed: until then the buffers are not touched, as what is
// to be sent is still being computed, and other requests go on. The engine asks in every turn of its loop, which it does not
// hold up. The event must not be used for another point before the execution has begun. Without one (nil) it is Start.
//
// Where the event has not passed within the request's longest deadline the engine fails, as with a collective that
// outlasts it.
func (r *Request) StartAfter(event Event) error {
	if event == nil {
		return r.Start()
	}
	if r.engine.opts.Guest {
		return fmt.Errorf("nbc: %s is to start after an event: an engine without a thread cannot ask for it", r.name())
	}
	if ended, err := r.begin(nil); ended || err != nil {
		return err
	}
	r.event, r.submitted, r.began = event, time.Now(), time.Time{}
	err := r.engine.submit(r)
	if err != nil {
		r.event = nil
	}
	return err
}

// Began returns when the engine saw the event pass after which the last execution began, the zero time where there was none. It is
// for executions that have ended.
func (r *Request) Began() time.Time { return r.began }

// errNotPassed is why a request did not begin.
var errNotPassed = errors.New("the event that it is to begin after has not passed: what it waits for hangs, or was never begun")

// defers keeps a request that was submitted until its event has passed.
func (e *Engine) defers(r *Request) {
	if e.failed != nil {
		r.event = nil
		r.end(e.failed)
		return
	}
	e.after = append(e.after, r)
}

// admitPassed begins the requests whose events have passed, and reports whether there were any.
func (e *Engine) admitPassed() (any bool) {
	kept := e.after[:0]
	for i, r := range e.after {
		passed, err := r.event.Passed()
		switch {
		case err == nil && !passed && time.Since(r.submitted) > r.maxDeadline:
			err = fmt.Errorf("after %v: %w", r.maxDeadline, errNotPassed)
			fallthrough
		case err != nil:
			e.after = append(kept, e.after[i:]...)
			e.failAndTell(fmt.Errorf("%s, before it began: %w", r.name(), err))
			return false
		case passed:
			r.event, r.began = nil, time.Now()
			e.admit(r, nil, nil)
			any = true
		default:
			kept = append(kept, r)
		}
	}
	clear(e.after[len(kept):])
	e.after = kept
	return any
}
