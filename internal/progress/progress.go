// Package progress draws progress bars on stderr, where a person watches it.
package progress

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// New returns a bar of n steps; -1 is an unknown number.
func New(n int) *progressbar.ProgressBar {
	return progressbar.NewOptions(n,
		progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetWidth(30), progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish())
}

// Wanted reports whether the value of a --progress flag (auto, always or
// never) asks for a bar here.
func Wanted(when string) (bool, error) {
	switch when {
	case "auto":
		return OnTerminal(), nil
	case "always":
		return true, nil
	case "never":
		return false, nil
	}
	return false, fmt.Errorf("invalid --progress %q: want auto, always or never", when)
}

// launchers are how the names of MPI's launchers begin.
var launchers = []string{"mpi", "orte", "prte", "hydra"}

// OnTerminal reports whether stderr is a terminal. Under mpirun stderr is a
// pipe to it, so what counts there is mpirun's own.
func OnTerminal() bool {
	if term.IsTerminal(int(os.Stderr.Fd())) {
		return true
	}
	for pid := os.Getppid(); pid > 1; pid = parent(pid) {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil {
			return false
		}
		if isLauncher(filepath.Base(exe)) && stderrIsTerminal(pid) {
			return true
		}
	}
	return false
}

func isLauncher(name string) bool {
	for _, l := range launchers {
		if strings.HasPrefix(name, l) {
			return true
		}
	}
	return false
}

func stderrIsTerminal(pid int) bool {
	target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/2", pid))
	return err == nil && (strings.HasPrefix(target, "/dev/pts/") || strings.HasPrefix(target, "/dev/tty"))
}

// parent returns the parent of a process, 0 where that cannot be told.
func parent(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field is the command in parentheses, which may hold blanks.
	after := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
	if fields := strings.Fields(after); len(fields) > 1 {
		n, _ := strconv.Atoi(fields[1])
		return n
	}
	return 0
}
