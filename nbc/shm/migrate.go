//go:build linux && (amd64 || arm64)

package shm

import "github.com/scaffe/scaffe/nbc"

var _ nbc.ThreadMigrator = (*Transport)(nil)

// Migrate makes the calling thread the one that makes all calls from now on, where
// inner can do that: shared memory does not mind.
func (t *Transport) Migrate() bool {
	m, ok := t.inner.(nbc.ThreadMigrator)
	return ok && m.Migrate()
}
