package nbc

import (
	"context"
	"runtime"
	"time"
)

// loop is the progress loop.
func (e *Engine) loop() {
	for n, on := 0, true; on; n++ {
		if !e.loopLock.TryLock() { // a caller turns the loop, and wakes this goroutine after it
			e.sleep()
			continue
		}
		if e.migrated {
			e.migrated = !e.migrate()
		}
		on = e.turn(n)
		idle := on && e.migrator != nil && e.exec.inUse == 0 && e.failed == nil
		if !on {
			e.end()
		}
		e.loopLock.Unlock()
		if idle && !e.pending.Load() {
			e.sleep()
		}
	}
}

// idleLook is how often the engine looks for notices while nothing is under
// way, in case nothing wakes it.
const idleLook = 5 * time.Millisecond

// sleep rests without holding loopLock, so that a caller may take over at once.
func (e *Engine) sleep() {
	e.idle.Reset(idleLook)
	select {
	case <-e.wakeIdle:
	case <-e.idle.C:
	}
}

// turn looks after everything once, rests where nothing moved, and reports
// whether there is a next turn.
func (e *Engine) turn(n int) bool {
	if e.pending.Load() && !e.takeNew() {
		e.ending = true
	}
	if e.ending && !e.tells() {
		return false
	}
	moved := e.progress()
	if !moved || n%256 == 0 {
		e.look()
	}
	if !moved && !e.pending.Load() && (e.migrator == nil || e.exec.inUse > 0 || e.failed != nil) {
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
}

// migrate makes the calling thread the one that calls the transport and the
// device, and reports whether both allow it.
func (e *Engine) migrate() bool {
	return e.migrator.Migrate() && (e.binder == nil || e.binder.Migrate())
}

// takeOver runs f, which may turn the loop, on the calling goroutine, where
// nothing is under way. It reports whether it has.
func (e *Engine) takeOver(f func()) bool {
	if e.migrator == nil || !e.loopLock.TryLock() {
		return false
	}
	busy := false
	defer func() {
		e.loopLock.Unlock()
		if busy {
			e.wakeLoop()
		}
	}()
	if e.exec.inUse > 0 || e.failed != nil || e.pending.Load() {
		return false
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e.migrated = true // perhaps in part
	if !e.migrate() {
		return false
	}
	f()
	busy = e.exec.inUse > 0 || e.failed != nil || e.pending.Load()
	return true
}

// unwatched is how long drive looks at its context by itself; a call that takes
// longer has the context wake it. To ask for that costs more than a small call.
const unwatched = 50 * time.Microsecond

// drive executes r on the calling goroutine, if nothing else is under way, and
// reports whether it has taken r on: r may still be under way after it if ctx ended.
func (e *Engine) drive(ctx context.Context, r *Request) bool {
	return e.takeOver(func() {
		e.admit(r)
		watched := false
		for n := 1; r.active.Load() && ctx.Err() == nil; n++ {
			if !watched && e.looked.Sub(r.watch.started) > unwatched {
				watched = true
				defer context.AfterFunc(ctx, e.wake)()
			}
			if !e.turn(n) {
				e.pending.Store(true) // the engine is closing, which its goroutine does
				return
			}
		}
	})
}

// doHere runs f on the calling goroutine, if nothing is under way, and reports
// whether it has.
func (e *Engine) doHere(f func() error) (done bool, err error) {
	done = e.takeOver(func() { err = f() })
	return done, err
}
