package nbc

import (
	"context"
	"runtime"
	"time"
)

// loop is the progress loop.
func (e *Engine) loop() {
	naps := 0 // to come
	for n, on := 0, true; on; n++ {
		if !e.loopLock.TryLock() { // a caller turns the loop, and wakes this goroutine after it
			e.sleep(naps > 0)
			continue
		}
		if e.migrated {
			e.migrated = !e.migrate()
		}
		spare := e.spare()
		if spare || len(e.lingering) > 0 {
			naps = lingerNaps
		}
		if len(e.lingering) > 0 {
			e.adopt(e.exec.inUse > 0 || e.pending.Load() || e.failed != nil)
		}
		if !spare {
			e.begin()
			if !e.isWanted() {
				on = e.turn(n)
			}
		}
		idle := on && e.migrator != nil && (spare || !e.busy() || e.isWanted())
		if naps > 0 {
			naps--
		}
		e.naps = idle && naps > 0
		if !on {
			e.end()
		}
		e.loopLock.Unlock()
		if idle && !e.pending.Load() {
			e.sleep(naps > 0)
		}
	}
}

// begin posts the messages of a request that has been started while nothing was under way,
// so that other ranks can go on, and lets its caller go on too: the progress thread may
// have been woken on the core of that, which a launcher has bound both to, and is about to
// copy or add for long.
func (e *Engine) begin() {
	if e.waiter == nil || e.hasty || !e.pending.Load() || e.busy() {
		return
	}
	if !e.takeNew() {
		e.ending = true
		return
	}
	if e.perform() {
		e.waiter.Yield()
	}
}

// idleLook is how often the engine looks for notices while nothing is under
// way, in case nothing wakes it.
const idleLook = 5 * time.Millisecond

// sleep rests without holding loopLock, so that a caller may take over at once: for
// a nap, or until woken.
func (e *Engine) sleep(nap bool) {
	e.slept.Pass(time.Now())
	rest := idleLook
	if nap {
		rest = lingerNap
	}
	if e.eager != nil && (nap || runtime.GOMAXPROCS(0) > 1) { // a nap keeps one of Go's processors for a while
		e.eager.Nap(rest)
		return
	}
	e.idle.Reset(rest)
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
	if !moved && !e.pending.Load() && (e.migrator == nil || e.busy()) {
		e.turned.Pass(e.looked)
		e.transport.Park(e.rest())
	}
	return true
}

// end gives everything back.
func (e *Engine) end() {
	e.idle.Stop()
	e.forgetWakers()
	e.watchdog.end()
	e.fail(ErrClosed)
	for i := range e.scratch {
		e.scratch[i].close()
	}
	_ = e.transport.Close()
	_ = e.device.Close()
}

// migrate makes the calling thread the one that calls the transport and the
// device, and reports whether both allow it.
func (e *Engine) migrate() bool {
	return e.migrator.Migrate() && (e.binder == nil || e.binder.Migrate())
}

// busy reports whether the loop has something to look after.
func (e *Engine) busy() bool {
	return e.exec.inUse > 0 || len(e.after) > 0 || e.failed != nil || e.eager != nil && e.eager.Unsent()
}

// enter makes the calling goroutine the one that holds loopLock, where nothing is
// under way, and reports whether it has.
func (e *Engine) enter() bool {
	if e.migrator == nil || !e.loopLock.TryLock() {
		return false
	}
	if e.exec.inUse > 0 || len(e.after) > 0 || e.failed != nil || e.pending.Load() {
		e.loopLock.Unlock()
		return false
	}
	return true
}

// leave ends what enter began.
func (e *Engine) leave() {
	busy := e.busy() || e.pending.Load()
	e.loopLock.Unlock()
	if busy {
		e.wakeLoop()
	}
}

// onThread runs f, which may turn the loop, on the thread of the calling goroutine,
// which has entered. It reports false where transport and device do not allow it.
func (e *Engine) onThread(f func()) bool {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e.migrated = true // perhaps in part
	if !e.migrate() {
		return false
	}
	f()
	return true
}

// unwatched is how long turnFor looks at its context by itself; a call that takes
// longer has the context wake it. To ask for that costs more than a small call.
const unwatched = 50 * time.Microsecond

// drive executes r on the calling goroutine, if nothing else is under way, and
// reports whether it has taken r on: r may still be under way after it if ctx ended.
func (e *Engine) drive(ctx context.Context, r *Request) bool {
	if !e.enter() {
		return false
	}
	defer e.leave()
	done, failed := 0, error(nil)
	if r.lone != nil {
		ended := false
		if done, ended, failed = e.runLone(r, 0, true); ended {
			e.endLone(r)
			r.end(nil)
			return true
		}
	}
	e.proceed(ctx, r, done, failed)
	return true
}

// proceed turns the loop on the calling goroutine, which has entered, until r has
// ended or ctx. The first ops of those that r executes alone are done; failed is what
// the one after them came to.
func (e *Engine) proceed(ctx context.Context, r *Request, done int, failed error) {
	e.handOver(r, done, failed) // first, as what is lent is its own
	e.adopt(true)               // the others that linger must not wait for this one
	e.turnFor(ctx, r)
}

// turnFor turns the loop on the calling goroutine, which holds loopLock, until r, which
// is under way, has ended or ctx.
func (e *Engine) turnFor(ctx context.Context, r *Request) {
	e.onThread(func() { // where that is not allowed, the engine's goroutine continues
		if e.waiter != nil {
			e.wait(true)
			defer e.wait(false)
		}
		for n := 1; r.active.Load() && ctx.Err() == nil; n++ {
			if r.watch != nil && e.looked.Sub(r.watch.started) > unwatched {
				e.wakeAtEnd(ctx)
			}
			if !e.turn(n) {
				e.pending.Store(true) // the engine is closing, which its goroutine does
				return
			}
		}
	})
}

