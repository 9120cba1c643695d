// Package staging is the transport for messages from and to the memory of a GPU, over any other
// transport, which sees host memory alone.
//
//	open := func() (nbc.Transport, error) {
//		inner, err := world.Open(rank)()
//		if err != nil {
//			return nil, err
//		}
//		return staging.New(inner, accelerator, staging.Options{}), nil
//	}
//
// A message out of device memory is copied down into a slot, which is pinned host memory, and sent
// from there. One into device memory arrives in a slot and is copied up; a borrowed one, which is to be
// added there, is copied into device memory of the transport's own. Copies are begun, and Poll looks whether they have
// ended, so that chunk i+1 of a collective is copied while chunk i travels and chunk i-1
// is added; and so are the pieces into which a large message is cut. A message of host memory goes to the inner transport as it is. The two ends
// of a message that is not cut need not lie in one memory; messages of one identity (nbc.Tag) lie in one memory.
//
// It owns the slots and the order of copies. It must not know what is sent, nor how the inner transport moves it.
//
// # Direct
//
// With ranks for which SetDirect says so, messages of device memory are handed to the inner transport as they are, which
// takes them (nbc.PartCarrier): a CUDA-aware MPI library moves them by ways of its own. What is borrowed arrives in device memory of this transport's own.
// Nothing is copied, and nothing cut, whatever memory the other end lies in.
//
// # Slots
//
// A slot has a power of two of bytes and holds a message, or a piece of one; one that is given back is kept for the next of
// its size. Those in use for messages that leave are bounded (Options.Ring), and likewise those for messages that
// are expected. Neither bound can stop a collective for good:
//
//   - A send without a slot waits for one, in the order of sends. Other ranks may need a later message before
//     they take the earlier ones, since ranks may start requests in different orders; so where no slot has
//     been given back for nbc.LinkPatience, one more is taken.
//   - A receive without a slot is posted all the same: the inner transport keeps the message, as it does
//     for what is borrowed. When it has come it is copied by the CPU into a slot of a small reserve, which each
//     message holds for its copy upwards alone.
//
// What is larger than a bound has a slot when no other is in use. Memory is allocated when it is first needed, which takes
// a driver longer than what is asked for later.
//
// # Pieces
//
// A message of device memory with more than Options.Piece bytes is cut into pieces, as few as there may be, of equal sizes but for the
// last: both ends know them from its length. Each has a slot and is copied, travels and is copied up by itself, several at
// once, in up to a quarter of the ring; so a message of any size takes no more pinned memory than that. One that is borrowed
// is lent when the last piece is up.
//
// The first piece is sent and received as what is not cut: under the message's identity, in the order of messages. A trailer in it says how long
// the message is and what the sender calls it, by which name its other pieces go, so that no two messages' pieces are taken for each other,
// whatever overtakes what. The receiver posts them when it has read that, as it has room, and one in any case; the sender sends
// them as it has room, and one at least if late. So a message of which one piece moves always goes on.
//
// The host's memory is not cut, since it is read where it lies and a receiver borrows it whole; and neither end of a message knows in which memory
// the other lies. So both ends of one that is cut lie in device memory, as an engine's do (nbc.Carrier). If they do not, or have
// different lengths, the receiver gets an error that wraps nbc.ErrLength; who has sent such a message waits until the receiver's engine tells it.
//
// # Failure
//
// A copy that fails ends its operation with the GPU's error, and so the engine. When that fails, for whatever reason, copies
// under way end before its requests do (nbc.Drainer), and none begins any more. When the transport is
// closed, slots from which other ranks may still read are left to the driver.
package staging

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/internal/fifo"
	"github.com/scaffe/scaffe/nbc/internal/over"
)

// DefaultRing is Options.Ring where that is 0: sixteen pieces.
const DefaultRing = 64 << 20

// reserved is the part of a ring that the reserve for messages without a slot is.
const reserved = 4

