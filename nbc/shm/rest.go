//go:build linux && (amd64 || arm64)

package shm

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rest decides how the progress thread waits.
type rest struct {
	spins, yields, vain int
	woken, asleep       atomic.Bool
}

// What a thread does after looking in vain.
const (
	spinsToSpare = 300                    // looks without a pause
	yieldsAlone  = 200                    // looks with the core offered to others: each rank has one
	yieldsShared = 30                     // the same where ranks share cores
	longestBusy  = 50 * time.Microsecond  // with operations of inner under way, or full rings
	longestTold  = time.Millisecond       // after a failure
	longestIdle  = 5 * time.Millisecond   // otherwise: whoever has something wakes
	aliveEvery   = 100 * time.Millisecond // between looks after the peers' processes
)

// open is told how many ranks the node has, on how many cores this one may run,
// and on how many all of them together.
func (r *rest) open(ranks, own, all int) {
	r.yields = yieldsShared
	if all >= ranks {
		r.yields = yieldsAlone
	}
	if own >= 2*ranks { // each has a core for its progress thread besides one that computes
		r.spins = spinsToSpare
	}
	quickSleeps()
}

// quickSleeps asks the kernel not to round this thread's sleeps up by 50 µs.
func quickSleeps() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0) }

func (r *rest) stir() { r.vain = 0 }

// Park lets the thread rest; see the package comment.
func (t *Transport) Park(d time.Duration) {
	if t.over.Load() {
		return
	}
	busy := t.fault == nil && (t.next < len(t.ended) || t.worked < len(t.work))
	if busy || t.rest.woken.Swap(false) {
		t.rest.stir()
		return
	}
	t.rest.vain++
	switch {
	case t.rest.vain <= t.rest.spins:
		return
	case t.rest.vain <= t.rest.spins+t.rest.yields:
		_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		return
	}
	longest := longestIdle
	switch {
	case t.fault != nil:
		longest = longestTold
	case t.innerActive > 0 || t.backlogs > 0 || t.telling.Load() > 0:
		longest = longestBusy
	}
	t.sleep(min(d, longest))
}

// sleep sleeps until the time is up, a peer has written something, or Wake is
// called.
func (t *Transport) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	r := &t.rest
	r.asleep.Store(true)
	atomic.StoreUint32(&t.own.asleep, 1)
	timedOut := false
	if !r.woken.Load() && (t.fault != nil || !t.anything()) {
		t.turns += turnsBetween / 64
		timedOut = futexWait(&t.own.asleep, 1, d)
	}
	atomic.StoreUint32(&t.own.asleep, 0)
	r.asleep.Store(false)
	if r.woken.Swap(false) {
		r.stir()
	}
	if timedOut {
		t.turns = turnsBetween // time has passed: ask inner
		t.lookAfter()
	}
}

// Wake ends a Park under way, or the next one.
func (t *Transport) Wake() {
	t.rest.woken.Store(true)
	if !t.rest.asleep.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over.Load() {
		rouse(t.own)
	}
}

// rouse wakes the peer if it sleeps.
func (p *peer) rouse() { rouse(p.header) }

func rouse(h *header) {
	if atomic.LoadUint32(&h.asleep) == 1 && atomic.CompareAndSwapUint32(&h.asleep, 1, 0) {
		futexWake(&h.asleep)
	}
}

// lookAfter sees to it that the end of a peer's process is noticed where this
// rank waits for one.
func (t *Transport) lookAfter() {
	now := time.Now()
	if t.fault != nil || t.active == 0 || now.Sub(t.lastSeen) < aliveEvery {
		return
	}
	t.lastSeen = now
	for _, p := range t.peers {
		if p.pidfd < 0 || atomic.LoadUint32(&p.header.left) != 0 {
			continue
		}
		fds := [1]unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds[:], 0); err == nil && n > 0 && !p.in.ready(p.read) {
			t.fault = t.gone(p)
			return
		}
	}
}

func (t *Transport) gone(p *peer) error {
	return fmt.Errorf("shm: rank %d is gone: its process (%d) has ended without closing", p.rank, p.pid)
}

const futexWaitOp, futexWakeOp = 0, 1

// futexWait sleeps while word has the value, and reports whether the time was
// up.
func futexWait(word *uint32, value uint32, d time.Duration) bool {
	until := unix.NsecToTimespec(int64(d))
	_, _, e := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWaitOp, uintptr(value),
		uintptr(unsafe.Pointer(&until)), 0, 0)
	return e == unix.ETIMEDOUT
}

func futexWake(word *uint32) {
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWakeOp, 1, 0, 0, 0)
}
