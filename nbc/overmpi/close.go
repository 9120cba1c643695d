package overmpi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/nbc/internal/match"
)

// grace is how long Close waits for the others after a failure.
const grace = time.Second

// kept holds transports that were closed with operations under way: the MPI
// library still knows their memory.
var kept []*Transport

// Close waits for the other ranks to close too, for Options.CloseWait at most,
// or a second where something failed, and gives everything back.
func (t *Transport) Close() error {
	if t.over.Load() {
		return nil
	}
	wait := t.opts.CloseWait
	failed := t.fault != nil || t.abort.begun
	if failed {
		wait = grace
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	err := t.drop(ctx)
	if err == nil {
		err = t.meet(ctx)
	}
	t.over.Store(true)
	close(t.abort.gone)
	if err != nil {
		kept = append(kept, t)
		t.world.Lost()
		if failed {
			return nil // it was said before
		}
		return err
	}
	err = t.dismantle()
	if t.owns {
		err = errors.Join(err, t.world.Finalize(ctx))
	}
	return err
}

// drop ends what is under way. Receives can be canceled, sends cannot.
func (t *Transport) drop(ctx context.Context) error {
	for _, o := range t.ops {
		switch {
		case !o.live:
		case o.parts == 0: // MPI does not know of it
			t.finish(o)
		case !o.sending:
			_ = t.reqs.Cancel(forData | o.index) // no such receive: it ended before
		}
	}
	t.waiting = match.Table[*op, *arrival]{}
	for _, a := range t.arrivals.all {
		if a.receiving {
			a.receiver, a.unwanted = nil, true
			_ = t.reqs.Cancel(forAhead | a.index)
		}
	}
	for _, o := range t.notices.out {
		o.waiting = nil
	}
	left := func() int { return t.active + t.notices.sending }
	if left() == 0 {
		return nil
	}
	limit, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	return t.until(limit, func() bool { return left() == 0 },
		func() error { return fmt.Errorf("overmpi: closed with %d operations under way", t.active) })
}

// meet waits until all ranks are here.
func (t *Transport) meet(ctx context.Context) error {
	t.reached = false
	if err := t.control.Ibarrier(t.reqs, forMeeting); err != nil {
		return err
	}
	return t.until(ctx, func() bool { return t.reached },
		func() error { return mpi.ErrPeersGone })
}

// until advances until done or ctx ends. A fault that comes up meanwhile ends
// it too.
func (t *Transport) until(ctx context.Context, done func() bool, late func() error) error {
	before := t.fault
	for !done() {
		_ = t.advance()
		if before == nil && t.fault != nil { // such as a rank that gives up at the very end
			return t.fault
		}
		if ctx.Err() != nil {
			return late()
		}
		if !done() {
			time.Sleep(50 * time.Microsecond)
		}
	}
	return nil
}

// dismantle gives everything back, with nothing under way anywhere.
func (t *Transport) dismantle() error {
	t.reached, t.closing = false, true
	err := t.reqs.Cancel(forAbort)
	if !t.notices.over {
		err = errors.Join(err, t.reqs.Cancel(forNote))
	}
	err = errors.Join(err, t.cancelEnvelopes())
	for i := 0; err == nil && !(t.reached && t.notices.over && !t.standing.any()); i++ {
		_ = t.advance()
		if i > 1e6 {
			err = errors.New("overmpi: the library does not cancel a receive")
		}
	}
	t.reqs.Free()
	err = errors.Join(err, t.control.Free(), t.data.Free())
	for tok := range t.lent {
		t.Release(tok)
	}
	t.staging.free()
	t.standing.room.Free()
	t.abort.in.Free()
	t.notices.free()
	t.rest.close()
	return err
}
