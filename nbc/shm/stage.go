//go:build linux && (amd64 || arm64)

package shm

import (
	"fmt"

	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/mem"
)

// A message in private memory that two ranks do not copy together is read by its receiver,
// with the system's help, where that is allowed: at once, whenever the sender has its turn on a core
// that it shares. What is borrowed, to be added, is read into memory that stays in
// the core's cache.
//
// Otherwise, and where the collective is larger than the caches, it is
// copied into registered memory by its sender: at once where it is small, else when
// the receiver asks for it. A plain copy takes a half to two thirds of what one through the system does, and the sender's core makes it
// while the receiver adds what came before. A receiver asks for no more than it can read while it is
// still in a cache. So the bytes come from memory once, for all their receivers.

// eagerCopy is the greatest message that is copied at once: to copy it costs less
// than to be asked.
const eagerCopy = 64 << 10

// reaches reports whether messages in private memory are copied between this rank and p
// without a copy in registered memory: where both ranks do it together, each on a
// core of its own.
func (t *Transport) reaches(p *peer) bool { return t.shares && p.vm }

// copiesAtOnce reports whether the message of the send o is copied before the receiver
// asks: where it is small, or the receiver will ask, since it cannot read it and did last, and uses what
// it has while this rank copies, each on a core of its own. Ranks that share cores
// gain nothing by that while what they copy lies in a cache; of collectives larger than that all is asked for, and they save
// a turn of each. A message of
// Put is copied unless it is lent.
func (t *Transport) copiesAtOnce(o *op) bool {
	if o.eager {
		return !o.lends
	}
	ahead := t.shares && o.peer.asks && !o.peer.vm || !t.shares && o.total >= kernels.StreamFrom
	return o.n <= eagerCopy || ahead && (t.filled == 0 || t.filled+o.n <= t.askRoom)
}

// staging is a copy, in registered memory, of what sends under way have in memory
// that their receivers do not share. Sends of the same bytes, as in a broadcast,
// have one: the bytes stay as they are until all those sends have ended. A message of
// Put has its own, since its sender may overwrite the bytes while the copy waits.
type staging struct {
	of, to mem.Buffer // to is empty until somebody needs it
	uses   int
	next   *staging // unused
}

// staging returns the place of the copy of b for one more send: its own, or one that
// it shares.
func (t *Transport) staging(b mem.Buffer, own bool) *staging {
	if s := t.copies[b]; s != nil && !own {
		s.uses++
		return s
	}
	s := t.unstaged
	if s == nil {
		s = &staging{}
	} else {
		t.unstaged = s.next
	}
	*s = staging{of: b, uses: 1}
	if !own {
		t.copies[b] = s
	}
	return s
}

// fill makes the copy unless it is there.
func (t *Transport) fill(s *staging) error {
	if s.to.Len() > 0 {
		return nil
	}
	to, err := t.arena.stage(s.of.Len())
	if err != nil {
		return err
	}
	kernels.Move(to, s.of, false) // it is read next
	s.to = to
	t.filled += to.Len()
	return nil
}

// unstage ends a send's use of s.
func (t *Transport) unstage(s *staging) {
	if s.uses--; s.uses > 0 {
		return
	}
	if t.copies[s.of] == s {
		delete(t.copies, s.of)
	}
	t.arena.unstage(s.to)
	t.filled -= s.to.Len()
	*s = staging{next: t.unstaged}
	t.unstaged = s
}

// reads reports whether the receive o reads its message out of the sender's private memory,
// rather than be given it.
func (t *Transport) reads(o *op) bool {
	return o.peer.vm && o.total < kernels.StreamFrom && (o.borrows || !t.shares)
}

// read lets Poll do that: what is borrowed goes to memory of the transport's.
func (t *Transport) read(o *op) {
	if o.borrows && o.buf.Len() == 0 {
		var err error
		if o.buf, err = t.arena.stage(o.n); err != nil {
			t.answer(o.peer, o.other.id, o.n, failed)
			t.end(o, err)
			return
		}
		o.staged = true
	}
	t.enqueue(o)
}

// ask lets the sender of the message of o copy it, as soon as there is room.
func (t *Transport) ask(o *op) {
	t.asking = append(t.asking, o)
	t.askMore()
}

func (t *Transport) askMore() {
	for len(t.asking) > 0 {
		o := t.asking[0]
		if t.asked > 0 && t.asked+o.n > t.askRoom {
			return
		}
		t.asking = t.asking[:copy(t.asking, t.asking[1:])]
		t.asked += o.n
		o.asked = true
		t.post(o.peer, descriptor{kind: asks, id: o.other.id, length: o.id})
	}
}

// answerAsk copies a message for a peer that asks for it.
func (t *Transport) answerAsk(p *peer, d *descriptor) {
	o := t.lookup(p, d.id)
	if o == nil || o.copy == nil {
		t.broken(p, "a message that is not under way")
		return
	}
	p.asks = true
	answer := descriptor{kind: copied, place: registered, id: d.length, length: uint64(o.n)}
	err := t.fill(o.copy)
	if err != nil {
		answer.place = failed
	}
	off, _ := t.arena.find(o.copy.to)
	answer.addr = uint64(off)
	t.post(p, answer)
	if err != nil {
		t.end(o, err)
	}
}

// hasCopy goes on with a receive whose message has been copied to where this rank
// reads it.
func (t *Transport) hasCopy(p *peer, d *descriptor) {
	o := t.lookup(p, d.id)
	switch {
	case o == nil || !o.asked || int(d.length) != o.n:
		t.broken(p, "a copy that was not asked for")
		return
	case d.place == failed:
		t.end(o, fmt.Errorf("shm: rank %d has no memory for a copy of a message of %d bytes", p.rank, o.n))
		return
	}
	o.other.place, o.other.addr = registered, d.addr
	if !o.borrows {
		t.enqueue(o)
		return
	}
	src, ok := p.at(&o.other)
	if !ok {
		t.broken(p, "a message beyond its memory")
		return
	}
	o.buf = src
	t.end(o, nil)
}
