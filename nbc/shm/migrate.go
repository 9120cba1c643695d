//go:build linux && (amd64 || arm64)

package shm

import (
	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/internal/backoff"
)

var _ nbc.ThreadMigrator = (*Transport)(nil)

// Migrate makes the calling thread the one that makes all calls from now on, where
// inner can do that: shared memory does not mind.
func (t *Transport) Migrate() bool {
	m, ok := t.inner.(nbc.ThreadMigrator)
	if !ok || !m.Migrate() {
		return false
	}
	if me := unix.Gettid(); t.thread != me {
		t.thread = me
		backoff.QuickSleeps()
	}
	return true
}
