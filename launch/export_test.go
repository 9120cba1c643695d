package launch

import (
	"context"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/nbc"
)

// StartEach is startEach.
func StartEach(n int, open func(int) func() (nbc.Transport, error), o nbc.Options) ([]*nbc.Engine, error) {
	return startEach(n, open, o)
}

// WatchOpen watches processes, given by rank, for rank me's engine.
func WatchOpen(e *nbc.Engine, me int, pids map[int]int) (end func()) {
	return (&watch{engine: e}).open(me, pids)
}

// SetPidfdOpen replaces pidfd_open and returns what puts it back.
func SetPidfdOpen(f func(pid, flags int) (int, error)) (restore func()) {
	old := pidfdOpen
	pidfdOpen = f
	return func() { pidfdOpen = old }
}

// SetExit replaces os.Exit and returns what puts it back.
func SetExit(f func(int)) (restore func()) {
	old := exit
	exit = f
	return func() { exit = old }
}

// RunRank runs f as one rank, whose process has no other.
func RunRank(ctx context.Context, e *nbc.Engine, o Options, f func(context.Context, *collectives.Comm) error) error {
	return newRank(e, o, e.Size()).run(ctx, f)
}