// Options of a transport; the zero value is good.
type Options struct {
	// Ring bounds the bytes of the slots in use for messages that leave, and of those for
	// messages that are expected; 0 means DefaultRing.
	Ring int
	// Piece is how many bytes of a message are staged together at most, a power of two, to which it is rounded up; 0 means DefaultPiece.
	// All ranks have the same.
	Piece int
}

// Transport is nbc.Transport over another one. It has the optional abilities of that, and is an nbc.Carrier.
type Transport struct {
	over.Transport
	inner  nbc.Transport
	copies nbc.Accelerator
	space  mem.Space

	direct   []bool // by rank: messages with it are the inner transport's
	piece    int
	ops      []*op // by the number in their tokens
	unused   []*op
	active   int        // ops under way
	cutting  []*message // of which pieces are still to be begun, but not the first, in their order
	numbers  uint32     // of messages that leave and are cut
	expected int        // bytes of the collective whose operations begin
	lent     map[nbc.Token]mem.Buffer
	batch    [64]nbc.Completion

	slots, device    pool
	out, in, reserve ring
	waiting          fifo.Queue[*op] // sends without a slot
	leaving          fifo.Queue[*op] // sends that are being copied, in their order
	come             fifo.Queue[*op] // receives whose messages the inner transport keeps
	ended            fifo.Queue[nbc.Completion]
	moved            time.Time // when a slot for a send was last given back, or taken
	closed, drained  bool
}

var (
	_ nbc.Transport      = (*Transport)(nil)
	_ nbc.Carrier        = (*Transport)(nil)
	_ nbc.Notifier       = (*Transport)(nil)
	_ nbc.Allocator      = (*Transport)(nil)
	_ nbc.Topology       = (*Transport)(nil)
	_ nbc.Expecter       = (*Transport)(nil)
	_ nbc.Waiter         = (*Transport)(nil)
	_ nbc.Drainer        = (*Transport)(nil)
	_ nbc.ThreadMigrator = (*Transport)(nil)
)

// New lays the transport over inner, for the memory of an accelerator that nobody else gives
// work to: two over one GPU do not know of each other's work. The result owns both.
func New(inner nbc.Transport, copies nbc.Accelerator, o Options) nbc.Transport {
	if o.Ring <= 0 {
		o.Ring = DefaultRing
	}
	if o.Piece <= 0 {
		o.Piece = DefaultPiece
	}
	t := &Transport{
		Transport: over.New(inner), inner: inner, copies: copies, space: copies.Space(), piece: 1 << class(o.Piece), lent: map[nbc.Token]mem.Buffer{},
		out: ring{bound: o.Ring}, in: ring{bound: o.Ring}, reserve: ring{bound: o.Ring / reserved},
	}
	t.slots = pool{alloc: copies.AllocHost, free: copies.FreeHost, bound: 2*o.Ring + o.Ring/reserved}
	t.device = pool{alloc: copies.Alloc, free: copies.Free}
	return t.complete()
}

// SetDirect says, by rank, whether messages of device memory are handed to the inner transport as they are, which has to take them. Both
// ends of messages do so alike, with none under way.
func (t *Transport) SetDirect(with []bool) error {
	if len(with) != t.Size() {
		return fmt.Errorf("staging: which messages are direct, of %d ranks: want those of %d", len(with), t.Size())
	}
	for r, direct := range with {
		if direct && !t.CarriesWith(r, t.space) {
			return fmt.Errorf("staging: the transport below takes no %v memory for messages with rank %d", t.space, r)
		}
	}
	t.direct = slices.Clone(with)
	return nil
}

// passes reports whether messages with a rank, of memory in the space, are the inner transport's as they are.
func (t *Transport) passes(rank int, s mem.Space) bool {
	return s == mem.Host || s == t.space && rank >= 0 && rank < len(t.direct) && t.direct[rank]
}