// wait says whether the thread that turns the loop does so for a blocking call.
func (e *Engine) wait(only bool) {
	e.waits = only
	e.waiter.Waits(only)
}

// waker wakes whoever turns the loop at the end of a context, known by its Done.
type waker struct {
	done <-chan struct{}
	stop func() bool
}

// wakeAtEnd has the end of ctx wake whoever turns the loop. The calls of a program have
// few contexts, so each is asked once as long as it is among the last.
func (e *Engine) wakeAtEnd(ctx context.Context) {
	done := ctx.Done()
	if done == nil {
		return
	}
	for i := range e.wakers {
		if e.wakers[i].done == done {
			return
		}
	}
	w := &e.wakers[e.nextWaker]
	e.nextWaker = (e.nextWaker + 1) % len(e.wakers)
	if w.stop != nil {
		w.stop()
	}
	*w = waker{done, context.AfterFunc(ctx, e.wake)}
}

// forgetWakers has no context wake the loop any more.
func (e *Engine) forgetWakers() {
	for _, w := range e.wakers {
		if w.stop != nil {
			w.stop()
		}
	}
}

// A collective that takes less than to wake a thread and is not executed alone is begun by
// its caller too, and left to it for a nap: in Wait it turns
// the loop, so that no thread has to wake for the collective, neither at its beginning
// nor at its end. A caller that computes for longer finds that the engine's goroutine
// has taken it over.

// How large such a collective is at most: between nodes a few kilobytes; on one a reduction of 128 KiB takes 4 µs between two
// ranks, 30 among four that share two cores (AMD EPYC, Zen 4). With 256 KiB a caller that leaves its core idle comes to its end later.
const (
	leftBetween = LinkBytes
	leftWithin  = 128 << 10
)

// leaves reports whether r is left to its caller.
func (e *Engine) leaves(r *Request) bool {
	if e.hasty {
		return r.size() <= leftBetween
	}
	return r.size() <= leftWithin
}

// startHere begins r in the loop on the calling goroutine, and reports false where it
// cannot.
func (e *Engine) startHere(r *Request) bool {
	if !e.leaves(r) || r.blocks() || !e.enter() {
		return false
	}
	begun := e.onThread(func() {
		e.adopt(true)
		r.number()
		e.admit(r, nil, nil)
		e.progress()
	})
	e.leaveToCaller()
	return begun
}

// leaveToCaller is leave where the goroutine is to take over only after a nap.
func (e *Engine) leaveToCaller() {
	busy := e.failed != nil || e.pending.Load() || e.exec.inUse == 0 && e.busy()
	if e.exec.inUse > 0 && !busy {
		e.left.Store(leftNow)
		busy = !e.naps // it is to nap
	}
	e.loopLock.Unlock()
	if busy {
		e.wakeLoop()
	}
}

// Values of Engine.left.
const (
	leftNone int32 = iota // what is under way is the goroutine's, or whose who turns the loop
	leftNow               // it is left to its caller
	leftSeen              // and has been for a part of a nap
)

// spare reports whether what is under way is to be left to its caller.
func (e *Engine) spare() bool {
	left := e.left.Load()
	if left == leftNow && !e.pending.Load() && e.failed == nil {
		e.left.Store(leftSeen)
		return true
	}
	if left != leftNone {
		e.left.Store(leftNone)
	}
	return false
}

// help turns the loop where nobody else does: until r has ended or ctx, where it is
// waited for and nothing else is under way, otherwise once.
func (e *Engine) help(ctx context.Context, r *Request, waits bool) {
	if e.migrator == nil || !r.active.Load() || !waits && e.left.Load() == leftNone {
		return
	}
	if !e.loopLock.TryLock() && (!waits || !e.takeOver(r)) {
		return
	}
	if !waits {
		e.onThread(func() { e.progress() })
		e.leaveToCaller()
		return
	}
	defer e.leave()
	if e.failed == nil && e.exec.inUse <= 1 {
		e.left.Store(leftNone)
		e.adopt(true)
		e.turnFor(ctx, r)
	}
}

// A goroutine that waits for the only request under way turns the loop by itself, where the engine's has it: that one gives it
// up when asked. Otherwise two threads have to wake, one after the other, perhaps on one core: 20 to 40 µs, more than an
// allreduce of 512 KiB takes on a node. Between nodes the engine's goroutine keeps it, which gets its core
// at once from those who compute there.

// takeOverWait bounds how long a goroutine asks for the loop.
const takeOverWait = 30 * time.Microsecond

// takeOver asks the engine's goroutine for the loop, and reports whether the caller has got it: it holds loopLock.
func (e *Engine) takeOver(r *Request) bool {
	if e.waiter == nil || e.hasty {
		return false
	}
	e.wanted.Add(1)
	e.transport.Wake()
	got := false
	for start := time.Now(); r.active.Load(); e.waiter.Yield() {
		if got = e.loopLock.TryLock(); got || time.Since(start) > takeOverWait {
			break
		}
	}
	e.wanted.Add(-1)
	if !got && r.active.Load() {
		e.wakeLoop() // it may have given up the loop to nobody
	}
	return got
}

// isWanted reports whether the loop is to be given up; the caller holds loopLock.
func (e *Engine) isWanted() bool {
	return e.wanted.Load() > 0 && !e.pending.Load() && e.exec.inUse <= 1 && len(e.after) == 0 && e.failed == nil && !e.ending
}
