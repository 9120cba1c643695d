package launch

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// noticeTime is how long a rank that gives up waits before its process ends,
// so that its notice arrives before that is noticed.
const noticeTime = 50 * time.Millisecond

// watch makes sure that the end of a process of this node is noticed at once,
// by its rank: MPI libraries wait for a peer that is gone for ever, or end the
// program from within. What watch returns ends it, and must be called before
// any process may leave in peace. It is a collective.
func watch(ctx context.Context, e *nbc.Engine, comm *collectives.Comm) (stop func(), err error) {
	pids, err := processes(ctx, comm)
	if err != nil || len(pids) == 0 {
		return func() {}, err
	}
	quit, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return func() {}, nil // a kernel without: deadlines notice, later
	}
	fds := []unix.PollFd{{Fd: int32(quit), Events: unix.POLLIN}}
	ranks := []int{}
	for rank, pid := range pids {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			ranks = append(ranks, rank)
		}
	}
	end := func(int) {}
	if comm.Rank() < slices.Min(ranks) { // the lowest of the node
		pids[comm.Rank()] = os.Getpid()
		end = startSentinel(pids)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if i := firstReady(fds); i > 0 {
			gone(e, ranks[i-1])
		}
	}()
	return func() {
		_, _ = unix.Write(quit, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		<-ended
		gaveUp := -1
		if abort := (*nbc.AbortError)(nil); errors.As(e.Err(), &abort) {
			gaveUp = abort.Rank
		}
		end(gaveUp)
		for _, fd := range fds {
			_ = unix.Close(int(fd.Fd))
		}
	}, nil
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

// gone ends this rank's collectives because the process of another has ended
// without a word.
func gone(e *nbc.Engine, rank int) {
	if e.Err() != nil {
		return // it had told the others why
	}
	ctx, cancel := context.WithTimeout(context.Background(), tellTimeout)
	defer cancel()
	_ = e.Abort(ctx, fmt.Sprintf("rank %d is gone", rank))
}

// processes returns, by rank, the processes of the other ranks of this node.
func processes(ctx context.Context, comm *collectives.Comm) (map[int]int, error) {
	n, me := comm.Size(), comm.Rank()
	v := make([]int64, 2*n)
	v[me], v[n+me] = int64(os.Getpid()), node()
	if err := comm.Allreduce(ctx, mem.Of(v), mem.Of(v), mem.Int64, mem.Max); err != nil {
		return nil, err
	}
	here := map[int]int{}
	for r := range n {
		if v[n+r] == v[n+me] && v[r] != v[me] {
			here[r] = int(v[r])
		}
	}
	return here, nil
}

// node identifies this machine and its process numbers, by a number above 0.
func node() int64 {
	h := fnv.New64a()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	space, _ := os.Readlink("/proc/self/ns/pid")
	host, _ := os.Hostname()
	fmt.Fprintln(h, string(boot), space, host)
	return int64(h.Sum64()>>1) | 1
}