// Expect says how many bytes the collective has whose operations come next.
func (t *Transport) Expect(bytes int) {
	t.expected = bytes
	t.Transport.Expect(bytes)
}

// check reports why this rank cannot exchange memory b with a peer.
func (t *Transport) check(peer int, s mem.Space) error {
	switch {
	case !t.Carries(s):
		return fmt.Errorf("staging: %v memory: want %v or %v memory", s, mem.Host, t.space)
	case peer < 0 || peer >= t.Size():
		return fmt.Errorf("staging: rank %d of %d", peer, t.Size())
	case t.closed:
		return errors.New("staging: the transport is closed")
	case t.drained:
		return errors.New("staging: the engine has failed")
	}
	return nil
}

// Carries reports whether messages may lie in memory of the space.
func (t *Transport) Carries(s mem.Space) bool { return s == mem.Host || s == t.space }

// Send begins to send src to rank to.
func (t *Transport) Send(tok nbc.Token, to int, tag nbc.Tag, src mem.Buffer) error {
	if t.passes(to, src.Space()) {
		return t.inner.Send(tok, to, tag, src)
	}
	if err := t.check(to, src.Space()); err != nil {
		return err
	}
	o := t.begin(sends, tok, to, tag, src.Len(), src)
	if t.waiting.Len() == 0 {
		t.moved = time.Now()
	}
	t.waiting.Push(o)
	t.send()
	return nil
}

// Recv begins to receive into dst.
func (t *Transport) Recv(tok nbc.Token, from int, tag nbc.Tag, dst mem.Buffer) error {
	if t.passes(from, dst.Space()) {
		return t.inner.Recv(tok, from, tag, dst)
	}
	if err := t.check(from, dst.Space()); err != nil {
		return err
	}
	return t.receive(t.begin(receives, tok, from, tag, dst.Len(), dst))
}

// RecvBorrow begins to receive n bytes into host memory.
func (t *Transport) RecvBorrow(tok nbc.Token, from int, tag nbc.Tag, n int) error {
	return t.inner.RecvBorrow(tok, from, tag, n)
}

// RecvBorrowIn begins to receive n bytes into memory of the transport's own, in the space given.
func (t *Transport) RecvBorrowIn(s mem.Space, tok nbc.Token, from int, tag nbc.Tag, n int) error {
	if s == mem.Host || n == 0 {
		return t.inner.RecvBorrow(tok, from, tag, n)
	}
	if err := t.check(from, s); err != nil {
		return err
	}
	if n < 0 {
		return fmt.Errorf("staging: receive of %d bytes", n)
	}
	if t.passes(from, s) {
		return t.borrow(t.add(borrows, tok, from, tag, n))
	}
	return t.receive(t.begin(borrows, tok, from, tag, n, mem.Buffer{}))
}

// borrow has the inner transport receive a message into memory that is lent with it.
func (t *Transport) borrow(o *op) error {
	b, err := t.device.get(o.n)
	if err == nil {
		o.direct, o.memory = true, b
		if err = t.inner.Recv(o.token(), o.peer, o.tag, b.Slice(0, o.n)); err != nil {
			t.device.put(b)
		}
	}
	if err != nil {
		t.drop(o)
	}
	return err
}

// borrowed takes the end of that.
func (t *Transport) borrowed(o *op, err error) {
	if err != nil {
		t.device.put(o.memory)
	} else {
		t.lent[o.tok] = o.memory
		o.memory = o.memory.Slice(0, o.n)
	}
	t.end(o, err)
}

// Release gives borrowed memory back.
func (t *Transport) Release(tok nbc.Token) {
	b, device := t.lent[tok]
	if !device {
		t.inner.Release(tok)
		return
	}
	delete(t.lent, tok)
	t.device.put(b)
}

