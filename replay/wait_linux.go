package replay

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// early is how long before its end a wait is woken: more than a timer and the
// scheduler usually take.
const early = 100 * time.Microsecond

// waiter waits for points in time without a core: on a timer of the kernel
// that the runtime's poller watches, so that no thread is blocked either. Go's own
// timers are late by up to a millisecond.
type waiter struct {
	timer *os.File
	fd    int
	buf   [8]byte
}

func newWaiter() (*waiter, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("timerfd: %w", err)
	}
	return &waiter{timer: os.NewFile(uintptr(fd), "timer"), fd: fd}, nil
}

// until returns at t, or at once if that has passed.
func (w *waiter) until(t time.Time) error {
	if d := time.Until(t) - early; d > 0 {
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
		if err := unix.TimerfdSettime(w.fd, 0, &spec, nil); err != nil {
			return fmt.Errorf("timerfd: %w", err)
		}
		if _, err := w.timer.Read(w.buf[:]); err != nil {
			return fmt.Errorf("timerfd: %w", err)
		}
	}
	for time.Now().Before(t) {
		runtime.Gosched()
	}
	return nil
}

func (w *waiter) close() { _ = w.timer.Close() }
