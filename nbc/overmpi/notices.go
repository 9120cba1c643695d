package overmpi

import (
	"errors"
	"fmt"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/nbc"
)

// notices are nbc.Notifier's, on the control communicator beside those of
// giving up. They too have a standing receive from any rank, and are sent
// synchronously: what a rank has sent has been taken when it closes.
type notices struct {
	in      mem.Buffer         // where the standing receive puts one
	arrived []arrivedNotice    // not yet handed on
	out     map[int]mem.Buffer // by rank; what is being sent lies there
	sending map[int]bool
	over    bool // the standing receive has ended
}

type arrivedNotice struct {
	from int
	text []byte
}

const noteTag = 2

var _ nbc.Notifier = (*Transport)(nil)

// hark posts the standing receive.
func (t *Transport) hark() error {
	n := &t.notices
	if n.in.Len() == 0 {
		n.in = mem.Alloc(nbc.NoticeRoom)
		n.out, n.sending = map[int]mem.Buffer{}, map[int]bool{}
	}
	return t.control.Irecv(t.reqs, forNote, n.in.Pointer(), nbc.NoticeRoom, mpi.AnySource, noteTag)
}

// Notify begins to send a notice to rank to. It is lost where the last one has
// not been taken yet.
func (t *Transport) Notify(to int, notice []byte) error {
	n := &t.notices
	switch {
	case t.over.Load():
		return ErrClosed
	case to < 0 || to >= t.Size() || to == t.Rank() || len(notice) > nbc.NoticeRoom:
		return fmt.Errorf("overmpi: notice of %d bytes from rank %d to %d of %d", len(notice), t.Rank(), to, t.Size())
	case n.sending[to]:
		return nil
	}
	room, ok := n.out[to]
	if !ok {
		room = mem.Alloc(nbc.NoticeRoom)
		n.out[to] = room
	}
	copy(mem.Bytes(room), notice)
	if err := t.control.Issend(t.reqs, forNoteTo|uint64(to), room.Pointer(), len(notice), to, noteTag); err != nil {
		return fmt.Errorf("overmpi: %w", err)
	}
	n.sending[to] = true
	t.rest.stir()
	return nil
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
	for _, b := range n.out {
		b.Free()
	}
}
