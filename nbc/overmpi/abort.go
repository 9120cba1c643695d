package overmpi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/nbc"
)

// A notice is the reason in plain text, on the control communicator. A
// standing receive from any rank waits for it. It is sent synchronously, so
// that it has arrived when Abort returns, even if the process ends then.
const (
	noticeTag  = 1
	noticeRoom = 1024 // bytes
)

// abort is the state of giving up, in both directions.
type abort struct {
	in     mem.Buffer // where the standing receive puts a notice
	out    mem.Buffer // what this rank tells
	reason string     // set before pending

	mu      sync.Mutex
	called  bool
	pending atomic.Bool   // until all are told
	heard   atomic.Bool   // another rank gave up first
	begun   bool          // to tell
	left    int           // ranks not yet told
	done    chan struct{} // closed when all are told
	gone    chan struct{} // closed by Close
}

func (a *abort) open() {
	room := mem.Alloc(2 * noticeRoom)
	a.in, a.out = room.Slice(0, noticeRoom), room.Slice(noticeRoom, noticeRoom)
	a.done, a.gone = make(chan struct{}), make(chan struct{})
}

// under reports whether this rank is telling the others.
func (a *abort) under() bool { return a.pending.Load() || a.left > 0 }

// listen posts the standing receive.
func (t *Transport) listen() error {
	return t.control.Irecv(t.reqs, forAbort, t.abort.in.Pointer(), noticeRoom, mpi.AnySource, noticeTag)
}

// noticed takes the end of the standing receive. The first notice counts; the
// receive is posted again so that other ranks that give up are heard out.
func (t *Transport) noticed(d mpi.Done) {
	if errors.Is(d.Err, mpi.ErrCancelled) {
		t.reached = true // Close asked for it
		return
	}
	if d.Err != nil {
		t.fault = fmt.Errorf("overmpi: receiving notices: %w", d.Err)
		return
	}
	notice := &nbc.AbortError{Rank: d.Source, Reason: string(mem.Bytes(t.abort.in)[:d.Bytes])}
	if err := t.listen(); err != nil {
		t.fault = errors.Join(notice, err)
	}
	if t.fault == nil {
		t.fault = notice
	}
	t.abort.heard.Store(true)
}

// giveUp hands the reason to whoever polls and waits until all are told. It
// makes no call to MPI itself, not even on the thread that did last: the engine
// may be on its way to another. A rank that was itself told that another gave
// up has nothing to add: all were told.
func (t *Transport) giveUp(ctx context.Context, reason string) error {
	if t.over.Load() {
		return ErrClosed
	}
	a := &t.abort
	a.mu.Lock()
	if a.called || a.heard.Load() {
		a.mu.Unlock()
		return nil
	}
	a.called = true
	a.reason = strings.ToValidUTF8(reason[:min(len(reason), noticeRoom)], "")
	a.pending.Store(true)
	a.mu.Unlock()
	t.Wake()
	select {
	case <-a.done:
		return nil
	case <-a.gone:
		return ErrClosed
	case <-ctx.Done():
		return t.untold(ctx)
	}
}

func (t *Transport) untold(ctx context.Context) error {
	return fmt.Errorf("overmpi: rank %d gave up before every other rank was told: %w", t.Rank(), ctx.Err())
}

// tell begins to tell the others, where Abort was called.
func (a *abort) tell(t *Transport) {
	if !a.pending.Load() || a.begun {
		return
	}
	a.begun = true
	a.left = t.Size()
	n := copy(mem.Bytes(a.out), a.reason)
	for r := range t.Size() {
		if r == t.Rank() {
			continue
		}
		// An error means that r cannot be reached; there is nobody to tell.
		if t.control.Issend(t.reqs, forTell|uint64(r), a.out.Pointer(), n, r, noticeTag) != nil {
			a.told(1)
		}
	}
	a.told(1) // itself
}

// told notes that n more ranks are told.
func (a *abort) told(n int) {
	if a.left -= n; a.left == 0 {
		a.pending.Store(false)
		close(a.done)
	}
}
