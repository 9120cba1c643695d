// Package backoff is how a thread that looks for something to do waits between
// looks in vain: at first not at all, then with its core offered to others, then
// asleep. Transports say how it sleeps.
package backoff

import (
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
	idleLooks     int
}

// Spins returns how many looks without a pause a thread may make, of which each
// of the given ranks has one, besides one that computes, on so many cores.
func Spins(cores, ranks int) int {
	if cores >= 2*ranks {
		return Spare
	}
	return 0
}

// Reset says that there was something: look often again.
func (b *Backoff) Reset() { b.idleLooks = 0 }

// Pause is called after a look in vain. It spins or yields, or reports that it
// is time to sleep.
func (b *Backoff) Pause() (sleep bool) {
	b.idleLooks++
	switch {
	case b.idleLooks <= b.Spins:
		return false
	case b.idleLooks <= b.Spins+b.Yields:
		_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		return false
	}
	return true
}

// QuickSleeps asks the kernel not to round the calling thread's sleeps up by
// 50 µs.
func QuickSleeps() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0) }
