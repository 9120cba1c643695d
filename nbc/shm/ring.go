//go:build linux && (amd64 || arm64)

package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

const (
	inlineRoom   = 256 // bytes of a message that lie in its descriptor
	slotsPerRing = 128
	reasonRoom   = 1024 // bytes
	cacheLine    = 64
)

// header begins a rank's control area. Only what a comment says so is written
// after set-up.
type header struct {
	magic uint64 // of this layout
	nonce uint64 // of this transport: read by peers to see that they can
	_     [cacheLine - 16]byte

	asleep uint32 // atomically: the futex on which the rank sleeps, 1 while it does
	heard  uint32 // atomically: 1 + the rank that gave up, written by it
	left   uint32 // atomically: 1 once the rank has closed
	_      [cacheLine - 12]byte

	reasonLen uint32 // why this rank gave up, written before others' heard
	reason    [reasonRoom]byte
	_         [cacheLine - 4]byte
}

// ring carries descriptors from one rank to another. It lies in the reader's
// control area and begins as zeroes.
type ring struct {
	taken uint64 // atomically: how many descriptors the reader has taken
	_     [cacheLine - 8]byte
	slots [slotsPerRing]slot
}

// slot is a place for a descriptor.
type slot struct {
	full uint64 // atomically: 1 + the position of the descriptor in it
	descriptor
	inline [inlineRoom]byte
}

// The message begins on a cache line of its own.
var _ [cacheLine]byte = [unsafe.Offsetof(slot{}.inline)]byte{}

// kind is what a descriptor says.
type kind uint32

const (
	sends    kind = iota + 1 // a message waits: here it lies
	wants                    // a receive waits: put the message there
	done                     // the addressee's operation id has ended
	retracts                 // the receive id is not waiting any more; answer with done
)

// place is where the bytes of a message are. In done it is how the operation
// ended.
type place uint32

const (
	inlined    place = iota // behind the descriptor
	registered              // at offset addr of the writer's arena
	private                 // at address addr of the writer's process

	well      place = 0
	failed    place = 3 // the other side could not copy
	withdrawn place = 4 // the receive was retracted
)

// descriptor is what one rank tells another of an operation.
type descriptor struct {
	kind   kind
	place  place
	tag    nbc.Tag
	id     uint64 // the operation: the writer's own; in done the reader's
	addr   uint64
	length uint64 // of the writer's side
}

// slot returns the place of position i.
func (r *ring) slot(i uint64) *slot { return &r.slots[i%slotsPerRing] }

// ready reports whether the descriptor at position i is there.
func (r *ring) ready(i uint64) bool { return atomic.LoadUint64(&r.slot(i).full) == i+1 }

// posting is a descriptor that found the ring full; op, unless nil, is the
// operation whose message goes with it and ends with it.
type posting struct {
	d  descriptor
	op *op
}

// post hands d, with the payload of an inlined message, to the peer. It reports
// whether that is done; otherwise it is done later (and o settled then).
func (t *Transport) post(p *peer, d descriptor, payload mem.Buffer, o *op) bool {
	if len(p.backlog) > 0 || !p.write(d, payload) {
		p.backlog = append(p.backlog, posting{d, o})
		t.backlogs++
		return false
	}
	wakePeer(p.header)
	return true
}

// write writes into the ring unless it is full.
func (p *peer) write(d descriptor, payload mem.Buffer) bool {
	if p.written-p.taken == slotsPerRing {
		p.taken = atomic.LoadUint64(&p.out.taken)
		if p.written-p.taken == slotsPerRing {
			return false
		}
	}
	s := p.out.slot(p.written)
	s.descriptor = d
	if payload.Len() > 0 {
		copy(s.inline[:], mem.Bytes(payload))
	}
	p.written++
	atomic.StoreUint64(&s.full, p.written)
	return true
}

// flush posts what waits for room in rings.
func (t *Transport) flush() {
	for _, p := range t.peers {
		n := 0
		for _, q := range p.backlog {
			var payload mem.Buffer
			if q.op != nil {
				payload = q.op.buf
			}
			if !p.write(q.d, payload) {
				break
			}
			if q.op != nil {
				t.end(q.op, nil)
			}
			n++
		}
		if n > 0 {
			clear(p.backlog[:n])
			p.backlog = p.backlog[:copy(p.backlog, p.backlog[n:])]
			t.backlogs -= n
			wakePeer(p.header)
			t.moved = true
		}
	}
}

// drain takes what the peers have written.
func (t *Transport) drain() {
	for _, p := range t.peers {
		before := p.read
		for range slotsPerRing {
			if !p.in.ready(p.read) {
				break
			}
			t.take(p, p.in.slot(p.read))
			p.read++
		}
		if p.read != before {
			atomic.StoreUint64(&p.in.taken, p.read)
			t.moved = true
		}
	}
}

// anything reports whether a peer has written something.
func (t *Transport) anything() bool {
	for _, p := range t.peers {
		if p.in.ready(p.read) {
			return true
		}
	}
	return atomic.LoadUint32(&t.own.heard) != 0
}

// layout is where things lie in a rank's memfd: the header, a ring from every
// other rank of the node, the arena.
type layout struct{ rings, arena, size int }

func newLayout(localSize, room int) layout {
	var a layout
	a.rings = int(unsafe.Sizeof(header{}))
	a.arena = roundUp(a.rings+localSize*int(unsafe.Sizeof(ring{})), hugePage)
	a.size = a.arena + roundUp(room, hugePage)
	return a
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

func headerAt(base unsafe.Pointer) *header { return (*header)(base) }

// ringAt returns the ring into the area at base from the local rank given.
func (a layout) ringAt(base unsafe.Pointer, from int) *ring {
	return (*ring)(unsafe.Add(base, a.rings+from*int(unsafe.Sizeof(ring{}))))
}
