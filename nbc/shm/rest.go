//go:build linux && (amd64 || arm64)

package shm

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/nbc/internal/backoff"
	"github.com/scaffe/scaffe/nbc/internal/futex"
)

// rest decides how the progress thread waits.
type rest struct {
	backoff.Backoff
	looks         int // of Linger without a pause
	spins         int // looks of Park without a pause
	waits         int // the same for a thread that only waits
	crowded       bool
	woken, asleep atomic.Bool
	naps          backoff.Naps
}

// What a thread does after looking in vain.
const (
	yieldsAlone  = 200                    // looks with the core offered to others: each rank has one
	offersAlone  = 4000                   // and then with a core that nobody else wants, some ms of them
	yieldsShared = 30                     // the same where ranks share cores
	longestBusy  = 50 * time.Microsecond  // with operations of inner under way, or full rings
	longestBulk  = 200 * time.Microsecond // with none of inner's but large messages under way, which take longer
	longestTold  = time.Millisecond       // after a failure
	longestIdle  = 5 * time.Millisecond   // otherwise: a rank that has something wakes it
	looksAlone   = 2000                   // for a small message, some 20 µs, with a core for each rank
	looksShared  = 10                     // the same where ranks share cores
	spinsWaiting = 2000                   // looks without a pause of a thread that only waits, some 200 µs, with a core for each rank
	aliveEvery   = 100 * time.Millisecond // between looks after the peers' processes
)

// open is told how many ranks share the node's cores, on how many cores this one may run,
// and on how many all of the node's together.
func (r *rest) open(ranks, own, all int) {
	r.spins, r.Yields, r.looks = backoff.Spins(own, ranks), yieldsShared, looksShared
	r.waits, r.crowded = r.spins, all < ranks
	if !r.crowded {
		r.Yields, r.Offers, r.looks, r.waits = yieldsAlone, offersAlone, looksAlone, spinsWaiting
	}
	r.Spins = r.spins
}

// Waits says whether the thread has nothing to do but to wait. Where each rank has a core,
// it then looks for a while without offering that to others: one that computes, in another
// process, would keep it for milliseconds.
func (t *Transport) Waits(only bool) {
	if t.rest.Spins = t.rest.spins; only {
		t.rest.Spins = t.rest.waits
	}
}

// Yield offers the calling thread's core to others, once.
func (t *Transport) Yield() { backoff.Yield() }

// Crowded reports whether the node's ranks share cores.
func (t *Transport) Crowded() bool { return t.rest.crowded }

// Park lets the thread rest; see the package comment.
func (t *Transport) Park(d time.Duration) {
	if t.over.Load() {
		return
	}
	busy := t.fault == nil && (t.next < len(t.ended) || t.worked < len(t.work))
	if busy || t.rest.woken.Swap(false) {
		t.rest.Reset()
		return
	}
	if t.fault == nil && t.innerBusy() && (t.bulk != nil && t.bulk.Bulk() || t.rest.Leaves()) {
		if t.rest.PauseBulk() {
			t.sleep(min(d, t.rest.Nap(longestBulk)))
		}
		return
	}
	if !t.rest.Pause() {
		return
	}
	longest := longestIdle
	switch {
	case t.fault != nil:
		longest = longestTold
	case t.innerBusy() || t.backlogs > 0 || t.telling.Load() > 0:
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
		r.Quicken()
		timedOut = futex.Wait(&t.own.asleep, 1, d)
	}
	atomic.StoreUint32(&t.own.asleep, 0)
	r.asleep.Store(false)
	if r.woken.Swap(false) {
		r.Reset()
	}
	if timedOut {
		t.turns = turnsBetween // time has passed: ask inner
		t.lookAfter()
	}
}

// Wake ends a Park under way, or the next one.
func (t *Transport) Wake() {
	t.rest.woken.Store(true)
	t.rest.naps.End()
	if !t.rest.asleep.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over.Load() {
		wakePeer(t.own)
	}
}

// wakePeer wakes the rank with this header if it sleeps.
func wakePeer(h *header) {
	if atomic.LoadUint32(&h.asleep) == 1 && atomic.CompareAndSwapUint32(&h.asleep, 1, 0) {
		futex.Wake(&h.asleep)
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
