//go:build linux && (amd64 || arm64)

package shm

import (
	"slices"
	"sync/atomic"
)

// A large message is copied by both of its ranks, piece by piece: whoever is
// free takes the next one. So two cores move it where one would wait for the
// other, and neither waits for one that is busy.

const (
	// shareFrom is the least message that two ranks share, pieceBytes the least that one
	// takes at a time: some microseconds of copying, which outweigh the 0.1 or
	// 0.2 that two cores need to agree on who copies what.
	shareFrom  = 128 << 10
	pieceBytes = 64 << 10

	// mostAtOnce is how many pieces one takes at a time where the kernel copies, of which a
	// call costs as much as half a piece.
	mostAtOnce = copyChunk / pieceBytes

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

// take returns the first of the next of the count pieces of the message of the send id,
// and how many they are: at most the number given; 0 where all are taken.
func (c *claim) take(id uint64, count, most int, sending bool) (first, taken int) {
	for {
		w := atomic.LoadUint64(&c.word)
		front, back := int(w>>byReceiver&mostTaken), int(w>>bySender&mostTaken)
		if w>>aGeneration<<aGeneration != generation(id) || front+back >= count {
			return 0, 0
		}
		taken = min(most, count-front-back)
		next, first := w+uint64(taken)<<byReceiver, front
		if sending {
			next, first = w+uint64(taken)<<bySender, count-back-taken
		}
		if atomic.CompareAndSwapUint64(&c.word, w, next) {
			return first, taken
		}
	}
}

// copied notes that so many pieces are copied, and reports whether the last one is among
// them.
func (c *claim) copied(id uint64, count, pieces int) (last bool) {
	w := atomic.AddUint64(&c.word, uint64(pieces)<<whole)
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
	o.exchanged = !o.sending && t.sendsTo(o.peer)
}

// sendsTo reports whether a message to the peer, which it copies, is under way: while it does, it does not help with one of
// its own.
func (t *Transport) sendsTo(p *peer) bool {
	return slices.ContainsFunc(t.ops, func(o *op) bool { return o.peer == p && o.sending && o.shared })
}

// copyPieces copies the next pieces of o, one or of some most bytes, and returns their
// size; 0 where the peer has taken the last ones and will say when they are copied.
func (t *Transport) copyPieces(o *op, most int) (size int, ended bool, err error) {
	count, size := pieces(o.n)
	atOnce := 1
	if o.other.place == private {
		if atOnce = min(most/size, mostAtOnce); !o.exchanged { // both end at about the same time
			atOnce = min(atOnce, count/4)
		}
		atOnce = max(1, atOnce)
	}
	first, taken := o.claim.take(o.send, count, atOnce, o.sending)
	if taken == 0 {
		return 0, false, nil
	}
	at := first * size
	size = min(taken*size, o.n-at)
	if err := t.copy(o, at, size); err != nil {
		o.claim.stop(o.send)
		return size, true, err
	}
	return size, o.claim.copied(o.send, count, taken), nil
}
