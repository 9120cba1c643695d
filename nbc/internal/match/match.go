// Package match brings messages together with the receives that expect them,
// by their whole identity: the peer and the nbc.Tag.
//
// A Table keeps whichever of the two came first. Where several are equal, the
// oldest goes first, as nbc.Tag promises. It allocates nothing once it has
// grown to its largest. It has no lock of its own.
//
// It owns the queues. It must not know how messages travel: what a receive and
// a message are is up to the transport.
package match

import "github.com/scaffe/scaffe/nbc"

// Identity is what a message and its receive have in common.
type Identity struct {
	Peer int // the sender's rank
	Tag  nbc.Tag
}

// Table holds receives of type R without a message and messages of type M
// without a receive. The zero value is empty.
type Table[R, M any] struct {
	buckets  []*entry[R, M] // a power of two of them
	count    int
	entries  *entry[R, M] // unused
	receives *node[R]     // unused
	messages *node[M]     // unused
}

// entry is what waits under one identity: receives or messages, never both.
type entry[R, M any] struct {
	id       Identity
	receives queue[R]
	messages queue[M]
	next     *entry[R, M] // in its bucket
}

const minBuckets = 64

// KeepReceive lets r wait for a message. TakeMessage found none.
func (t *Table[R, M]) KeepReceive(id Identity, r R) { t.get(id).receives.push(r, &t.receives) }

// KeepMessage lets m wait for a receive. TakeReceive found none.
func (t *Table[R, M]) KeepMessage(id Identity, m M) { t.get(id).messages.push(m, &t.messages) }

// TakeReceive removes the oldest receive under id; false where none waits.
func (t *Table[R, M]) TakeReceive(id Identity) (R, bool) {
	e := t.find(id)
	if e == nil || e.receives.head == nil {
		var none R
		return none, false
	}
	r := e.receives.pop(&t.receives)
	if e.receives.head == nil {
		t.drop(e)
	}
	return r, true
}

// TakeMessage removes the oldest message under id; false where none waits.
func (t *Table[R, M]) TakeMessage(id Identity) (M, bool) {
	e := t.find(id)
	if e == nil || e.messages.head == nil {
		var none M
		return none, false
	}
	m := e.messages.pop(&t.messages)
	if e.messages.head == nil {
		t.drop(e)
	}
	return m, true
}

// SeeMessage returns the oldest message under id and leaves it there; false where none
// waits.
func (t *Table[R, M]) SeeMessage(id Identity) (M, bool) {
	e := t.find(id)
	if e == nil || e.messages.head == nil {
		var none M
		return none, false
	}
	return e.messages.head.value, true
}

// Len returns under how many identities something waits.
func (t *Table[R, M]) Len() int { return t.count }

func bucket(id *Identity, n int) int {
	x := uint64(id.Tag.Message)*0x9e3779b97f4a7c15 ^ uint64(id.Tag.Instance)*0xc2b2ae3d27d4eb4f ^
		id.Tag.Comm*0x165667b19e3779f9 ^ uint64(id.Tag.Fingerprint)*0x85ebca77c2b2ae63 ^ uint64(id.Peer)*0x27d4eb2f165667c5
	return int((x ^ x>>29) * 0xbf58476d1ce4e5b9 >> 33 & uint64(n-1))
}

func (t *Table[R, M]) find(id Identity) *entry[R, M] {
	if t.count == 0 {
		return nil
	}
	e := t.buckets[bucket(&id, len(t.buckets))]
	for e != nil && e.id != id {
		e = e.next
	}
	return e
}

// get returns the entry of id, a new one where there is none.
func (t *Table[R, M]) get(id Identity) *entry[R, M] {
	if e := t.find(id); e != nil {
		return e
	}
	if t.count >= len(t.buckets) {
		t.grow()
	}
	e := t.entries
	if e == nil {
		e = &entry[R, M]{}
	} else {
		t.entries = e.next
	}
	e.id = id
	b := &t.buckets[bucket(&id, len(t.buckets))]
	e.next, *b = *b, e
	t.count++
	return e
}

// drop gives back an entry in which nothing waits.
func (t *Table[R, M]) drop(e *entry[R, M]) {
	b := &t.buckets[bucket(&e.id, len(t.buckets))]
	for *b != e {
		b = &(*b).next
	}
	*b = e.next
	e.next, t.entries = t.entries, e
	t.count--
}

func (t *Table[R, M]) grow() {
	old := t.buckets
	t.buckets = make([]*entry[R, M], max(minBuckets, 2*len(old)))
	for _, e := range old {
		for e != nil {
			next := e.next
			b := &t.buckets[bucket(&e.id, len(t.buckets))]
			e.next, *b = *b, e
			e = next
		}
	}
}

// queue holds what waits under one identity, oldest first.
type queue[T any] struct{ head, tail *node[T] }

type node[T any] struct {
	value T
	next  *node[T]
}

func (q *queue[T]) push(v T, unused **node[T]) {
	n := *unused
	if n == nil {
		n = &node[T]{}
	} else {
		*unused = n.next
	}
	n.value, n.next = v, nil
	if q.head == nil {
		q.head = n
	} else {
		q.tail.next = n
	}
	q.tail = n
}

func (q *queue[T]) pop(unused **node[T]) T {
	n := q.head
	v := n.value
	q.head = n.next
	*n = node[T]{next: *unused} // keeps nothing alive
	*unused = n
	return v
}
