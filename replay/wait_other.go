//go:build !linux

package replay

import (
	"runtime"
	"time"
)

// waiter waits for points in time with what every system has.
type waiter struct{}

func newWaiter() (*waiter, error) { return &waiter{}, nil }

// until returns at t, or at once if that has passed.
func (w *waiter) until(t time.Time) error {
	time.Sleep(time.Until(t) - time.Millisecond)
	for time.Now().Before(t) {
		runtime.Gosched()
	}
	return nil
}

func (w *waiter) close() {}
