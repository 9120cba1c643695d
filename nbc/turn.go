package nbc

import (
	"context"
	"runtime"
	"time"
)

// loop is the progress loop.
func (e *Engine) loop() {
	for n, on := 0, true; on; n++ {
		e.own.Lock()
		if e.lent {
			e.lent = !e.mover.Move()
		}
		on = e.turn(n)
		idle := on && e.mover != nil && e.inUse == 0 && e.failed == nil
		if !on {
			e.end()
		}
		e.own.Unlock()
		if idle && !e.pending.Load() {
			e.sleep()
		}
	}
}

// idleLook is how often the engine looks for notices while nothing is under
// way and nobody may have woken it.
const idleLook = 5 * time.Millisecond

// sleep rests without holding own, so that a caller may take over at once.
func (e *Engine) sleep() {
	e.idle.Reset(idleLook)
	select {
	case <-e.stir:
	case <-e.idle.C:
	}
}

// turn looks after everything once, rests where nothing moved, and reports
// whether there is a next turn.
func (e *Engine) turn(n int) bool {
	if e.pending.Load() && !e.takeNew() {
		return false
	}
	moved := e.progress()
	if !moved || n%256 == 0 {
		e.readNotices()
		e.checkDeadlines()
	}
	if !moved && !e.pending.Load() && (e.mover == nil || e.inUse > 0 || e.failed != nil) {
		e.transport.Park(e.rest())
	}
	return true
}

// end gives everything back.
func (e *Engine) end() {
	e.idle.Stop()
	e.fail(ErrClosed)
	e.scratch.close()
	_ = e.transport.Close()
	_ = e.device.Close()
	e.telling.Wait()
}

// drive executes r on the calling goroutine, if nothing else is under way, and
// reports whether it has taken r on: r may go on after it where ctx ended.
func (e *Engine) drive(ctx context.Context, r *Request) bool {
	if e.mover == nil || !e.own.TryLock() {
		return false
	}
	defer e.own.Unlock()
	if e.inUse > 0 || e.failed != nil || e.pending.Load() {
		return false
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if !e.mover.Move() {
		return false
	}
	e.lent = true
	e.admit(r)
	for n := 1; r.active.Load(); n++ {
		if !e.turn(n) {
			e.pending.Store(true) // the engine is closing, which its goroutine does
			break
		}
		if n%64 == 0 && ctx.Err() != nil {
			break
		}
	}
	if e.inUse > 0 || e.failed != nil || e.pending.Load() {
		e.stirLoop()
	}
	return true
}

// doHere runs f on the calling goroutine, if nothing is under way, and reports
// whether it has.
func (e *Engine) doHere(f func() error) (done bool, err error) {
	if e.mover == nil || !e.own.TryLock() {
		return false, nil
	}
	defer e.own.Unlock()
	if e.inUse > 0 || e.failed != nil || e.pending.Load() {
		return false, nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if !e.mover.Move() {
		return false, nil
	}
	e.lent = true
	err = f()
	if e.failed != nil || e.pending.Load() {
		e.stirLoop()
	}
	return true, err
}
