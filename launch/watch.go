package launch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// pidfdOpen is replaced in tests. Kernels before 5.3 do not have the call, and
// the seccomp profiles of older container runtimes refuse it.
var pidfdOpen = unix.PidfdOpen

// watch notices at once when a process of this node ends, and fails its rank's
// engine: MPI libraries wait forever for a peer that has died, or end the
// program from within. Where processes cannot be watched, deadlines notice it
// later.
type watch struct {
	engine *nbc.Engine
	onGone func(rank int) // may be nil

	mu          sync.Mutex
	stopped     bool
	endSentinel func(failed int) // nil unless something is watched
	end         func()           // likewise

	quiet atomic.Bool // what ends has a reason

	leftMu sync.Mutex
	left   map[int]bool // the node's other ranks that have not ended
}

// start is a collective. Of ranks that are to have GPUs and others it is an error of all.
func (w *watch) start(ctx context.Context, comm *collectives.Comm, gpu bool) error {
	pids, gpus, err := processes(ctx, comm, gpu)
	if n := comm.Size(); err == nil && gpus > 0 && gpus < n {
		err = comm.Agree(ctx, fmt.Errorf("%d of %d ranks are to use GPUs, and the others are not: give all of them the same device", gpus, n))
	}
	if err != nil || len(pids) == 0 {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leftMu.Lock()
	w.left = map[int]bool{}
	for rank := range pids {
		w.left[rank] = true
	}
	w.leftMu.Unlock()
	if !w.stopped {
		w.open(comm.Rank(), pids)
	}
	return nil
}

// stop says that what ends from now on has a reason, and ends the sentinel. It must
// be called before any process may end in good order. It may be called several times,
// from any goroutine. onGone is still told of ends: who reports a failure should not
// wait for a rank that was killed meanwhile.
func (w *watch) stop() {
	w.quiet.Store(true)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.endSentinel != nil {
		w.endSentinel(w.failed())
		w.endSentinel = nil
	}
}

// close is stop, and ends the watch altogether.
func (w *watch) close() {
	w.stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end != nil {
		w.end()
		w.end = nil
	}
}

// open watches the processes of the node's other ranks, given by rank, as far as they
// can be watched.
func (w *watch) open(me int, pids map[int]int) {
	quit, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return
	}
	fds := []unix.PollFd{{Fd: int32(quit), Events: unix.POLLIN}}
	ranks := []int{-1}
	for _, rank := range slices.Sorted(maps.Keys(pids)) {
		fd, err := pidfdOpen(pids[rank], 0)
		switch {
		case err == nil:
			fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			ranks = append(ranks, rank)
		case errors.Is(err, unix.ESRCH): // has ended since it told its number
			w.peerExited(rank)
		}
	}
	if len(ranks) == 1 {
		_ = unix.Close(quit)
		return
	}
	if me < slices.Min(slices.Collect(maps.Keys(pids))) { // the node's lowest rank
		pids[me] = os.Getpid()
		w.endSentinel = startSentinel(pids)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.loop(fds, ranks)
	}()
	w.end = func() {
		_, _ = unix.Write(quit, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		<-ended
		_ = unix.Close(quit)
	}
}

// loop notices ends until the first of fds is ready, and closes the others.
func (w *watch) loop(fds []unix.PollFd, ranks []int) {
	for {
		i := firstReady(fds)
		if i == 0 {
			break
		}
		_ = unix.Close(int(fds[i].Fd))
		fds[i].Fd = -1 // ignored from now on
		w.peerExited(ranks[i])
	}
	for _, fd := range fds[1:] {
		if fd.Fd >= 0 {
			_ = unix.Close(int(fd.Fd))
		}
	}
}

// firstReady waits for one of fds and returns its index, the first one's
// before all others'.
func firstReady(fds []unix.PollFd) int {
	for {
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return 0
		}
		for i := range fds {
			if fds[i].Revents != 0 {
				return i
			}
		}
	}
}

// peerExited notes that another rank's process has ended and, where it gave no reason,
// ends this rank's collectives.
func (w *watch) peerExited(rank int) {
	w.leftMu.Lock()
	delete(w.left, rank)
	w.leftMu.Unlock()
	if w.onGone != nil {
		w.onGone(rank)
	}
	if w.quiet.Load() || w.engine.Err() != nil {
		return // it had told the others why, or another has ended before
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), tellTimeout)
		defer cancel()
		_ = w.engine.Abort(ctx, fmt.Sprintf("rank %d is gone", rank))
	}()
}

// lowest reports whether no rank below this one is left on the node.
func (w *watch) lowest() bool {
	w.leftMu.Lock()
	defer w.leftMu.Unlock()
	for rank := range w.left {
		if rank < w.engine.Rank() {
			return false
		}
	}
	return true
}

// failed returns the rank that has told why it ends, -1 if none has.
func (w *watch) failed() int {
	if abort := (*nbc.AbortError)(nil); errors.As(w.engine.Err(), &abort) {
		return abort.Rank
	}
	return -1
}

// processes returns, by rank, the processes of the other ranks of this node,
// as far as this process can name them: where containers share a node, process
// numbers mean nothing across their namespaces. With them go how many of all ranks are to have a GPU, as this one is or not.
func processes(ctx context.Context, comm *collectives.Comm, gpu bool) (here map[int]int, gpus int, err error) {
	binomial, err := spec.Parse("binomial") // whatever was asked for: it has a deadline
	if err != nil {
		return nil, 0, err
	}
	n, me := comm.Size(), comm.Rank()
	v := make([]int64, 3*n)
	v[me], v[n+me] = int64(os.Getpid()), pidNamespace()
	if gpu {
		v[2*n+me] = 1
	}
	if err := comm.Allreduce(ctx, mem.Of(v), mem.Of(v), mem.Int64, mem.Max, collectives.With(binomial)); err != nil {
		return nil, 0, fmt.Errorf("exchanging process numbers: %w", err)
	}
	nodes := comm.Nodes()
	here = map[int]int{}
	for r := range n {
		gpus += int(v[2*n+r])
		if nodes[r] == nodes[me] && v[n+r] == v[n+me] && v[r] != v[me] {
			here[r] = int(v[r])
		}
	}
	return here, gpus, nil
}

// pidNamespace identifies this process's numbering of processes on its node, 0
// if that is unknown.
func pidNamespace() int64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &st) != nil {
		return 0
	}
	return int64(st.Ino)
}
