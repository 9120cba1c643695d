package launch

import (
	"context"
	"io"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/nbc"
)

// StartEach is startEach.
func StartEach(n int, open func(int) func() (nbc.Transport, error), o nbc.Options) ([]*nbc.Engine, error) {
	return startEach(n, open, nil, o)
}

// WatchOpen watches processes, given by rank, for rank me's engine. gone, unless nil, is
// told of those that end.
func WatchOpen(e *nbc.Engine, me int, pids map[int]int, gone func(rank int)) (stop, end func()) {
	w := &watch{engine: e, onGone: gone}
	w.open(me, pids)
	if w.end == nil {
		return nil, nil
	}
	return w.stop, w.close
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

// HurryTimeout is hurryTimeout.
const HurryTimeout = hurryTimeout

// Fail ends a world of processes, of which each has one of the engines given, as where
// rank 1's function has returned err. Ranks print to log. told is called with what
// rank 0 prints, before it confirms; signal is what a signal to rank 1 does.
func Fail(engines []*nbc.Engine, err error, log io.Writer, told func(signal func() bool)) {
	ranks := make([]*rank, len(engines))
	for i, e := range engines {
		ranks[i] = newRank(e, Options{Log: log}, 1)
	}
	ranks[0].report.settle = func() { told(ranks[1].report.signaled) }
	ended := make(chan struct{})
	go ranks[0].watchEngine(ended)
	_ = ranks[1].fail(err)
	time.Sleep(reportTimeout)
	close(ended)
}
