//go:build linux && (amd64 || arm64)

package shm

import (
	"slices"
	"time"
	"unsafe"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/internal/backoff"
)

var _ nbc.Eager = (*Transport)(nil)

const (
	// loneRoom is the greatest message that a caller moves which executes its collective
	// alone: larger ones are copied by both of their ranks, which is the loop's work.
	loneRoom = shareFrom - 1
	// addedRoom is the greatest that it adds, of which its sender copies nothing, where each rank has a core. The loop reads and adds larger ones
	// piece by piece, in the cache.
	addedRoom = 256 << 10
)

// EagerRoom returns how large messages between this rank and another may be.
func (t *Transport) EagerRoom(rank int) nbc.EagerRoom {
	switch {
	case rank < 0 || rank >= len(t.byRank):
		return nbc.EagerRoom{}
	case t.byRank[rank] != nil && t.shares:
		return nbc.EagerRoom{Most: loneRoom, Added: addedRoom, Copied: blockRoom, Kept: t.copyRoom()}
	case t.byRank[rank] != nil:
		return nbc.EagerRoom{Most: loneRoom, Copied: blockRoom, Kept: t.copyRoom()}
	case t.eager != nil:
		return t.eager.EagerRoom(rank)
	}
	return nbc.EagerRoom{}
}

// Shared reports whether b lies in this rank's arena: registered memory.
func (t *Transport) Shared(b mem.Buffer) bool {
	_, ok := t.arena.find(b)
	return ok
}

// Bound reports whether inner asks for its thread, of the ranks that it reaches.
func (t *Transport) Bound(rank int) bool { return t.byRank[rank] == nil && t.eager.Bound(rank) }

// Unsent reports whether inner has messages left to send.
func (t *Transport) Unsent() bool { return t.eager != nil && t.eager.Unsent() }

// Put writes a message of at most EagerRoom bytes into the ring to rank to, or where it
// lies, and reports whether there was room.
func (t *Transport) Put(tok nbc.Token, to int, tag nbc.Tag, src mem.Buffer, lend bool) bool {
	p := t.byRank[to]
	switch {
	case t.fault != nil:
		return false
	case p == nil:
		return t.eager.Put(tok, to, tag, src, lend)
	case p.backlog.Len() > 0:
		return false
	}
	n := src.Len()
	if small := lend && n > t.copyRoom(); n > blockRoom || small && t.Shared(src) {
		return t.putLarge(tok, p, tag, src)
	}
	if !p.writeMessage(tag, src) {
		return false
	}
	wakePeer(p.header)
	return true
}

// copyRoom is up to how many bytes messages are copied into rings whatever memory they are in: where ranks share cores all that
// fit, since a sender that waits for its receiver waits for that one's turn.
func (t *Transport) copyRoom() int {
	if t.shares {
		return copyRoom
	}
	return blockRoom
}

// putLarge is Put of a message that does not travel in the ring. It is lent where the
// receiver reads it; otherwise this rank makes a copy in registered memory.
func (t *Transport) putLarge(tok nbc.Token, p *peer, tag nbc.Tag, src mem.Buffer) bool {
	t.drainOf(p) // it may have read earlier ones, whose copies are then overwritten in the cache
	lends := t.Shared(src) || t.reaches(p)
	if !lends && t.filled > 0 && t.filled+src.Len() > t.askRoom {
		return false
	}
	if e := t.table.find(p, tag); e != nil && e.wanted.head != nil {
		return false // this rank is to put it where the receiver has said
	}
	if p.full() {
		return false
	}
	o := t.begin(tok, p, tag, src, src.Len())
	o.sending, o.eager, o.lends = true, true, lends
	o.total = o.n // Expect was of the loop's last collective
	t.active--    // nobody waits for it
	if lends {
		t.decide(o) // a receiver that only moves it has Lent copy too
	}
	d := descriptor{kind: sends, id: o.id, length: uint64(src.Len())}.about(tag)
	if err := t.locate(o, &d); err != nil {
		t.forget(o)
		return false
	}
	if o.shared {
		d.place |= bothCopy
	}
	o.queued = true
	o.e.sends.push(o)
	if o.lends {
		t.loans = append(t.loans, o)
		t.loaned = append(t.loaned, tok)
	}
	p.write(&d)
	wakePeer(p.header)
	return true
}

// Lent returns the tokens of the messages that receivers may still read.
func (t *Transport) Lent() []nbc.Token {
	if len(t.loans) > 0 && t.fault == nil {
		t.drain()
		t.labor()
	}
	return t.loaned
}

