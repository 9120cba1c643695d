package overmpi

import (
	"fmt"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/internal/match"
)

// arrival is a message that came before its receive was posted.
type arrival struct {
	index  uint64 // in arrivals.all
	from   int
	length int
	data   mem.Buffer // what there is of the message: in staging memory
	sender *op        // of a message to oneself

	// Where the data travel by themselves:
	wire       int
	number     uint64   // among those of its sender
	next, prev *arrival // in the list of its sender, until the data are asked for
	receiving  bool     // they are being received ahead, into data
	complete   bool     // they have been
	receiver   *op      // that came meanwhile
	unwanted   bool     // no receive wants them
}

// arrivals keeps arrivals for further use.
type arrivals struct {
	all    []*arrival
	unused []*arrival
}

func (s *arrivals) get() *arrival {
	n := len(s.unused)
	if n == 0 {
		a := &arrival{index: uint64(len(s.all))}
		s.all = append(s.all, a)
		return a
	}
	a := s.unused[n-1]
	s.unused = s.unused[:n-1]
	return a
}

func (s *arrivals) put(a *arrival) {
	*a = arrival{index: a.index}
	s.unused = append(s.unused, a)
}

// peer is what is known of another rank.
type peer struct {
	sent       uint64   // messages to it whose data have an MPI tag
	announced  uint64   // such messages from it
	head, tail *arrival // of them, those whose data have not been asked for, oldest first
}

func (p *peer) push(a *arrival) {
	a.prev = p.tail
	if p.tail != nil {
		p.tail.next = a
	} else {
		p.head = a
	}
	p.tail = a
}

func (p *peer) remove(a *arrival) {
	if a.prev != nil {
		a.prev.next = a.next
	} else {
		p.head = a.next
	}
	if a.next != nil {
		a.next.prev = a.prev
	} else {
		p.tail = a.prev
	}
	a.next, a.prev = nil, nil
}

func identity(from int, tag nbc.Tag) match.Identity { return match.Identity{Peer: from, Tag: tag} }

// makeRoom asks for the data of messages of p whose MPI tag message n has too:
// the library matches equal tags in order, so the older must be asked for first.
func (t *Transport) makeRoom(p *peer, n uint64) {
	for p.head != nil && t.wires.reused(p.head.number, n) {
		t.receiveAhead(p.head)
	}
}

// receiveAhead begins to receive the data of an arrival into staging memory.
func (t *Transport) receiveAhead(a *arrival) {
	t.peers[a.from].remove(a)
	a.data = t.staging.get(a.length)
	if err := t.data.Irecv(t.reqs, forAhead|a.index, a.data.Pointer(), a.length, a.from, a.wire); err != nil {
		t.fail(fmt.Errorf("overmpi: %w", err))
		return
	}
	a.receiving, t.asked = true, true
	t.active++
}

// aheadEnded takes the data of an arrival.
func (t *Transport) aheadEnded(i uint64, d mpi.Done) {
	a := t.arrivals.all[i]
	a.receiving = false
	t.active--
	o := a.receiver
	switch {
	case a.unwanted:
		t.staging.put(a.data)
		t.arrivals.put(a)
		return
	case d.Err == nil && d.Bytes == a.length:
		a.complete = true
	default:
		t.fail(fmt.Errorf("overmpi: rank %d announced a message of %d bytes, %d arrived (error: %w)", a.from, a.length, d.Bytes, d.Err))
		return
	}
	if o != nil {
		t.take(o, a)
	}
}

// claim brings a receive together with a message that came before it.
func (t *Transport) claim(o *op, a *arrival) {
	switch {
	case a.sender != nil:
		t.loopback(o, a)
	case a.receiving && a.length == o.n:
		a.receiver = o
	case a.receiving:
		a.unwanted = true
		t.end(o, t.mismatch(o, a.length))
	case a.complete || a.wire == 0:
		t.take(o, a)
	default:
		t.peers[a.from].remove(a)
		t.fetch(o, a.from, a.wire, a.length)
		t.arrivals.put(a)
	}
}

// take ends a receive with the data of an arrival, which are all there. A
// borrowing receive hands them out as they lie.
func (t *Transport) take(o *op, a *arrival) {
	switch {
	case a.length != o.n:
		t.staging.put(a.data)
		t.end(o, t.mismatch(o, a.length))
	case o.borrows:
		o.buf = a.data
		t.end(o, nil)
	default:
		t.deliver(o, mem.Bytes(a.data))
		t.staging.put(a.data)
	}
	t.arrivals.put(a)
}

// deliver ends a receive with a message that lies in memory of the transport.
func (t *Transport) deliver(o *op, message []byte) {
	switch {
	case len(message) != o.n:
		t.end(o, t.mismatch(o, len(message)))
		return
	case o.borrows:
		o.buf = t.staging.get(o.n)
	case o.buf.Space() != mem.Host && o.n > 0:
		t.end(o, fmt.Errorf("overmpi: rank %d sends %v from host memory, which rank %d expects in %s memory: receive it on the host and copy it",
			o.peer, o.tag, t.Rank(), o.buf.Space()))
		return
	}
	copy(mem.Bytes(o.buf), message)
	t.end(o, nil)
}

// fetch asks for the data of a message that meets the receive o.
func (t *Transport) fetch(o *op, from, wire, length int) {
	if length != o.n { // they must be received all the same, since the sender waits
		a := t.arrivals.get()
		a.from, a.wire, a.length, a.unwanted = from, wire, length, true
		t.peers[from].push(a)
		t.receiveAhead(a)
		t.end(o, t.mismatch(o, length))
		return
	}
	if o.borrows {
		o.buf = t.staging.get(o.n)
	}
	if err := t.data.Irecv(t.reqs, forData|o.index, o.buf.Pointer(), o.n, from, wire); err != nil {
		t.end(o, fmt.Errorf("overmpi: %w", err))
		return
	}
	t.asked = true
	o.parts++
}

func (t *Transport) mismatch(o *op, sent int) error {
	return fmt.Errorf("overmpi: %w: rank %d sent %d bytes where rank %d expects %d as %v: the ranks run different collectives or counts",
		nbc.ErrLength, o.peer, sent, t.Rank(), o.n, o.tag)
}

// loopback delivers a message from this rank to itself. They stay out of MPI,
// since Open MPI 4.1 cuts a message to oneself that is too long without a word.
func (t *Transport) loopback(o *op, a *arrival) {
	s := a.sender
	t.arrivals.put(a)
	if s.buf.Space() != mem.Host {
		t.end(o, fmt.Errorf("overmpi: rank %d sends itself %s memory; copy it on the device instead", t.Rank(), s.buf.Space()))
	} else {
		t.deliver(o, mem.Bytes(s.buf))
	}
	t.end(s, nil)
	t.rest.stir()
}
