package launch

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/scaffe/scaffe/nbc"
)

// The notes by which a rank makes sure that rank 0 has printed the reason of a
// failure: it asks, with the reason where the failure is its own, until rank 0
// confirms.
const (
	noteFailed   = "failed: "
	noteReported = "reported"
)

const (
	// reportTimeout is how long a rank waits for rank 0 to confirm.
	reportTimeout = 10 * time.Second
	// hurryTimeout takes its place once a signal has come: a launcher ends all ranks
	// when the first of them has learned of the failure and ended. One that had no
	// processor until then finds the signal and rank 0's answer together. It is less
	// than what the process has left (exitGrace).
	hurryTimeout = exitGrace / 2
	// ownReason is how long f has to return the error of an engine that failed
	// on its own rank, which says more than the engine's.
	ownReason = 200 * time.Millisecond
	// While waiting, a rank asks again after askSoon, then less and less often.
	askSoon   = 10 * time.Millisecond
	askSeldom = 200 * time.Millisecond
)

// report sees to it that the reason of a failure is printed once where the world
// has several processes: by rank 0, or by the rank that failed where rank 0
// cannot.
type report struct {
	engine *nbc.Engine
	log    io.Writer
	settle func()      // what comes before ranks may end without being taken for killed
	lowest func() bool // whether this rank is the lowest that is left on its node

	confirmed  func() // closes isReported
	isReported chan struct{}
	rank0Gone  chan struct{} // closed when rank 0's process has ended
	hurry      chan struct{} // closed when a signal came after the failure
	lost, rush func()        // close these

	mu      sync.Mutex
	failing bool
	printed bool
	settled bool         // and ranks may end: those that ask later are answered at once
	asked   map[int]bool // ranks that rank 0 owes an answer
}

func newReport(e *nbc.Engine, log io.Writer, w *watch) *report {
	p := &report{
		engine: e, log: log, settle: w.stop, lowest: w.lowest, asked: map[int]bool{},
		isReported: make(chan struct{}), rank0Gone: make(chan struct{}), hurry: make(chan struct{}),
	}
	p.confirmed = sync.OnceFunc(func() { close(p.isReported) })
	p.lost = sync.OnceFunc(func() { close(p.rank0Gone) })
	w.onGone = p.gone
	p.rush = sync.OnceFunc(func() { close(p.hurry) })
	e.HandleNotes(p.note)
	return p
}

// note takes another rank's note, on the engine's thread.
func (p *report) note(from int, text string) {
	switch reason, failed := strings.CutPrefix(text, noteFailed); {
	case p.engine.Rank() == 0 && failed:
		go p.answer(from, reason)
	case from == 0 && text == noteReported:
		p.confirmed()
	}
}

// answer is rank 0's: it prints the reason that another rank has told, unless
// one was printed, and confirms.
func (p *report) answer(from int, reason string) {
	p.mu.Lock()
	p.asked[from] = true
	printed, settled := p.printed, p.settled
	p.mu.Unlock()
	switch {
	case settled:
		p.confirm()
	case printed: // whoever has printed it confirms
	case reason != "" && p.engine.Err() == nil: // otherwise engineFailed knows more
		p.print(failure{rank: from, err: errors.New(reason)})
	}
}

// confirm answers all ranks that have asked.
func (p *report) confirm() {
	p.mu.Lock()
	asked := maps.Clone(p.asked)
	clear(p.asked)
	p.mu.Unlock()
	for r := range asked {
		p.engine.Note(r, noteReported)
	}
}

// print prints the reason, once.
func (p *report) print(f failure) {
	p.mu.Lock()
	if !p.printed {
		fmt.Fprintf(p.log, "scaffe: %v\n", f.message(p.engine.Size()))
	}
	p.printed = true
	p.mu.Unlock()
	p.settle()
	p.mu.Lock()
	p.settled = true
	p.mu.Unlock()
	p.confirm()
}

// engineFailed prints why rank 0's engine has failed, whatever f does. What
// another rank has told is printed at once.
func (p *report) engineFailed(ended <-chan struct{}) {
	err := p.engine.Err()
	if p.engine.Rank() != 0 || errors.Is(err, nbc.ErrClosed) {
		return
	}
	f := classify(0, err)
	if !f.known {
		select {
		case <-ended:
			return
		case <-time.After(ownReason):
		}
	}
	p.print(f)
}

// gone notes that a process has ended.
func (p *report) gone(rank int) {
	if rank == 0 {
		p.lost()
	}
}

// signaled shortens the wait for rank 0, where this rank has failed, and reports
// whether it has.
func (p *report) signaled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failing {
		p.rush()
	}
	return p.failing
}

// fail returns when the reason of f has been printed, as far as that can be
// known. told is closed when the other ranks have been told.
func (p *report) fail(f failure, told <-chan struct{}) {
	p.mu.Lock()
	p.failing = true
	p.mu.Unlock()
	if p.engine.Rank() == 0 {
		p.print(f)
		wait(told, tellTimeout)
		return
	}
	mine := f.rank == p.engine.Rank() && (!f.exit || p.lowest())
	if !p.reportedBy0(f, mine) && mine {
		p.print(f)
	}
	wait(told, reportTimeout)
}

// reportedBy0 asks rank 0 until it confirms, which it reports, or cannot.
func (p *report) reportedBy0(f failure, mine bool) bool {
	question := noteFailed
	if mine {
		question += f.err.Error()
	}
	timeout, hurry := time.After(reportTimeout), p.hurry
	for pause := askSoon; ; pause = min(2*pause, askSeldom) {
		p.engine.Note(0, question)
		select {
		case <-p.isReported:
			return true
		case <-p.rank0Gone:
			return false
		case <-hurry:
			hurry, pause = nil, askSoon
			timeout = time.After(hurryTimeout)
		case <-timeout:
			return false
		case <-time.After(pause):
		}
	}
}

func wait(done <-chan struct{}, limit time.Duration) {
	select {
	case <-done:
	case <-time.After(limit):
	}
}
