package overmpi

import (
	"errors"
	"fmt"
	"slices"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/nbc"
)

// notices are nbc.Notifier's, on the control communicator beside those of
// giving up. They too have a standing receive from any rank, and are sent
// synchronously: what a rank has sent has been taken when it closes.
type notices struct {
	in      mem.Buffer      // where the standing receive puts one
	arrived []arrivedNotice // not yet handed on
	out     map[int]*outgoing
	sending int  // ranks to which one is being sent
	over    bool // the standing receive has ended
}

type arrivedNotice struct {
	from int
	text []byte
}

// outgoing is what a rank is told, one notice after another.
type outgoing struct {
	room    mem.Buffer // where the one that is being sent lies
	sending bool
	waiting [][]byte // behind that
}

// mostWaiting bounds what waits for a rank that does not look: as many as an engine asks at a time.
const mostWaiting = 64

const noteTag = 2

var _ nbc.Notifier = (*Transport)(nil)

// hark posts the standing receive.
func (t *Transport) hark() error {
	n := &t.notices
	if n.in.Len() == 0 {
		n.in = mem.Alloc(nbc.NoticeRoom)
		n.out = map[int]*outgoing{}
	}
	return t.control.Irecv(t.reqs, forNote, n.in.Pointer(), nbc.NoticeRoom, mpi.AnySource, noteTag)
}

// Notify sends a notice to rank to, behind those that it has not taken yet. It is lost where
// many wait for it already.
func (t *Transport) Notify(to int, notice []byte) error {
	n := &t.notices
	switch {
	case t.over.Load():
		return ErrClosed
	case to < 0 || to >= t.Size() || to == t.Rank() || len(notice) > nbc.NoticeRoom:
		return fmt.Errorf("overmpi: notice of %d bytes from rank %d to %d of %d", len(notice), t.Rank(), to, t.Size())
	}
	o := n.out[to]
	if o == nil {
		o = &outgoing{room: mem.Alloc(nbc.NoticeRoom)}
		n.out[to] = o
	}
	switch {
	case !o.sending:
		return t.sendNotice(to, notice)
	case len(o.waiting) < mostWaiting:
		o.waiting = append(o.waiting, slices.Clone(notice))
	}
	return nil
}

// sendNotice begins to send a notice to a rank to which none is being sent.
func (t *Transport) sendNotice(to int, notice []byte) error {
	o := t.notices.out[to]
	copy(mem.Bytes(o.room), notice)
	if err := t.control.Issend(t.reqs, forNoteTo|uint64(to), o.room.Pointer(), len(notice), to, noteTag); err != nil {
		return fmt.Errorf("overmpi: %w", err)
	}
	o.sending = true
	t.notices.sending++
	t.rest.stir()
	return nil
}

// noticeSent takes the end of a notice to a rank, and begins to send the next one.
func (t *Transport) noticeSent(to int) {
	o := t.notices.out[to]
	o.sending = false
	t.notices.sending--
	if len(o.waiting) > 0 {
		next := o.waiting[0]
		o.waiting = o.waiting[1:]
		_ = t.sendNotice(to, next) // notices only help to understand: no fault
	}
}

// NextNotice stores the next notice that has arrived in buf.
func (t *Transport) NextNotice(buf []byte) (from, length int) {
	n := &t.notices
	if len(n.arrived) == 0 {
		return -1, 0
	}
	first := n.arrived[0]
	if n.arrived = n.arrived[1:]; len(n.arrived) == 0 {
		n.arrived = nil
	}
	return first.from, copy(buf, first.text)
}

// noted takes the end of the standing receive.
func (t *Transport) noted(d mpi.Done) {
	n := &t.notices
	if errors.Is(d.Err, mpi.ErrCancelled) {
		n.over = true // Close asked for it
		return
	}
	if d.Err != nil { // notices only help to understand: no fault
		n.over = true
		return
	}
	n.arrived = append(n.arrived, arrivedNotice{d.Source, append([]byte(nil), mem.Bytes(n.in)[:d.Bytes]...)})
	n.over = t.hark() != nil
}

// free gives the memory back, with nothing under way.
func (n *notices) free() {
	n.in.Free()
	for _, o := range n.out {
		o.room.Free()
	}
}
