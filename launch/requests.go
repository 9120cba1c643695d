package launch

import "sync/atomic"

// Requests are what signals ask of a run that can do better than end at once,
// as Caffe's SignalHandler takes them:
//
//	SIGINT, SIGTERM, SIGUSR2   snapshot and stop
//	SIGHUP, SIGUSR1            snapshot and continue
//
// The last of each row is for launchers that do not forward the others
// (docs/signals.md): Open MPI's mpirun forwards SIGUSR1 and SIGUSR2, MPICH's
// SIGINT, SIGTERM and SIGUSR1.
//
// A signal may reach one rank or all: the ranks must agree on what to do. The
// zero value is ready. Safe for concurrent use.
type Requests struct{ asked atomic.Uint32 }

// The bits of Requests.asked.
const (
	askedSnapshot = 1 << iota
	askedStop
)

// Take returns what this process was asked for since the last call. Ranks of
// one process share their Requests: one of them learns of it.
func (r *Requests) Take() (snapshot, stop bool) {
	if r.asked.Load() == 0 {
		return false, false
	}
	asked := r.asked.Swap(0)
	return asked&askedSnapshot != 0, asked&askedStop != 0
}
