package launch

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sentinelVar, in the environment, makes a process a sentinel: its value is
// the ranks and processes to watch, as "0:4711 1:4712".
const sentinelVar = "SCAFFE_SENTINEL"

// A process that was started to be a sentinel is nothing else. This must come
// before main, whatever program this package is part of.
func init() {
	if ranks := os.Getenv(sentinelVar); ranks != "" {
		sentinel(ranks, os.Stdin, os.Stderr)
		os.Exit(0)
	}
}

// startSentinel starts a process that outlives the ranks of this node by a
// moment, to say which of them died: a launcher may kill all the others
// before one of them can (MPICH's does, and names a wrong one). What it
// returns ends the sentinel: the end of rank gaveUp is explained, none if it is
// negative.
func startSentinel(ranks map[int]int) (stop func(gaveUp int)) {
	none := func(int) {} // then the launcher's own words must do
	self, err := os.Executable()
	if err != nil {
		return none
	}
	var list []string
	for rank, pid := range ranks {
		list = append(list, fmt.Sprintf("%d:%d", rank, pid))
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), sentinelVar+"="+strings.Join(list, " "))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // not killed with this process's group
	in, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return none
	}
	return func(gaveUp int) {
		_, _ = fmt.Fprintln(in, gaveUp)
		_ = in.Close()
		_ = cmd.Wait()
	}
}

// sentinel waits until it is told to end, or until one of the processes ends.
// It names those that ended, or are about to, without an explanation: more than
// one where the first took others with it, or the launcher was quicker than
// this process woke.
func sentinel(list string, in *os.File, log io.Writer) {
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20) // helps where it is allowed
	fds := []unix.PollFd{{Fd: int32(in.Fd()), Events: unix.POLLIN}}
	var watched []string
	for _, entry := range strings.Fields(list) {
		_, pid, _ := strings.Cut(entry, ":")
		n, _ := strconv.Atoi(pid)
		if fd, err := unix.PidfdOpen(n, 0); err == nil {
			fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			watched = append(watched, entry)
		}
	}
	for explained, told := "", false; !told; {
		if firstReady(fds) == 0 {
			b := make([]byte, 16)
			n, _ := in.Read(b)
			explained, told = strings.TrimSpace(string(b[:n])), n > 0
			fds[0].Fd = -1 // without a word its own rank has ended, as will show
		}
		named := make([]bool, len(watched))
		if name(log, watched, fds[1:], explained, named, "gone without a word") {
			time.Sleep(afterwards)
			_, _ = unix.Poll(fds, 0)
			name(log, watched, fds[1:], explained, named, "and right after that")
			return
		}
	}
}

// afterwards is how long the sentinel looks on: a process whose end took others
// with it may be the last to be quite gone.
const afterwards = 5 * time.Millisecond

// name names the watched processes that are gone and were not named before, and
// reports whether there are any.
func name(log io.Writer, watched []string, fds []unix.PollFd, explained string, named []bool, how string) bool {
	var gone []string
	for i, entry := range watched {
		rank, pid, _ := strings.Cut(entry, ":")
		if !named[i] && rank != explained && (fds[i].Revents != 0 || dying(pid)) {
			gone = append(gone, fmt.Sprintf("rank %s (process %s)", rank, pid))
			named[i] = true
		}
	}
	if len(gone) == 0 {
		return false
	}
	host, _ := os.Hostname()
	fmt.Fprintf(log, "scaffe: %s on %s: %s\n", how, host, strings.Join(gone, ", "))
	return true
}

// dying reports whether a process has lost its memory: the first thing that
// goes, before its end is announced.
func dying(pid string) bool {
	statm, err := os.ReadFile("/proc/" + pid + "/statm")
	return err != nil || strings.HasPrefix(string(statm), "0 ")
}
