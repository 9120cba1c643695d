//go:build linux && (amd64 || arm64)

package shm

import (
	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/nbc"
)

var _ nbc.Mover = (*Transport)(nil)

// Move makes the calling thread the one that makes all calls from now on, where
// inner can do that: shared memory does not mind.
func (t *Transport) Move() bool {
	m, ok := t.inner.(nbc.Mover)
	if !ok || !m.Move() {
		return false
	}
	if me := unix.Gettid(); t.thread != me {
		t.thread = me
		quickSleeps()
	}
	return true
}
