// Package progress draws progress bars on stderr, where a person watches it.
package progress

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/scaffe/scaffe/mpi"
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

// OnTerminal reports whether stderr is a terminal. Under mpirun stderr is a
// pipe to it, so what counts there is mpirun's own.
func OnTerminal() bool {
	return term.IsTerminal(int(os.Stderr.Fd())) || slices.ContainsFunc(mpi.LauncherProcesses(), stderrIsTerminal)
}

func stderrIsTerminal(pid int) bool {
	target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/2", pid))
	return err == nil && (strings.HasPrefix(target, "/dev/pts/") || strings.HasPrefix(target, "/dev/tty"))
}
