package staging

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// DefaultPiece is Options.Piece where that is 0: so much is copied in several times what it takes to begin a copy.
const DefaultPiece = 4 << 20

// share is the part of a ring that one message may have, so that others have room beside it.
const share = 4

// comm is the communicator of pieces but the first, which no other messages have.
const comm = nbc.SetupComm - 2

// A first piece has a trailer: a word, the message's length, and its number at its sender. Its bytes are odd in number, so that hardly any
// message that is not cut has the length of a first piece.
const (
	trailerBytes = 21
	trailerRoom  = 64 // for it in a slot; pieces begin at multiples of that
	trailerWord  = 0x5ca0ffe5ca0ffe01
)

// message is one of device memory that is cut. Each of its pieces is an op.
type message struct {
	kind     kind
	tok      nbc.Token
	peer     int
	tag      nbc.Tag
	n        int
	memory   mem.Buffer // of the device, if there is some yet
	expected int
	size     int    // of its pieces, but for the last
	number   uint32 // at its sender
	pieces   uint32 // that have begun
	begun    int    // the bytes of these
	left     int    // bytes of pieces that have not ended
	active   int    // pieces under way
	failed   bool
}

// cuts reports whether a message of n bytes of device memory is cut.
func (t *Transport) cuts(n int) bool { return n > t.piece }

// sizeOf returns how many bytes each piece of a message of n has, but for the last, which may have fewer: that of the fewest equal pieces
// that leave room for the trailer.
func (t *Transport) sizeOf(n int) int {
	most := t.piece - trailerRoom
	pieces := (n + most - 1) / most
	size := (n + pieces - 1) / pieces
	return (size + trailerRoom - 1) &^ (trailerRoom - 1)
}

// cut returns a message that is cut.
func (t *Transport) cut(k kind, tok nbc.Token, peer int, tag nbc.Tag, n int, memory mem.Buffer) *message {
	m := &message{kind: k, tok: tok, peer: peer, tag: tag, n: n, memory: memory, expected: t.expected, size: t.sizeOf(n), left: n}
	if k == sends {
		t.numbers++
		m.number = t.numbers
	}
	return m
}

// next returns the next piece of m.
func (t *Transport) next(m *message) *op {
	tag, n, trailer := m.tag, min(m.size, m.n-m.begun), trailerBytes
	if m.pieces > 0 {
		tag, trailer = nbc.Tag{Comm: comm, Instance: m.number, Message: m.pieces, Fingerprint: m.tag.Fingerprint}, 0
	}
	o := t.add(m.kind, m.tok, m.peer, tag, n+trailer)
	o.whole, o.at, o.trailer, o.expected = m, m.begun, trailer, m.expected
	if m.memory.Len() > 0 {
		o.memory = m.memory.Slice(o.at, n)
	}
	m.pieces++
	m.begun += n
	m.active++
	return o
}

// seal writes the trailer of o, of a message that leaves, into its slot, if it is to have one.
func (o *op) seal() {
	if o.trailer == 0 {
		return
	}
	b := mem.Bytes(o.host())[o.body():]
	binary.LittleEndian.PutUint64(b, trailerWord)
	binary.LittleEndian.PutUint64(b[8:], uint64(o.whole.n))
	binary.LittleEndian.PutUint32(b[16:], o.whole.number)
	b[20] = 0
}

// open reads the trailer of o, which has come, if it is a first piece. Its message goes on then.
func (t *Transport) open(o *op) error {
	m, data := o.whole, o.data
	switch {
	case m != nil && m.failed:
		return errors.New("staging: another piece has failed") // and was reported
	case o.trailer == 0:
		return nil
	case !o.keeps:
		data = o.host()
	}
	b := mem.Bytes(data)[o.body():]
	if n := binary.LittleEndian.Uint64(b[8:]); binary.LittleEndian.Uint64(b) != trailerWord || n != uint64(m.n) {
		return fmt.Errorf("staging: %w: rank %d sent another message than one of the %d bytes that rank %d expects as %v", nbc.ErrLength, m.peer, m.n, t.Rank(), m.tag)
	}
	m.number = binary.LittleEndian.Uint32(b[16:])
	t.goesOn(m)
	return nil
}

// why says of what message o is a piece, of which the inner transport's error does not tell.
func (o *op) why(err error) error {
	m := o.whole
	switch {
	case m == nil || err == nil:
		return err
	case o.trailer > 0 && errors.Is(err, nbc.ErrLength):
		return fmt.Errorf("staging: the first piece of a message of %d bytes, both ends of which must have that length and lie in a GPU's memory: %w", m.n, err)
	}
	return fmt.Errorf("staging: a piece of %v: %w", m.tag, err)
}

// goesOn begins what can be begun of m, whose first piece has: the others when there is room.
func (t *Transport) goesOn(m *message) {
	t.grow(m)
	if m.begun < m.n && !m.failed {
		t.cutting = append(t.cutting, m)
	}
}

// proceed does so with all messages, the oldest first.
func (t *Transport) proceed() {
	kept := t.cutting[:0]
	for _, m := range t.cutting {
		if t.grow(m); m.begun < m.n && !m.failed {
			kept = append(kept, m)
		}
	}
	clear(t.cutting[len(kept):])
	t.cutting = kept
}

// grow begins pieces of m while there is room. One piece of a message that leaves always may be under way, if late; one of a message that is expected
// always is.
func (t *Transport) grow(m *message) {
	r := &t.in
	if m.kind == sends {
		r = &t.out
	}
	for m.begun < m.n && !m.failed {
		room := r.room(min(m.size, m.n-m.begun))
		switch {
		case m.active > 0 && (!room || (m.active+1)*t.piece > r.bound/share):
			return
		case !room && m.kind == sends && !t.late():
			return
		}
		o := t.next(m)
		if m.kind == sends {
			t.down(o)
			continue
		}
		t.Transport.Expect(m.expected)
		if err := t.receive(o); err != nil {
			t.hasPiece(m, 0, err)
		}
		t.Transport.Expect(t.expected)
	}
}

// hasPiece takes the end of a piece of m, of n bytes. The first that fails ends the message, and the others end for nobody.
func (t *Transport) hasPiece(m *message, n int, err error) {
	m.active--
	m.left -= n
	if m.failed || err == nil && m.left > 0 {
		return
	}
	m.failed = err != nil
	t.report(m.kind, m.tok, m.memory, err)
}

// lend gives o, which is borrowed, memory of the device: its part of that of its message, if it is a piece of one.
func (t *Transport) lend(o *op) (err error) {
	m := o.whole
	switch {
	case m == nil:
		o.memory, err = t.lendable(o.tok, o.n)
		return err
	case m.memory.Len() == 0:
		if m.memory, err = t.lendable(m.tok, m.n); err != nil {
			return err
		}
	}
	o.memory = m.memory.Slice(o.at, o.body())
	return nil
}

// lendable returns memory of the device that is lent under a token.
func (t *Transport) lendable(tok nbc.Token, n int) (mem.Buffer, error) {
	b, err := t.device.get(n)
	if err != nil {
		return b, err
	}
	t.lent[tok] = b
	return b.Slice(0, n), nil
}