// send copies down what there are slots for, and sends what has been copied, in order.
func (t *Transport) send() {
	for t.waiting.Len() > 0 {
		o := t.waiting.All()[0]
		if !t.out.room(o.n) && !t.late() {
			break
		}
		t.waiting.Drop(1)
		m := o.whole
		if t.down(o); m != nil {
			t.goesOn(m)
		}
	}
	for t.leaving.Len() > 0 && t.leaving.All()[0].copied {
		o := t.leaving.All()[0]
		t.leaving.Drop(1)
		err := o.failed
		if err == nil {
			t.Transport.Expect(o.expected)
			err = t.inner.Send(o.token(), o.peer, o.tag, o.host())
			t.Transport.Expect(t.expected)
		}
		if err != nil {
			t.end(o, err)
		}
	}
}

// late reports whether no slot for a send has been given back for so long that one more is taken.
func (t *Transport) late() bool {
	if time.Since(t.moved) < nbc.LinkPatience {
		return false
	}
	t.moved = time.Now()
	return true
}

// down takes a slot for o, and begins to copy what it sends there.
func (t *Transport) down(o *op) {
	if t.take(o, &t.out) {
		o.seal()
		t.leaving.Push(o)
		t.copy(o, o.slot.Slice(0, o.body()), o.memory)
	}
}

// receive posts a receive: into a slot where there is one.
func (t *Transport) receive(o *op) (err error) {
	if o.keeps = !t.in.room(o.n); o.keeps {
		err = t.inner.RecvBorrow(o.token(), o.peer, o.tag, o.n)
	} else if o.slot, err = t.slots.get(o.n); err == nil {
		t.in.take(o)
		err = t.inner.Recv(o.token(), o.peer, o.tag, o.host())
	}
	if err != nil {
		t.giveBack(o)
		t.drop(o)
	}
	return err
}

// take gives o a slot, which counts for r, and reports whether it has: if not, o has ended.
func (t *Transport) take(o *op, r *ring) bool {
	var err error
	if o.slot, err = t.slots.get(o.n); err != nil {
		t.end(o, err)
		return false
	}
	r.take(o)
	return true
}

// giveBack gives the slot of o back, which nothing uses any more.
func (t *Transport) giveBack(o *op) {
	if o.of == nil {
		return
	}
	if o.of == &t.out {
		t.moved = time.Now()
	}
	o.of.give(o)
	t.slots.put(o.slot)
	o.slot = mem.Buffer{}
}

// arrived takes what the inner transport says of o.
func (t *Transport) arrived(o *op, c nbc.Completion) {
	if o.direct {
		t.borrowed(o, c.Err)
		return
	}
	if c.Err != nil || o.kind == sends {
		t.giveBack(o)
		t.end(o, o.why(c.Err))
		return
	}
	o.data = c.Data
	err := t.open(o)
	switch {
	case err != nil:
		if o.keeps {
			t.inner.Release(o.token())
		}
		t.giveBack(o)
		t.end(o, err)
	case o.keeps:
		t.come.Push(o)
	default:
		t.up(o)
	}
}

// fetch copies messages that the inner transport keeps into slots of the reserve.
func (t *Transport) fetch() {
	for t.come.Len() > 0 {
		o := t.come.All()[0]
		if !t.reserve.room(o.n) {
			return
		}
		t.come.Drop(1)
		if t.take(o, &t.reserve) {
			t.copy(o, o.host(), o.data)
		}
	}
}

// up copies the message of o out of its slot.
func (t *Transport) up(o *op) {
	if o.kind == borrows {
		if err := t.lend(o); err != nil {
			t.end(o, err)
			return
		}
	}
	t.copy(o, o.memory, o.slot.Slice(0, o.body()))
}

// copy begins a copy for o.
func (t *Transport) copy(o *op, dst, src mem.Buffer) {
	done, err := t.copies.Copy(o.token(), dst, src)
	switch {
	case err != nil:
		t.fail(o, err)
	case done:
		t.hasCopied(o)
	default:
		o.copying = true
	}
}