// Keep has Poll report when the receivers of these have read them.
func (t *Transport) Keep(base nbc.Token) {
	for _, o := range t.loans {
		o.eager, o.lends = false, false
		o.tok += base
		t.active++
	}
	t.loans, t.loaned = t.loans[:0], t.loaned[:0]
}

// endEager forgets the message of Put that its receiver has read.
func (t *Transport) endEager(o *op) {
	if o.lends {
		i := slices.Index(t.loans, o)
		t.loans, t.loaned = slices.Delete(t.loans, i, i+1), slices.Delete(t.loaned, i, i+1)
	}
	t.forget(o)
}

// Take returns the message of n bytes with the tag given if rank from has sent
// it. Taken gives it back.
func (t *Transport) Take(from int, tag nbc.Tag, n int, dst mem.Buffer) (mem.Buffer, bool) {
	p := t.byRank[from]
	switch {
	case t.fault != nil:
		return mem.Buffer{}, false
	case p == nil:
		return t.eager.Take(from, tag, n, dst)
	}
	if e := t.table.find(p, tag); e != nil && e.arrived.head != nil { // it was taken out of the ring when nobody waited for it
		return t.takeKept(e, n, dst)
	}
	for p.in.ready(p.read) {
		s := p.in.slot(p.read)
		if s.kind == sends && s.tag() == tag {
			message, ok := t.message(p, &s.descriptor, p.inlineOf(s), n, dst)
			p.shown = ok
			return message, ok
		}
		t.take(p, s)
		p.next()
	}
	return mem.Buffer{}, false
}

// message returns the message of n bytes that d tells of, which came with it or is lent;
// false where it is another, or lies where this rank does not read it.
func (t *Transport) message(p *peer, d *descriptor, with []byte, n int, dst mem.Buffer) (message mem.Buffer, ok bool) {
	switch place := d.lies(); {
	case d.size() != n:
	case place == inlined:
		return bufferOf(with), len(with) == n
	case place == registered:
		message, ok = p.at(d)
	case place == private && t.reaches(p) && n <= addedRoom:
		message, ok = t.fetch(p, d, dst)
	}
	if ok {
		p.owed = d.id
	}
	return message, ok
}

// fetch copies the message that lies in the peer's private memory to dst or, where that
// is empty, to where Taken gives the memory back.
func (t *Transport) fetch(p *peer, d *descriptor, dst mem.Buffer) (mem.Buffer, bool) {
	if dst.Len() == 0 {
		var err error
		if dst, err = t.arena.stage(int(d.length)); err != nil {
			return mem.Buffer{}, false
		}
		t.fetched = dst
	}
	if err := t.vm(p, uintptr(d.addr), dst, false); err != nil {
		t.giveFetched()
		return mem.Buffer{}, false // the loop tries it again, and says so
	}
	return dst, true
}

// giveFetched gives the memory of fetch back.
func (t *Transport) giveFetched() {
	t.arena.unstage(t.fetched)
	t.fetched = mem.Buffer{}
}

// takeKept returns the message of n bytes that e holds.
func (t *Transport) takeKept(e *entry, n int, dst mem.Buffer) (mem.Buffer, bool) {
	a := e.arrived.head
	message, ok := t.message(e.peer, &a.descriptor, a.message, n, dst)
	if ok {
		t.table.pop(&e.arrived) // what it returns stays valid until the next keep
		t.table.tidy(e)
	}
	return message, ok
}

func bufferOf(b []byte) mem.Buffer {
	return mem.At(unsafe.Pointer(unsafe.SliceData(b)), len(b), mem.Host)
}

// Taken gives back what Take returned last of rank from.
func (t *Transport) Taken(from int) {
	p := t.byRank[from]
	if p == nil {
		t.eager.Taken(from)
		return
	}
	if p.shown {
		p.shown = false
		p.next()
	}
	if p.owed != 0 {
		t.answer(p, p.owed, 0, well)
		p.owed = 0
		t.giveFetched()
	}
}

// Linger is called between looks in vain by a rank that waits for a few bytes:
// with a core to itself it looks again at once, otherwise it lets others have the
// core. It reports whether to look again.
func (t *Transport) Linger(from, looks int) bool {
	switch {
	case from >= 0 && t.byRank[from] == nil:
		return t.eager.Linger(from, looks)
	case looks <= t.rest.looks:
		return true
	case looks <= t.rest.looks+t.rest.Yields:
		backoff.Yield()
		return true
	}
	return false
}

// Nap lets the calling thread sleep, while others use the transport.
func (t *Transport) Nap(d time.Duration) { t.rest.naps.Nap(d, &t.rest.woken) }
