package launch_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/internal/ranktest"
	"github.com/scaffe/scaffe/launch"
)

// withoutPidfd, as the first argument, has the program become the others, without
// pidfd_open.
const withoutPidfd = "without-pidfd"

func TestMain(m *testing.M) {
	launch.Main()
	if len(os.Args) > 1 && os.Args[1] == withoutPidfd {
		fmt.Fprintln(os.Stderr, execWithoutPidfd(os.Args[2:]))
		os.Exit(1)
	}
	ranktest.Main(m, runRank)
}

const (
	reason = "a file is missing"
	busy   = 20 * time.Minute // of computing, unless it is ended
)

// runRank is a rank of a test.
func runRank(p ranktest.Process) {
	test, folder := p.Words[0], p.Folder
	switch test {
	case "paths":
		runPaths(p)
		return
	case "sharing":
		runSharing(p)
		return
	}
	o := launch.Options{Log: logTo{folder}}
	err := launch.Run(context.Background(), o, func(ctx context.Context, c *collectives.Comm) error {
		write(folder, fmt.Sprint("process", c.Rank()), strconv.Itoa(os.Getpid()))
		if err := c.Barrier(ctx); err != nil || test == "nothing" {
			return err
		}
		switch c.Rank() {
		case 0:
			compute(busy)
			return errors.New("rank 0 has computed to the end")
		case 1:
			switch test {
			case "rank 0 is killed":
				kill(folder, 0)
			case "rank 1 is killed":
				go func() { // as soon as somebody has heard of it
					for ; !exists(folder, "reported"); time.Sleep(time.Millisecond) {
					}
					kill(folder, 1)
				}()
			}
			return errors.New(reason)
		}
		return c.Barrier(ctx)
	})
	switch {
	case err == nil:
		os.Exit(0)
	case !errors.Is(err, launch.ErrReported):
		fmt.Fprintln(os.Stderr, "scaffe:", err)
	}
	os.Exit(1)
}

// compute does nothing but compute.
func compute(d time.Duration) {
	x := 1.0
	for begin := time.Now(); time.Since(begin) < d; {
		for range 1000 {
			x = math.Sqrt(x + 2)
		}
	}
	runtime.KeepAlive(x)
}

// logTo is stderr, and notes in a folder that a reason has been printed.
type logTo struct{ folder string }

func (l logTo) Write(p []byte) (int, error) {
	n, err := os.Stderr.Write(p)
	if strings.Contains(string(p), reason) {
		write(l.folder, "reported", "")
	}
	return n, err
}

func write(folder, name, text string) {
	if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o666); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func exists(folder, name string) bool {
	_, err := os.Stat(filepath.Join(folder, name))
	return err == nil
}

// kill kills the process of a rank, and returns when it has ended.
func kill(folder string, rank int) {
	b, err := os.ReadFile(filepath.Join(folder, fmt.Sprint("process", rank)))
	pid, e := strconv.Atoi(string(b))
	if err = errors.Join(err, e); err == nil {
		err = unix.Kill(pid, unix.SIGKILL)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	for dead := false; !dead; time.Sleep(time.Millisecond) {
		statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		dead = err != nil || strings.HasPrefix(string(statm), "0 ")
	}
}

// ranks runs a test on n ranks and returns what they and mpirun printed.
func ranks(t *testing.T, n int, test string) (said string, ended error) {
	t.Helper()
	begun := time.Now()
	run := ranktest.Run(t, n, test)
	t.Logf("%d ranks, %v\n%s", n, time.Since(begun).Round(time.Millisecond), run.Printed)
	return run.Printed, run.Err
}

// TestMPIReasonWhereRank0Computes: a rank fails while rank 0 computes. The
// reason is printed, once, nobody waits for rank 0, and no rank that ends
// because it was told to is taken for one that died.
func TestMPIReasonWhereRank0Computes(t *testing.T) {
	for _, n := range []int{2, 4} {
		said, err := ranks(t, n, "rank 1 fails")
		if got := strings.Count(said, "rank 1: "+reason); got != 1 || err == nil {
			t.Errorf("%d ranks: the reason is printed %d times; mpirun: %v\n%s", n, got, err, said)
		}
		for _, wrong := range []string{"exited unexpectedly", "also exited", "is gone", "to the end"} {
			if strings.Contains(said, wrong) {
				t.Errorf("%d ranks: somebody prints %q\n%s", n, wrong, said)
			}
		}
	}
}

// TestMPIReasonWhereTheRankIsKilled: the rank that has failed is killed when the
// others know.
func TestMPIReasonWhereTheRankIsKilled(t *testing.T) {
	for _, n := range []int{2, 4} {
		said, err := ranks(t, n, "rank 1 is killed")
		if got := strings.Count(said, "rank 1: "+reason); got != 1 || err == nil {
			t.Errorf("%d ranks: the reason is printed %d times; mpirun: %v\n%s", n, got, err, said)
		}
	}
}

// TestMPIReasonWhereRank0IsKilled: rank 0 is killed right before a rank fails,
// which then prints the reason itself if the launcher lets it: MPICH's kills all
// ranks within a millisecond.
func TestMPIReasonWhereRank0IsKilled(t *testing.T) {
	for _, n := range []int{2, 4} {
		said, err := ranks(t, n, "rank 0 is killed")
		got := strings.Count(said, "rank 1: "+reason)
		killed := strings.Contains(said, "rank 0 (process ") || strings.Contains(said, "rank 0 is gone")
		if err == nil || got > 1 || got == 0 && !killed {
			t.Errorf("%d ranks: the reason is printed %d times; mpirun: %v\n%s", n, got, err, said)
		}
		if got == 0 && filepath.Base(os.Getenv("SCAFFE_MPI_DIR")) == "openmpi" {
			t.Errorf("%d ranks: the reason is not printed\n%s", n, said)
		}
	}
}

// TestMPIWithoutPidfd: where the kernel or a seccomp profile refuses pidfd_open,
// ranks of one node start and run nevertheless.
func TestMPIWithoutPidfd(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if run := ranktest.Through(t, []string{program, withoutPidfd}, 2, "nothing"); run.Err != nil {
		t.Errorf("mpirun: %v\n%s", run.Err, run.Printed)
	}
}

// execWithoutPidfd becomes another program, for which, as for its children,
// pidfd_open fails as on a kernel that does not have it.
func execWithoutPidfd(args []string) error {
	const (
		load, jumpEqual, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K

		seccompRetErrno, seccompRetAllow = 0x00050000, 0x7fff0000
	)
	filter := []unix.SockFilter{
		{Code: load, K: 0}, // the number of the call
		{Code: jumpEqual, K: unix.SYS_PIDFD_OPEN, Jt: 0, Jf: 1},
		{Code: ret, K: seccompRetErrno | uint32(unix.ENOSYS)},
		{Code: ret, K: seccompRetAllow},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread() // the filter is this thread's, which execve keeps
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return fmt.Errorf("PR_SET_SECCOMP: %w", err)
	}
	if _, err := unix.PidfdOpen(os.Getpid(), 0); !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("pidfd_open still answers %w", err)
	}
	return syscall.Exec(args[0], args, os.Environ())
}