// hasCopied goes on with o, whose copy has ended.
func (t *Transport) hasCopied(o *op) {
	o.copying = false
	switch {
	case o.kind == sends:
		o.copied = true // send goes on
	case o.keeps:
		o.keeps, o.data = false, mem.Buffer{}
		t.inner.Release(o.token())
		t.up(o)
	default:
		t.giveBack(o)
		t.end(o, nil)
	}
}

// fail ends o, whose copy has failed: a send when its turn comes. What the GPU may still touch stays as it is.
func (t *Transport) fail(o *op, err error) {
	o.copying = false
	if err = fmt.Errorf("staging: %w", err); o.kind == sends {
		o.copied, o.failed = true, err
		return
	}
	t.end(o, err)
}

// end reports the end of o, or has its message take it.
func (t *Transport) end(o *op, err error) {
	if m := o.whole; m != nil {
		t.hasPiece(m, o.body(), err)
	} else {
		t.report(o.kind, o.tok, o.memory, err)
	}
	t.drop(o)
}

// report reports the end of a message.
func (t *Transport) report(k kind, tok nbc.Token, memory mem.Buffer, err error) {
	c := nbc.Completion{Token: tok, Err: err}
	if k == borrows && err == nil {
		c.Data = memory
	}
	t.ended.Push(c)
}

// Poll advances everything and stores what ended in done.
func (t *Transport) Poll(done []nbc.Completion) (int, error) {
	n, err := t.inner.Poll(done)
	if err != nil || t.drained {
		return 0, err
	}
	if t.active == 0 && len(t.cutting) == 0 && t.ended.Len() == 0 {
		return n, nil
	}
	kept := 0
	for _, c := range done[:n] {
		if o := t.own(c.Token); o != nil {
			t.arrived(o, c)
			continue
		}
		done[kept] = c
		kept++
	}
	t.look()
	t.fetch()
	t.proceed()
	t.send()
	k := copy(done[kept:], t.ended.All())
	t.ended.Drop(k)
	return kept + k, nil
}

// look takes the copies that have ended.
func (t *Transport) look() {
	if !t.copies.Busy() {
		return
	}
	n, err := t.copies.Poll(t.batch[:])
	for _, c := range t.batch[:n] {
		switch o := t.own(c.Token); {
		case o == nil || !o.copying: // of an op that has failed
		case c.Err != nil:
			t.fail(o, c.Err)
		default:
			t.hasCopied(o)
		}
	}
	if err == nil {
		return
	}
	for _, o := range t.ops { // the GPU has failed, and with it all that was begun
		if o.copying {
			t.fail(o, err)
		}
	}
}

// Park lets the thread rest, but not for long with copies under way, of whose end nobody tells.
func (t *Transport) Park(d time.Duration) {
	switch {
	case t.drained:
	case t.ended.Len() > 0:
		return
	case t.active > 0 && t.copies.Busy():
		d = min(d, nbc.AcceleratorRest)
	case t.waiting.Len()+len(t.cutting) > 0:
		d = min(d, nbc.LinkPatience)
	}
	t.inner.Park(d)
}

// Drain returns when the GPU touches no message any more, and drops what is under way.
func (t *Transport) Drain() {
	t.drained = true
	t.copies.Drain()
	t.Transport.Drain()
}

// Abort tells the other ranks.
func (t *Transport) Abort(ctx context.Context, reason string) error {
	return t.inner.Abort(ctx, reason)
}

// Close closes the inner transport and gives everything back but slots that others may still use.
func (t *Transport) Close() error {
	if t.closed {
		return nil
	}
	t.closed = true
	t.copies.Drain()
	err := t.inner.Close()
	for _, b := range t.lent {
		t.device.put(b)
	}
	clear(t.lent)
	t.device.close()
	t.slots.close()
	return errors.Join(err, t.copies.Close())
}
