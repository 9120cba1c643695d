package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// running is a command under way, whose output goes to a file.
type running struct {
	t    testing.TB
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
}

// begin starts a command. Should the test end first, the command is killed.
func begin(t testing.TB, dir, name string, args ...string) *running {
	t.Helper()
	log, err := os.CreateTemp(dir, "log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r := &running{t: t, cmd: exec.Command(name, args...), log: log.Name(), done: make(chan struct{})}
	r.cmd.Dir, r.cmd.Stdout, r.cmd.Stderr = dir, log, log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.done)
		_ = r.cmd.Wait() // what it came to is in ProcessState
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.done
	})
	return r
}

func (r *running) text() string {
	b, err := os.ReadFile(r.log)
	if err != nil {
		r.t.Error(err)
	}
	return string(b)
}

// ended reports whether the command has ended.
func (r *running) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// patience is how long a test waits for what must happen, on a machine that is
// slow and busy too.
const patience = 20 * time.Minute

// until waits for a line of the log, and returns what its groups matched.
func (r *running) until(pattern string) []string {
	r.t.Helper()
	line := regexp.MustCompile("(?m)" + pattern)
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		over := r.ended() // before the log is read
		text := r.text()
		if m := line.FindStringSubmatch(text); m != nil {
			return m
		}
		if over || time.Since(begun) > patience {
			r.t.Fatalf("nothing said %q (ended: %v)\n%s", pattern, over, text)
		}
	}
}

// end waits for the command to end by itself.
func (r *running) end() result {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(patience):
		r.t.Fatalf("the command hangs\n%s", r.text())
	}
	return result{stderr: r.text(), code: r.cmd.ProcessState.ExitCode()}
}

// launcherPatience is how long mpirun may be there after the last of its ranks.
const launcherPatience = time.Minute

// endAfterRanks waits for the command to end by itself or, where its ranks have, ends it. Open
// MPI's mpirun (4.1.4) now and then waits for ever for a lock of its PMIx library, when it wants to
// end after a rank was killed that set itself up.
func (r *running) endAfterRanks() result {
	r.t.Helper()
	begun := time.Now()
	for last := begun; !r.ended() && time.Since(begun) < patience; time.Sleep(50 * time.Millisecond) {
		if len(processes(r.cmd.Dir)) > 0 {
			last = time.Now()
		} else if time.Since(last) > launcherPatience {
			r.t.Logf("mpirun hangs, and is killed\n%s", r.text())
			_ = r.cmd.Process.Kill()
			break
		}
	}
	return r.end()
}

// signal sends s to the command, or to those of its ranks that are named.
func (r *running) signal(s syscall.Signal, whom ...string) {
	r.t.Helper()
	pids := make([]int, len(whom))
	for i, who := range whom {
		if pids[i] = r.cmd.Process.Pid; who != "mpirun" {
			pids[i] = r.rank(who)
		}
	}
	for i, who := range whom { // the first may end the others before it is their turn
		if err := syscall.Kill(pids[i], s); err != nil && (i == 0 || err != syscall.ESRCH) {
			r.t.Errorf("%v to %s: %v", s, who, err)
		}
	}
}

// rank returns the process of a rank that mpirun has started.
func (r *running) rank(rank string) int {
	r.t.Helper()
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		if pid := processOf(r.cmd.Dir, rank); pid > 0 {
			return pid
		}
		if r.ended() || time.Since(begun) > patience {
			r.t.Fatalf("no process has rank %s (ended: %v)\n%s", rank, r.ended(), r.text())
		}
	}
}

// processOf finds the process of a rank in dir, 0 if there is none.
func processOf(dir, rank string) int {
	for pid, env := range processes(dir) {
		if slices.Contains(env, "OMPI_COMM_WORLD_RANK="+rank) || slices.Contains(env, "PMI_RANK="+rank) {
			return pid
		}
	}
	return 0
}

// processes returns the environments of the processes of the program that
// work in dir.
func processes(dir string) map[int][]string {
	found := map[int][]string{}
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		exe, _ := os.Readlink(filepath.Join(p, "exe"))
		cwd, _ := os.Readlink(filepath.Join(p, "cwd"))
		env, _ := os.ReadFile(filepath.Join(p, "environ"))
		args, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		vars := strings.Split(string(env), "\x00")
		ending := len(args) == 0 // it has lost its memory since exe was read; it may have been a sentinel
		if exe != scaffe || cwd != dir || ending || strings.Contains(string(args), "\x00launch-sentinel\x00") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(p)); err == nil {
			found[pid] = vars
		}
	}
	return found
}
