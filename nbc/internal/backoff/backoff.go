// Package backoff is how a thread that looks for something to do waits between
// looks in vain: at first not at all, then with its core offered to others, then
// asleep. Transports say how it sleeps.
package backoff

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Spare is how many looks without a pause, about 100 µs of them, a thread makes
// that has a core to itself.
const Spare = 300

// Backoff counts looks in vain. The zero value sleeps at once.
type Backoff struct {
	// Spins is how many looks there are without a pause, Yields how many after
	// them with the core offered to others.
	Spins, Yields int
	// Offers is how many looks there are after those with the core offered to others that
	// do not want it: as soon as one does, here or during the Yields, it is time to sleep,
	// since whoever wakes this thread gives it the core sooner. Where it is 0 the others are
	// thought to be those that are waited for.
	Offers    int
	idleLooks int

	crowded bool      // others wanted the core when last asked
	asked   int       // calls of PauseBulk until it asks again
	left    time.Time // until when the core is left to a thread that computes
	nap     time.Duration
	Quick
}

// What PauseBulk and Nap go by.
const (
	// ran is how long a yield lasts at least that has let another thread run, computed one
	// that has let a thread compute: not one that waits, or copies for this one.
	ran      = 5 * time.Microsecond
	computed = time.Millisecond
	// leftFor is for how many times as long as such a yield the core is not offered again: a
	// thread that sleeps has it back as soon as it wakes (RunAtOnce).
	leftFor = 32
	// askEvery is how many calls of PauseBulk rely on the last answer.
	askEvery = 32

	firstNap = 20 * time.Microsecond
)

// BulkSize is from how many bytes on a message takes longer than a short nap, up to
// some 10 Gbit/s.
const BulkSize = 64 << 10

// Spins returns how many looks without a pause a thread may make, of which each
// of the given ranks has one, besides one that computes, on so many cores.
func Spins(cores, ranks int) int {
	if cores >= 2*ranks {
		return Spare
	}
	return 0
}

// Reset says that there was something: look often again.
func (b *Backoff) Reset() { b.idleLooks, b.nap = 0, 0 }

// Pause is called after a look in vain. It spins or yields, or reports that it
// is time to sleep.
func (b *Backoff) Pause() (sleep bool) {
	b.idleLooks++
	switch {
	case b.idleLooks <= b.Spins:
		return false
	case b.idleLooks > b.Spins+b.Yields+b.Offers || b.Leaves():
		return true
	}
	switch took := b.offer(); {
	case took >= computed:
		return true
	case b.Offers > 0 && took >= ran:
		b.idleLooks = b.Spins + b.Yields + b.Offers
		return true
	}
	return false
}

// offer offers the core to others, and returns for how long they have had it.
func (b *Backoff) offer() time.Duration {
	took := offered()
	if took >= computed {
		b.left = time.Now().Add(leftFor * took)
	}
	return took
}

// Leaves reports whether the core is left to a thread that computes: then looks are to be few (Nap).
func (b *Backoff) Leaves() bool { return !b.left.IsZero() && time.Now().Before(b.left) }

// offered yields, and returns how long that took. Tests set it.
var offered = func() time.Duration {
	start := time.Now()
	Yield()
	return time.Since(start)
}

// PauseBulk is Pause where nothing is awaited but large messages (BulkSize), which take
// longer than a nap. A library needs many looks for one of them, each of which costs; so
// where others want the core, as a yield tells that lets them run, it is time to sleep at
// once, and the ranks that have something to do get on.
func (b *Backoff) PauseBulk() (sleep bool) {
	if b.asked--; b.crowded && b.asked > 0 || b.Leaves() {
		return true
	}
	b.asked = askEvery
	b.crowded = b.offer() >= ran
	b.idleLooks++
	return b.idleLooks > b.Spins+b.Yields
}

// Nap returns how long the next sleep is to be while large messages are awaited: half as
// long again as the last one since Reset, so that it is a part of the time that has
// passed, and longest at most.
func (b *Backoff) Nap(longest time.Duration) time.Duration {
	b.nap = min(max(b.nap+b.nap/2, firstNap), longest)
	return b.nap
}

// Yield offers the calling thread's core to other threads, also of other processes: for as long as such a thread
// runs at a time.
func Yield() {
	if hasty.Load() > 0 && sliceOfThis() == slice { // which it would give up alone, and go on
		setSlice(0)
		defer setSlice(slice)
	}
	_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}

// slice is how long a thread of RunAtOnce runs before others have their turn: the least that the kernel takes.
const slice = 100 * time.Microsecond

// hasty is how many threads of this process run at once.
var hasty atomic.Int32

// RunAtOnce asks the kernel to let the calling thread run as soon as it wakes, also where another one computes on its
// core, and in return for less at a time: a short slice (Linux 6.12; before, it changes nothing). Threads that it
// creates are as others. What it returns takes that back.
func RunAtOnce() (undo func()) {
	hasty.Add(1)
	setSlice(slice)
	return func() {
		setSlice(0)
		hasty.Add(-1)
	}
}

// setSlice sets the calling thread's slice, 0 for the usual one.
func setSlice(d time.Duration) {
	if a, err := unix.SchedGetAttr(0, 0); err == nil && a.Policy == unix.SCHED_NORMAL {
		a.Flags |= unix.SCHED_FLAG_RESET_ON_FORK
		a.Runtime = uint64(d)
		_ = unix.SchedSetAttr(0, a, 0)
	}
}

// sliceOfThis returns the calling thread's slice, 0 where the kernel does not say.
func sliceOfThis() time.Duration {
	a, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return 0
	}
	return time.Duration(a.Runtime)
}

// Quick asks the kernel not to round the sleeps of a thread up by 50 µs.
type Quick struct{ thread int }

// Quicken is called before a sleep, by one thread or another: whoever need not sleep makes no system call for it, which
// may take as long as a small message.
func (q *Quick) Quicken() {
	if me := unix.Gettid(); me != q.thread {
		q.thread = me
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0)
	}
}
