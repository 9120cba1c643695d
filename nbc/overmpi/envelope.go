package overmpi

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/nbc"
)

// Every message has an envelope. See the package comment.
const (
	envelopeTag = 0 // the tags from 1 on are for data

	headerLen = 32
	// inlineRoom is how many bytes lie in an envelope at most. Over networks the
	// libraries send so much at once, without asking the receiver. To copy them twice
	// takes a few microseconds, a second message, and a receive for it, tens of them
	// where ranks share cores.
	inlineRoom   = 32 << 10
	envelopeRoom = headerLen + inlineRoom

	// envelopesPosted is how many receives wait for envelopes.
	envelopesPosted = 8
)

// header is what an envelope says.
type header struct {
	tag    nbc.Tag
	wire   int // the MPI tag of the data; 0: it follows in the envelope
	length int // bytes of the message
}

// put writes h to b, which has headerLen bytes.
func (h header) put(b []byte) {
	binary.LittleEndian.PutUint64(b[0:], h.tag.Comm)
	binary.LittleEndian.PutUint32(b[8:], h.tag.Instance)
	binary.LittleEndian.PutUint32(b[12:], h.tag.Message)
	binary.LittleEndian.PutUint32(b[16:], h.tag.Fingerprint)
	binary.LittleEndian.PutUint32(b[20:], uint32(h.wire))
	binary.LittleEndian.PutUint64(b[24:], uint64(h.length))
}

// parseHeader reads the header of an envelope; false where it is none.
func parseHeader(b []byte) (header, bool) {
	if len(b) < headerLen {
		return header{}, false
	}
	h := header{
		tag: nbc.Tag{
			Comm:        binary.LittleEndian.Uint64(b[0:]),
			Instance:    binary.LittleEndian.Uint32(b[8:]),
			Message:     binary.LittleEndian.Uint32(b[12:]),
			Fingerprint: binary.LittleEndian.Uint32(b[16:]),
		},
		wire:   int(binary.LittleEndian.Uint32(b[20:])),
		length: int(binary.LittleEndian.Uint64(b[24:])),
	}
	inline := len(b) - headerLen
	return h, h.length >= 0 && (h.wire > 0 && inline == 0 || h.wire == 0 && inline == h.length)
}

// wires counts the messages of a pair of ranks whose data have an MPI tag. Both
// ends count alike, since envelopes arrive in order.
type wires struct{ bound uint64 }

// tag returns the MPI tag of the data of message number n.
func (w wires) tag(n uint64) int { return int(n%w.bound) + 1 }

// reused reports whether message n has the tag of message older, or a later one
// before it had.
func (w wires) reused(older, n uint64) bool { return n-older >= w.bound }

// standing is the ring of receives that wait for envelopes. The library fills
// them in the order in which they were posted, but may report them in another;
// they are handled and posted again in that order, so that the envelopes of a
// rank keep theirs.
type standing struct {
	room  mem.Buffer
	slots [envelopesPosted]standingSlot
	next  int // to be handled
}

type standingSlot struct {
	posted, arrived bool
	from, bytes     int
}

func (s *standing) memory(i int) mem.Buffer { return s.room.Slice(i*envelopeRoom, envelopeRoom) }

// expectEnvelopes posts all receives for envelopes.
func (t *Transport) expectEnvelopes() error {
	t.standing.room = mem.Alloc(envelopesPosted * envelopeRoom)
	for i := range envelopesPosted {
		if err := t.expectEnvelope(i); err != nil {
			return err
		}
	}
	return nil
}

func (t *Transport) expectEnvelope(i int) error {
	if err := t.data.Irecv(t.reqs, forStanding|uint64(i), t.standing.memory(i).Pointer(), envelopeRoom, mpi.AnySource, envelopeTag); err != nil {
		return err
	}
	t.standing.slots[i] = standingSlot{posted: true}
	return nil
}

// envelopeEnded takes the end of the receive i of the ring, and handles what is
// next in order.
func (t *Transport) envelopeEnded(i uint64, d mpi.Done) {
	s := &t.standing.slots[i]
	s.posted = false
	if t.closing { // canceled, or an envelope that is of no interest any more
		return
	}
	if d.Err != nil {
		t.fail(fmt.Errorf("overmpi: receiving envelopes: %w", d.Err))
		return
	}
	s.arrived, s.from, s.bytes = true, d.Source, d.Bytes
	for t.fault == nil {
		i := t.standing.next
		if s = &t.standing.slots[i]; !s.arrived {
			return
		}
		t.open(s.from, mem.Bytes(t.standing.memory(i))[:s.bytes])
		if err := t.expectEnvelope(i); err != nil {
			t.fail(fmt.Errorf("overmpi: %w", err))
			return
		}
		t.standing.next = (i + 1) % envelopesPosted
	}
}

// cancelEnvelopes ends the receives for envelopes.
func (t *Transport) cancelEnvelopes() error {
	for i, s := range t.standing.slots {
		if !s.posted {
			continue
		}
		if err := t.reqs.Cancel(forStanding | uint64(i)); err != nil {
			return err
		}
	}
	return nil
}

// any reports whether a receive is posted.
func (s *standing) any() bool {
	return slices.ContainsFunc(s.slots[:], func(s standingSlot) bool { return s.posted })
}

// open handles an envelope. b is valid until it returns.
func (t *Transport) open(from int, b []byte) {
	h, ok := parseHeader(b)
	peer := &t.peers[from]
	if ok && h.wire > 0 {
		ok = h.wire == t.wires.tag(peer.announced)
		peer.announced++
	}
	if !ok {
		t.fail(fmt.Errorf("overmpi: rank %d sent an envelope that this one cannot read: all ranks must run one program with one SCAFFE_TAG_BOUND", from))
		return
	}
	if h.wire > 0 {
		t.makeRoom(peer, peer.announced-1)
	}
	id := identity(from, h.tag)
	switch o, waits := t.waiting.TakeReceive(id); {
	case waits && h.wire == 0:
		t.deliver(o, b[headerLen:])
	case waits:
		t.fetch(o, from, h.wire, h.length)
	default:
		a := t.arrivals.get()
		a.from, a.length, a.wire = from, h.length, h.wire
		if h.wire > 0 {
			a.number = peer.announced - 1
			peer.push(a)
		} else if h.length > 0 {
			a.data = t.staging.get(h.length)
			copy(mem.Bytes(a.data), b[headerLen:])
		}
		t.waiting.KeepMessage(id, a)
	}
}

// packed returns an envelope with the message in it.
func (t *Transport) packed(tag nbc.Tag, message mem.Buffer) mem.Buffer {
	e := t.staging.get(headerLen + message.Len())
	b := mem.Bytes(e)
	header{tag, 0, message.Len()}.put(b)
	if message.Len() > 0 {
		copy(b[headerLen:], mem.Bytes(message))
	}
	return e
}

// sendEnvelope begins to send operation o's envelope, with the message in it
// where wire is 0.
func (t *Transport) sendEnvelope(o *op, wire int) error {
	if wire == 0 {
		o.envelope = t.packed(o.tag, o.buf)
	} else {
		o.envelope = t.staging.get(headerLen)
		header{o.tag, wire, o.n}.put(mem.Bytes(o.envelope))
	}
	ended, err := t.data.IsendTest(t.reqs, forEnvelope|o.index, o.envelope.Pointer(), o.envelope.Len(), o.peer, envelopeTag)
	if err != nil || ended {
		t.staging.put(o.envelope)
	} else {
		o.parts++
	}
	if ended && o.parts == 0 {
		t.end(o, nil)
	}
	return err
}
