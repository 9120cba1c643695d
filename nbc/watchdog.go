package nbc

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// A blocking collective of the MPI library's own (LibraryCall.Blocking) keeps the
// thread that runs the loop until it has ended: meanwhile nothing progresses, and
// no failure, question or deadline is heard of. Therefore it begins when nothing
// else is under way on this rank, and a watchdog ends the process of a rank that
// stays inside beyond the deadline, which no other thread can get out of there.

// watchdog watches the library's blocking calls of one rank.
type watchdog struct {
	rank  int
	exit  func(error)
	every time.Duration // between looks
	once  sync.Once
	stop  chan struct{}

	mu      sync.Mutex
	inside  *Request // whose call the thread is in
	entered time.Time
}

func newWatchdog(rank int, o Options) *watchdog {
	w := &watchdog{rank: rank, exit: o.Exit, every: min(max(o.Deadline/20, 10*time.Millisecond), time.Second), stop: make(chan struct{})}
	if w.exit == nil {
		w.exit = func(err error) {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	return w
}

// begin sets the watchdog going.
func (w *watchdog) begin() {
	w.once.Do(func() {
		go func() {
			tick := time.NewTicker(w.every)
			defer tick.Stop()
			for {
				select {
				case now := <-tick.C:
					w.look(now)
				case <-w.stop:
					return
				}
			}
		}()
	})
}

// end lets it go.
func (w *watchdog) end() { close(w.stop) }

// enter and leave are called around a blocking call.
func (w *watchdog) enter(r *Request) {
	w.mu.Lock()
	w.inside, w.entered = r, time.Now()
	w.mu.Unlock()
}

func (w *watchdog) leave() {
	w.mu.Lock()
	w.inside = nil
	w.mu.Unlock()
}

// look ends the process where a call has lasted too long.
func (w *watchdog) look(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inside == nil || now.Sub(w.entered) <= w.inside.bind.Deadline {
		return
	}
	r := w.inside
	w.inside = nil
	w.exit(fmt.Errorf("nbc: rank %d has been in the MPI library's blocking call for %s (%s) for more than %v, which cannot end in an error, so its process ends: "+
		"some rank has not made that call; with spec mpi instead, which is the library's non-blocking form, an error would name it", w.rank, r.name(), r.bind.Call, r.bind.Deadline))
}

// blocks reports whether r keeps the thread until it has ended.
func (r *Request) blocks() bool { return r.library != nil && r.library.Blocking }

// callLibrary begins the library's collective of r.
func (e *Engine) callLibrary(r *Request, tok Token) error {
	if r.blocks() {
		e.watchdog.enter(r)
		defer e.watchdog.leave()
	}
	return e.transport.(Library).Begin(tok, *r.library)
}

// callHeld makes the next of the blocking calls that wait until nothing else is
// under way, and reports whether there was one.
func (e *Engine) callHeld() bool {
	if len(e.held) == 0 || e.exec.inUse > len(e.held) {
		return false
	}
	r := e.held[0]
	e.held = e.held[1:]
	e.start(r, 0)
	return true
}
