package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sentinelCommand, as the first argument of a program, makes it a sentinel. The
// arguments after it are the ranks and processes to watch: 0:4711 1:4712.
const sentinelCommand = "launch-sentinel"

// hasMain is set by Main: this program, started again, can be a sentinel.
var hasMain atomic.Bool

// Main must be called at the beginning of the main function of a program that
// wants killed processes to be named. Under mpirun, Run starts the program again
// on each node, as a child process that watches the ranks there: its first
// argument is launch-sentinel, and in it Main does not return. Likewise one whose first argument is
// launch-mpi-aware tries whether the MPI library takes GPUs' memory as it says. Otherwise Main
// does nothing.
func Main() {
	hasMain.Store(true)
	if len(os.Args) < 2 {
		return
	}
	switch os.Args[1] {
	case sentinelCommand:
		sentinel(os.Args[2:], os.Stdin, os.Stderr)
		os.Exit(0)
	case awareCommand:
		if err := aware(os.Args[len(os.Args)-1]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// EnvProgram is the environment variable that says how this program is started again, where its file alone will not do: an archive that has its
// own loader sets it (scripts/gpu-check).
const EnvProgram = "SCAFFE_PROGRAM"

// again returns what starts this program again, where that has called Main.
func again() (program string, ok bool) {
	self, err := os.Executable()
	if by := os.Getenv(EnvProgram); by != "" {
		self = by
	}
	return self, err == nil && hasMain.Load()
}

// startSentinel starts a process that survives the ranks of this node by a
// moment, to say which of them died: a launcher may kill all the others before
// one of them can (MPICH's does, and names a wrong one). What it returns ends
// the sentinel; rank failed has told why it ends, none if it is negative.
func startSentinel(ranks map[int]int) (end func(failed int)) {
	none := func(int) {} // then the launcher's own message must do
	self, ok := again()
	if !ok {
		return none
	}
	args := []string{sentinelCommand}
	for rank, pid := range ranks {
		args = append(args, fmt.Sprintf("%d:%d", rank, pid))
	}
	cmd := exec.Command(self, args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // not killed with this process's group
	in, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return none
	}
	unbind(cmd.Process.Pid)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	return func(failed int) {
		_, _ = fmt.Fprintln(in, failed)
		_ = in.Close()
		select {
		case <-ended:
		case <-time.After(sentinelTimeout): // it had no processor: it must not look any more
			_ = cmd.Process.Kill()
		}
	}
}

// sentinelTimeout is how long a sentinel that has been told to end may take: reports
// wait for it, and so do the ranks that have asked for them.
const sentinelTimeout = time.Second

// unbind lets a process run on all processors: one that a rank starts has the rank's,
// on which that may compute. The kernel leaves out those that are not for this job.
func unbind(pid int) {
	var all unix.CPUSet
	for cpu := range 8 * int(unsafe.Sizeof(all)) {
		all.Set(cpu)
	}
	_ = unix.SchedSetaffinity(pid, &all) // where it is forbidden, it waits for its turn
}

// sentinel waits until it is told to end, or until one of the processes ends.
// It names those that ended, or are about to, without having told why: more
// than one where the first took others with it, or the launcher was quicker
// than this process woke.
func sentinel(list []string, in *os.File, log io.Writer) {
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20) // helps where it is allowed
	fds := []unix.PollFd{{Fd: int32(in.Fd()), Events: unix.POLLIN}}
	var watched []string
	early := false // one has ended before
	for _, entry := range list {
		_, pid, _ := strings.Cut(entry, ":")
		n, err := strconv.Atoi(pid)
		if err != nil {
			continue
		}
		fd, err := pidfdOpen(n, 0)
		if errors.Is(err, unix.ESRCH) {
			fd, err = -1, nil // has ended already: reportExited sees that
			early = true
		}
		if err == nil {
			fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			watched = append(watched, entry)
		}
	}
	for failed, told := "", len(watched) == 0; !told; {
		if early { // it may have told why: is that known by now?
			_, _ = unix.Poll(fds[:1], earlyWait)
		}
		if early && fds[0].Revents != 0 || !early && firstReady(fds) == 0 {
			b := make([]byte, 16)
			n, _ := in.Read(b)
			failed, told = strings.TrimSpace(string(b[:n])), n > 0
			fds[0].Fd = -1 // at the end of the input its own rank has ended, as will show
		}
		early = false
		named := make([]bool, len(watched))
		if reportExited(log, watched, fds[1:], failed, named, "exited unexpectedly") {
			time.Sleep(afterwards)
			_, _ = unix.Poll(fds, 0)
			reportExited(log, watched, fds[1:], failed, named, "also exited")
			return
		}
	}
}

// earlyWait is how many milliseconds the sentinel waits to be told why a process
// ended before the sentinel began.
const earlyWait = 100

// afterwards is how long the sentinel looks on: a process whose end took others
// with it may be the last to have ended completely.
const afterwards = 5 * time.Millisecond

// reportExited names the watched processes that have ended and were not named
// before, and reports whether there are any.
func reportExited(log io.Writer, watched []string, fds []unix.PollFd, failed string, named []bool, how string) bool {
	var exited []string
	for i, entry := range watched {
		rank, pid, _ := strings.Cut(entry, ":")
		if !named[i] && rank != failed && (fds[i].Revents != 0 || dying(pid)) {
			exited = append(exited, fmt.Sprintf("rank %s (process %s)", rank, pid))
			named[i] = true
		}
	}
	if len(exited) == 0 {
		return false
	}
	host, _ := os.Hostname()
	fmt.Fprintf(log, "scaffe: %s on %s: %s\n", how, host, strings.Join(exited, ", "))
	return true
}

// dying reports whether a process has lost its memory: the first thing that
// goes, before its end is announced.
func dying(pid string) bool {
	statm, err := os.ReadFile("/proc/" + pid + "/statm")
	return err != nil || strings.HasPrefix(string(statm), "0 ")
}
