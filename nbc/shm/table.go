//go:build linux && (amd64 || arm64)

package shm

import (
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// op is an operation of this rank, from its beginning until both sides are
// finished with it.
type op struct {
	id      uint64 // index in ops, and how often that was used before, shifted by 32
	tok     nbc.Token
	peer    *peer
	e       *entry
	buf     mem.Buffer // the message's memory; of a borrowing receive what it hands out
	n       int        // bytes
	total   int        // of the collective that it is part of
	sending bool
	borrows bool
	told    bool     // the peer has this operation's descriptor
	staged  bool     // buf is staging memory
	copy    *staging // of a send from memory that the peer does not share
	asked   bool     // of a receive: for such a copy
	queued  bool     // in e.recvs or e.sends
	eager   bool     // begun by Put: its end is not reported
	lends   bool     // besides: its receiver reads the caller's memory

	// Once it has met the other side's descriptor:
	other      descriptor
	copied     int    // bytes so far
	shared     bool   // both sides copy it
	claim      *claim // once they do
	exchanged  bool   // the other one is about to copy a message of this rank's
	send       uint64 // then: the sender's id
	err        error  // what to end with after the peer has answered
	next, prev *op    // in a queue
}

// ops is a queue of operations, oldest first.
type ops struct{ head, tail *op }

func (q *ops) push(o *op) {
	o.prev, o.next = q.tail, nil
	if q.tail != nil {
		q.tail.next = o
	} else {
		q.head = o
	}
	q.tail = o
}

func (q *ops) remove(o *op) {
	if o.prev != nil {
		o.prev.next = o.next
	} else {
		q.head = o.next
	}
	if o.next != nil {
		o.next.prev = o.prev
	} else {
		q.tail = o.prev
	}
	o.prev, o.next = nil, nil
}

// note is a descriptor of the other side that came before this side's
// operation.
type note struct {
	descriptor
	next    *note
	message []byte // what came with it
}

type notes struct{ head, tail *note }

func (q *notes) push(n *note) {
	n.next = nil
	if q.tail != nil {
		q.tail.next = n
	} else {
		q.head = n
	}
	q.tail = n
}

// entry is what is under way with one peer under one tag.
type entry struct {
	peer *peer
	tag  nbc.Tag
	next *entry // in its bucket

	recvs   ops   // receives that have not met their message
	arrived notes // messages that have not met their receive
	sends   ops   // sends the peer was told of, unless it is known which receive they meet
	wanted  notes // the peer's receives that have not met their send
	untold  int   // receives under way of which the peer was not told
	uses    int   // operations under way
}

// table finds entries by peer and tag, without allocating once it is warm.
type table struct {
	buckets     []*entry // a power of two of them
	count       int
	unused      *entry
	unusedNotes *note
}

const firstBuckets = 64

func bucket(p *peer, tag nbc.Tag, n int) int {
	x := uint64(tag.Message)*0x9e3779b97f4a7c15 ^ uint64(tag.Instance)*0xc2b2ae3d27d4eb4f ^
		uint64(tag.Comm)*0x165667b19e3779f9 ^ uint64(tag.Fingerprint)*0x85ebca77c2b2ae63 ^ uint64(p.rank)*0x27d4eb2f165667c5
	return int((x ^ x>>29) * 0xbf58476d1ce4e5b9 >> 33 & uint64(n-1))
}

// find returns the entry of a peer and tag, nil where there is none.
func (t *table) find(p *peer, tag nbc.Tag) *entry {
	if t.count == 0 {
		return nil
	}
	for e := t.buckets[bucket(p, tag, len(t.buckets))]; e != nil; e = e.next {
		if e.tag == tag && e.peer == p {
			return e
		}
	}
	return nil
}

// get returns the entry of a peer and tag, a new one where there is none.
func (t *table) get(p *peer, tag nbc.Tag) *entry {
	if e := t.find(p, tag); e != nil {
		return e
	}
	if t.count >= len(t.buckets) {
		t.grow()
	}
	b := &t.buckets[bucket(p, tag, len(t.buckets))]
	e := t.unused
	if e == nil {
		e = &entry{}
	} else {
		t.unused = e.next
	}
	e.peer, e.tag, e.next = p, tag, *b
	*b = e
	t.count++
	return e
}

func (t *table) grow() {
	old := t.buckets
	t.buckets = make([]*entry, max(firstBuckets, 2*len(old)))
	for _, e := range old {
		for e != nil {
			next := e.next
			b := &t.buckets[bucket(e.peer, e.tag, len(t.buckets))]
			e.next = *b
			*b = e
			e = next
		}
	}
}

// tidy drops e where nothing is under way in it.
func (t *table) tidy(e *entry) {
	if e.uses > 0 || e.arrived.head != nil || e.wanted.head != nil {
		return
	}
	b := &t.buckets[bucket(e.peer, e.tag, len(t.buckets))]
	for *b != e {
		b = &(*b).next
	}
	*b = e.next
	e.next = t.unused
	t.unused = e
	t.count--
}

// keep appends a descriptor, with the message that lies behind it, to q.
func (t *table) keep(q *notes, d *descriptor, message []byte) {
	n := t.unusedNotes
	if n == nil {
		n = &note{}
	} else {
		t.unusedNotes = n.next
	}
	n.descriptor = *d
	n.message = append(n.message[:0], message...)
	q.push(n)
}

// pop removes the oldest of q. It stays valid until the next keep.
func (t *table) pop(q *notes) *note {
	n := q.head
	if n == nil {
		return nil
	}
	if q.head = n.next; q.head == nil {
		q.tail = nil
	}
	n.next = t.unusedNotes
	t.unusedNotes = n
	return n
}

// drop removes the note of the peer's operation id from q, where there is one.
func (t *table) drop(q *notes, id uint64) {
	var before *note
	for n := q.head; n != nil; before, n = n, n.next {
		if n.id != id {
			continue
		}
		if before == nil {
			q.head = n.next
		} else {
			before.next = n.next
		}
		if q.tail == n {
			q.tail = before
		}
		n.next = t.unusedNotes
		t.unusedNotes = n
		return
	}
}
