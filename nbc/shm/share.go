//go:build linux && (amd64 || arm64)

package shm

import (
	"sync/atomic"
)

// A large message is copied by both of its ranks, piece by piece: whoever is
// free takes the next one. So two cores move it where one would wait for the
// other, and neither waits for one that is busy.

const (
	// shareFrom is the least message that two ranks share, pieceBytes what one
	// takes at a time: some microseconds of copying, which outweigh the 0.1 or
	// 0.2 that two cores need to agree on who copies what.
	shareFrom  = 128 << 10
	pieceBytes = 64 << 10

	// claimsPerRank is how many of a rank's sends can be shared at a time;
	// further ones have one copier.
	claimsPerRank = 256

	mostPieces = 1<<10 - 1
)

// claim is how far the two copiers of a message are: the receiver goes from its
// beginning, the sender from its end, so that a part that is sent again and again
// stays in the cache of one core. It lies in the sender's control area, at the
// place of its operation's index.
type claim struct {
	word uint64 // atomically, from the lowest bit: pieces taken from the beginning, from the end, copied; the message's generation
	_    [cacheLine - 8]byte
}

// Where the numbers begin in a claim's word, and the greatest of the first two.
const (
	byReceiver  = 0
	bySender    = 10
	whole       = 20
	aGeneration = 32
	mostTaken   = 1<<10 - 1
)

// generation tells the uses of an operation's index apart.
func generation(id uint64) uint64 { return id >> 32 << aGeneration }

// pieces returns how many pieces a message of n bytes has, and how large they are,
// but for the last.
func pieces(n int) (count, size int) {
	for size = pieceBytes; (n+size-1)/size > mostPieces; {
		size *= 2
	}
	return (n + size - 1) / size, size
}

// begin makes c that of the message of the send id.
func (c *claim) begin(id uint64) { atomic.StoreUint64(&c.word, generation(id)) }

// take returns the next of the count pieces of the message of the send id; false
// where all are taken.
func (c *claim) take(id uint64, count int, sending bool) (piece int, ok bool) {
	for {
		w := atomic.LoadUint64(&c.word)
		front, back := int(w>>byReceiver&mostTaken), int(w>>bySender&mostTaken)
		if w>>aGeneration<<aGeneration != generation(id) || front+back >= count {
			return 0, false
		}
		next, piece := w+1<<byReceiver, front
		if sending {
			next, piece = w+1<<bySender, count-1-back
		}
		if atomic.CompareAndSwapUint64(&c.word, w, next) {
			return piece, true
		}
	}
}

// copied notes that a piece is copied, and reports whether it was the last one.
func (c *claim) copied(id uint64, count int) (last bool) {
	w := atomic.AddUint64(&c.word, 1<<whole)
	return w>>aGeneration<<aGeneration == generation(id) && int(w>>whole&(1<<(aGeneration-whole)-1)) == count
}

// stop lets nobody take further pieces of a message that cannot be copied.
func (c *claim) stop(id uint64) {
	for {
		w := atomic.LoadUint64(&c.word)
		if w>>aGeneration<<aGeneration != generation(id) || atomic.CompareAndSwapUint64(&c.word, w, w|mostTaken<<byReceiver|mostTaken<<bySender) {
			return
		}
	}
}

// decide says whether the message of the send o is to be copied by both of its
// ranks.
func (t *Transport) decide(o *op) {
	i := o.id & (1<<32 - 1)
	o.shared = t.shares && o.n >= shareFrom && i < claimsPerRank
	if o.shared {
		t.claims[i].begin(o.id)
	}
}

// offer lets the peer, whose operation o has met, copy too: it is told where this
// rank's memory is, if it can reach that.
func (t *Transport) offer(o *op) {
	d := descriptor{kind: helps, id: o.other.id, length: o.id}
	off, ok := t.arena.find(o.buf)
	switch {
	case ok:
		d.place, d.addr = registered, uint64(off)
	case o.peer.vm:
		d.place, d.addr = private, uint64(uintptr(o.buf.Pointer()))
	default:
		return
	}
	t.post(o.peer, d)
}

// helped lets this rank copy the message of o too, as the peer offers by d.
func (t *Transport) helped(o *op, d *descriptor) {
	other := *d
	other.id, other.length = d.length, uint64(o.n)
	if !o.sending {
		o.shared = true
		if o.queued { // it has met its message
			o.e.recvs.remove(o)
			o.queued = false
		}
	}
	t.join(o, &other)
}

// join lets this rank copy the message of o together with the peer, whose side
// of it d describes.
func (t *Transport) join(o *op, d *descriptor) {
	if !o.shared || int(d.length) != o.n || o.err != nil {
		return
	}
	o.other = *d
	t.share(o)
	t.work = append(t.work, o)
}

// share finds the claim of o, which has met its other side.
func (t *Transport) share(o *op) {
	claims := t.claims
	o.send = o.id
	if !o.sending {
		claims, o.send = o.peer.claims, o.other.id
	}
	o.claim = &claims[o.send%claimsPerRank]
}

// copyPiece copies one piece of o, and returns its size; 0 where the peer has taken
// the last ones and will say when they are copied.
func (t *Transport) copyPiece(o *op) (size int, ended bool, err error) {
	count, size := pieces(o.n)
	i, ok := o.claim.take(o.send, count, o.sending)
	if !ok {
		return 0, false, nil
	}
	at := i * size
	size = min(size, o.n-at)
	if err := t.copy(o, at, size); err != nil {
		o.claim.stop(o.send)
		return size, true, err
	}
	return size, o.claim.copied(o.send, count), nil
}
