//go:build linux && (amd64 || arm64)

package shm

import (
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// readers counts the transports of this process whose peers may read its
// memory.
var readers struct {
	mu sync.Mutex
	n  int
}

// yamaScope says which processes may read each other's memory: 0 those of one
// user, 1 also has to be allowed by the one that is read, 2 and 3 others.
const yamaScope = "/proc/sys/kernel/yama/ptrace_scope"

// asksFor reports whether a system with this yamaScope has to be asked to let
// other processes of the user read this one's memory.
func asksFor(scope string) bool { return strings.TrimSpace(scope) == "1" }

// allowReading lets the node's other ranks read and write this one's memory
// where Yama forbids it otherwise. The system can name one process, or all: any
// process of the same user, then, until forbidReading.
func (t *Transport) allowReading() {
	scope, _ := os.ReadFile(yamaScope)
	if t.readable = asksFor(string(scope)); !t.readable {
		return
	}
	readers.mu.Lock()
	defer readers.mu.Unlock()
	readers.n++
	_ = unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0)
}

// forbidReading takes back what allowReading allowed, with the last transport.
func (t *Transport) forbidReading() {
	if !t.readable {
		return
	}
	t.readable = false
	readers.mu.Lock()
	defer readers.mu.Unlock()
	if readers.n--; readers.n == 0 {
		_ = unix.Prctl(unix.PR_SET_PTRACER, 0, 0, 0, 0)
	}
}
