package launch

import (
	"os"
	"runtime"
)

// processors is how many of Go's processors (GOMAXPROCS) a process has at least. A
// caller that computes in C, or waits in a system call, keeps the one it had until the
// runtime's monitor takes it away, up to 10 ms later; meanwhile the progress thread
// needs one to come back from each of its own system calls, and whatever those calls
// wake (watchers, the collector) another. On a process that mpirun has bound to a core
// Go would have one, and nothing would move while its caller computes. Which thread the
// core runs is the kernel's business, as for any helper thread.
const processors = 4

// provide sees to it, unless the environment says how many there are to be.
func provide() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < processors {
		runtime.GOMAXPROCS(processors)
	}
}
