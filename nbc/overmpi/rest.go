package overmpi

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/internal/host"
	"github.com/scaffe/scaffe/nbc/internal/backoff"
)

// rest decides how the progress thread waits: how often it looked in vain
// says how long it may stay away.
type rest struct {
	backoff.Backoff
	nap    time.Duration
	event  int // eventfd; -1 while there is none
	fds    [1]unix.PollFd
	woken  atomic.Bool
	asleep atomic.Bool
	naps   backoff.Naps
	mu     sync.Mutex // holds event open while it is written to
}

// What a thread does after looking in vain.
const (
	yields      = 30                     // looks with the core offered to others
	firstNap    = 20 * time.Microsecond  // then sleeps, each a quarter longer
	longestBusy = 50 * time.Microsecond  // with operations under way: large messages move only while looked at
	longestBulk = 200 * time.Microsecond // with none but large ones under way, which take longer, or where every look takes the core from one that computes
	longestIdle = 5 * time.Millisecond   // with none: for notices only
)

// eventfd is a variable so that a test can let it fail.
var eventfd = unix.Eventfd

func (r *rest) open(localSize int) error {
	fd, err := eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("overmpi: eventfd: %w", err)
	}
	r.event = fd
	r.fds[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	// Ranks of other nodes may have the same cores (Rivals), but to give way to them, for a rank that is
	// alone on its node, mostly makes small calls longer, up to twice (docs/benchmarks/nodes.md, "Nodes that share a machine").
	r.Spins, r.Yields = backoff.Spins(cores(), localSize), yields
	r.stir()
	return nil
}

// cores returns on how many cores this rank may run: one that is bound to its
// own (mpirun binds) sees only those.
func cores() int {
	if n := host.Allowed().Count(); n > 0 {
		return n
	}
	return runtime.NumCPU()
}

// stir says that something happened: look often again.
func (r *rest) stir() {
	r.Reset()
	r.nap = firstNap
}

// park rests once, at most d. busy says that operations are under way, bulk that they
// are large messages.
func (r *rest) park(d time.Duration, busy, bulk bool) {
	if r.woken.Swap(false) {
		r.stir()
		return
	}
	if bulk || busy && r.Leaves() {
		if r.PauseBulk() {
			r.sleep(min(d, r.Nap(longestBulk)))
		}
		return
	}
	if !r.Pause() {
		return
	}
	longest := longestIdle
	if busy {
		longest = longestBusy
	}
	r.sleep(min(d, r.nap, longest))
	r.nap = min(r.nap+r.nap/4, longest)
}

// sleep sleeps until the time is up or wake is called.
func (r *rest) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	r.asleep.Store(true)
	if !r.woken.Load() {
		r.Quicken()
		until := unix.NsecToTimespec(int64(d))
		n, _ := unix.Ppoll(r.fds[:], &until, nil)
		if n > 0 {
			var count [8]byte
			_, _ = unix.Read(r.event, count[:])
		}
	}
	r.asleep.Store(false)
	if r.woken.Swap(false) {
		r.stir()
	}
}

// wake ends a sleep, or the next park. It may be called after close.
func (r *rest) wake() {
	r.woken.Store(true)
	r.naps.End()
	if !r.asleep.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.event >= 0 {
		one := [8]byte{1}
		_, _ = unix.Write(r.event, one[:])
	}
}

func (r *rest) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.event >= 0 {
		_ = unix.Close(r.event)
		r.event = -1
	}
}
