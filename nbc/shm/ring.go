//go:build linux && (amd64 || arm64)

package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

const (
	shortRoom    = 32  // bytes of a message that lie in its descriptor, in place of id, addr and length
	inlineRoom   = 256 // of one that lie behind it
	slotsPerRing = 128

	// A message of up to blockRoom bytes that is longer than that lies in a block.
	// Larger ones are read where they are, and so are those of more than copyRoom in registered memory, where each rank has a
	// core and the sender waits anyway: to copy them costs more than to tell the sender that they have been read. (Two cores of an AMD
	// EPYC, Zen 4: with 2 KiB copies take less, with 4 KiB reading does.)
	blockRoom     = 4096
	copyRoom      = 2048
	blocksPerRing = 16

	publishEach = slotsPerRing / 4 // descriptors that the reader takes before it says so
	reasonRoom  = 1024             // bytes
	cacheLine   = 64
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
	taken  uint64 // atomically: how many descriptors the reader has said to have taken
	_      [cacheLine - 8]byte
	slots  [slotsPerRing]slot
	blocks [blocksPerRing][blockRoom]byte
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
type kind uint8

const (
	sends    kind = iota + 1 // a message waits: here it lies
	wants                    // a receive waits: put the message there
	done                     // the addressee's operation id has ended
	retracts                 // the receive id is not waiting any more; answer with done
	asks                     // the addressee's send id is to be copied to where the peer reaches it; length is the writer's receive
	copied                   // that has been done for the receive id
	helps                    // the addressee's operation id may copy too; length is the writer's operation
)

// place is where the bytes of a message are. In done it is how the operation
// ended.
type place uint16

const (
	inlined    place = iota // behind the descriptor, or in block addr of the ring
	registered              // at offset addr of the writer's arena
	private                 // at address addr of the writer's process
	enclosed                // in the descriptor, short bytes

	bothCopy place = 1 << 8 // in sends, besides: the two ranks may copy it together

	well      place = 0
	failed    place = 8 // the other side could not copy
	withdrawn place = 9 // the receive was retracted
)

// descriptor is what one rank tells another of an operation. With its number in the ring it fills
// a cache line.
type descriptor struct {
	comm                     uint64 // of the tag
	instance, message, print uint32 // likewise
	kind                     kind
	short                    uint8 // length of a message enclosed
	place                    place
	id                       uint64 // the operation: the writer's own; in done the reader's
	addr                     uint64
	length                   uint64 // of the writer's side, in bytes; see size
	_                        uint64 // an enclosed message takes these, too
}

var _ [cacheLine]byte = [unsafe.Sizeof(descriptor{}) + unsafe.Sizeof(slot{}.full)]byte{}

// about returns d with the tag given.
func (d descriptor) about(tag nbc.Tag) descriptor {
	d.setTag(tag)
	return d
}

func (d *descriptor) setTag(tag nbc.Tag) {
	d.comm, d.instance, d.message, d.print = tag.Comm, tag.Instance, tag.Message, tag.Fingerprint
}

func (d *descriptor) tag() nbc.Tag {
	return nbc.Tag{Comm: d.comm, Instance: d.instance, Message: d.message, Fingerprint: d.print}
}

// size returns how many bytes the message has.
func (d *descriptor) size() int {
	if d.place == enclosed {
		return int(d.short)
	}
	return int(d.length)
}

// lies returns where the message lies: inlined of one enclosed, too.
func (d *descriptor) lies() place {
	if d.place == enclosed {
		return inlined
	}
	return d.place &^ bothCopy
}

// room returns the room for a message in the descriptor of one that is sent inline,
// which needs neither id nor addr: then a few bytes travel in one cache line.
func (d *descriptor) room() *[shortRoom]byte {
	return (*[shortRoom]byte)(unsafe.Pointer(&d.id))
}

var _ [shortRoom]byte = [unsafe.Sizeof(descriptor{}) - unsafe.Offsetof(descriptor{}.id)]byte{}

// slot returns the place of position i.
func (r *ring) slot(i uint64) *slot { return &r.slots[i%slotsPerRing] }

// ready reports whether the descriptor at position i is there.
func (r *ring) ready(i uint64) bool { return atomic.LoadUint64(&r.slot(i).full) == i+1 }

// posting is a descriptor that found the ring full or, where op is not nil, the
// message of that operation, which ends with it.
type posting struct {
	d  descriptor
	op *op
}

// post hands d to the peer, now or, where its ring is full, later.
func (t *Transport) post(p *peer, d descriptor) {
	if p.backlog.Len() > 0 || !p.write(&d) {
		t.postpone(p, posting{d: d})
		return
	}
	wakePeer(p.header)
}

// postMessage hands the message of o, of at most blockRoom bytes, to its peer. o ends with it, now or later.
func (t *Transport) postMessage(o *op) {
	if p := o.peer; p.backlog.Len() > 0 || !p.writeMessage(o.e.tag, o.buf) {
		t.postpone(p, posting{op: o})
		return
	}
	wakePeer(o.peer.header)
	t.end(o, nil)
}

func (t *Transport) postpone(p *peer, q posting) {
	p.backlog.Push(q)
	t.backlogs++
}

// write writes d into the ring unless it is full.
func (p *peer) write(d *descriptor) bool {
	if p.full() {
		return false
	}
	s := p.out.slot(p.written)
	s.descriptor = *d
	p.publishSlot(s)
	return true
}

// writeMessage writes a message of at most blockRoom bytes, and what tells of it, into the ring unless
// that is full. All goes straight to its place: a descriptor that is put together elsewhere, or whose
// bytes are written twice, would be read again before it has left the processor's store
// buffer, which takes longer than all the rest.
func (p *peer) writeMessage(tag nbc.Tag, message mem.Buffer) bool {
	if p.full() {
		return false
	}
	s, n := p.out.slot(p.written), message.Len()
	s.setTag(tag)
	s.kind, s.short, s.place = sends, 0, inlined
	switch {
	case n > inlineRoom:
		k := p.boxed % blocksPerRing
		if p.taken < p.boxes[k] && !p.refresh(p.boxes[k]) {
			return false
		}
		copy(p.out.blocks[k][:], mem.Bytes(message))
		p.boxed++
		p.boxes[k] = p.written + 1
		s.addr, s.length = k, uint64(n)
	case n > shortRoom:
		copy(s.inline[:], mem.Bytes(message))
		s.length = uint64(n)
	default:
		s.short, s.place = uint8(n), enclosed
		if n > 0 {
			copy(s.room()[:], mem.Bytes(message))
		}
	}
	p.publishSlot(s)
	if n <= inlineRoom {
		p.takeNext(n)
	}
	return true
}

// takeNext has this core get the lines of the next slot that a message of n bytes will be written to, while its rank waits
// for something else: the peer, which has read what was in it, still has them in its cache.
func (p *peer) takeNext(n int) {
	if p.full() {
		return
	}
	s := p.out.slot(p.written)
	s.kind = 0
	if n <= shortRoom {
		return
	}
	for i := 0; i < n; i += cacheLine {
		s.inline[i] = 0
	}
}

// publishSlot shows the peer what was written to s, the next slot of its ring.
func (p *peer) publishSlot(s *slot) {
	p.written++
	atomic.StoreUint64(&s.full, p.written)
}

// full reports whether there is no room for a descriptor in the ring.
func (p *peer) full() bool {
	return p.written-p.taken == slotsPerRing && !p.refresh(1+p.written-slotsPerRing)
}

// refresh looks how many descriptors the peer has taken, and reports whether
// that is at least n.
func (p *peer) refresh(n uint64) bool {
	p.taken = atomic.LoadUint64(&p.out.taken)
	return p.taken >= n
}

// inlineOf returns the message that came with the descriptor in s, nil for one
// that lies elsewhere.
func (p *peer) inlineOf(s *slot) []byte {
	n := s.size()
	switch {
	case s.kind != sends:
		return nil
	case s.place == enclosed && n <= shortRoom:
		return s.room()[:n]
	case s.place != inlined:
		return nil
	case n <= inlineRoom:
		return s.inline[:n]
	case n <= blockRoom:
		return p.in.blocks[s.addr%blocksPerRing][:n]
	}
	return nil
}

// next goes on to the next descriptor of the peer. Whoever writes the ring is
// told of a few at a time, and of blocks, of which there are fewer, at once.
func (p *peer) next() {
	s := p.in.slot(p.read)
	block := s.place == inlined && s.length > inlineRoom
	p.read++
	if block || p.read-p.published >= publishEach {
		p.publish()
	}
}

func (p *peer) publish() {
	p.published = p.read
	atomic.StoreUint64(&p.in.taken, p.read)
}

// flush posts what waits for room in rings.
func (t *Transport) flush() {
	for _, p := range t.peers {
		n := 0
		for _, q := range p.backlog.All() {
			if q.op == nil {
				if !p.write(&q.d) {
					break
				}
			} else {
				if !p.writeMessage(q.op.e.tag, q.op.buf) {
					break
				}
				t.end(q.op, nil)
			}
			n++
		}
		if n > 0 {
			p.backlog.Drop(n)
			t.backlogs -= n
			wakePeer(p.header)
			t.moved = true
		}
	}
}

// drain takes what the peers have written.
func (t *Transport) drain() {
	for _, p := range t.peers {
		t.drainOf(p)
	}
}

// drainOf takes what one peer has written.
func (t *Transport) drainOf(p *peer) {
	before := p.read
	for range slotsPerRing {
		if !p.in.ready(p.read) {
			break
		}
		t.take(p, p.in.slot(p.read))
		p.next()
	}
	t.moved = t.moved || p.read != before
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

// layout is where things lie in a rank's memfd: the header, the claims of its sends,
// a ring from every other rank of the node, the arena.
type layout struct{ claims, rings, arena, size int }

func newLayout(localSize, room int) layout {
	var a layout
	a.claims = int(unsafe.Sizeof(header{}))
	a.rings = a.claims + int(unsafe.Sizeof([claimsPerRank]claim{}))
	a.arena = roundUp(a.rings+localSize*int(unsafe.Sizeof(ring{})), hugePage)
	a.size = a.arena + roundUp(room, hugePage)
	return a
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// claimsAt returns the claims in the area at base.
func (a layout) claimsAt(base unsafe.Pointer) *[claimsPerRank]claim {
	return (*[claimsPerRank]claim)(unsafe.Add(base, a.claims))
}

func headerAt(base unsafe.Pointer) *header { return (*header)(base) }

// ringAt returns the ring into the area at base from the local rank given.
func (a layout) ringAt(base unsafe.Pointer, from int) *ring {
	return (*ring)(unsafe.Add(base, a.rings+from*int(unsafe.Sizeof(ring{}))))
}
