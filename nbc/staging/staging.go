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
// is added. A message of host memory goes to the inner transport as it is. The two ends of a message need not
// lie in one memory; messages of one identity (nbc.Tag) lie in one memory.
//
// It owns the slots and the order of copies. It must not know what is sent, nor how the inner transport moves it.
//
// # Slots
//
// A slot has a power of two of bytes and holds a whole message; one that is given back is kept for the next message of
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
// A message larger than a bound has a slot when no other is in use. Memory is allocated when it is first needed, which takes
// a driver longer than what is asked for later.
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
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/internal/fifo"
	"github.com/scaffe/scaffe/nbc/internal/over"
)

// DefaultRing is Options.Ring where that is 0: four of the largest chunks.
const DefaultRing = 64 << 20

// reserved is the part of a ring that the reserve for messages without a slot is.
const reserved = 4

// Options of a transport; the zero value is good.
type Options struct {
	// Ring bounds the bytes of the slots in use for messages that leave, and of those for
	// messages that are expected; 0 means DefaultRing.
	Ring int
}

// Transport is nbc.Transport over another one. It has the optional abilities of that, and is an nbc.Carrier.
type Transport struct {
	over.Transport
	inner  nbc.Transport
	copies nbc.Accelerator
	space  mem.Space

	ops    []*op // by the number in their tokens
	unused []*op
	active int // ops under way
	lent   map[nbc.Token]mem.Buffer
	batch  [64]nbc.Completion

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
	t := &Transport{
		Transport: over.New(inner), inner: inner, copies: copies, space: copies.Space(), lent: map[nbc.Token]mem.Buffer{},
		out: ring{bound: o.Ring}, in: ring{bound: o.Ring}, reserve: ring{bound: o.Ring / reserved},
	}
	t.slots = pool{alloc: copies.AllocHost, free: copies.FreeHost, bound: 2*o.Ring + o.Ring/reserved}
	t.device = pool{alloc: copies.Alloc, free: copies.Free}
	return t.complete()
}

// kind is what an op does.
type kind uint8

const (
	sends kind = iota
	receives
	borrows
)

// op is an operation on device memory.
type op struct {
	number  int // in its token
	kind    kind
	tok     nbc.Token // the caller's
	peer    int
	tag     nbc.Tag
	n       int
	memory  mem.Buffer // of the device: the caller's, or what is lent to it
	slot    mem.Buffer
	of      *ring      // that the slot counts for
	data    mem.Buffer // what the inner transport has lent
	keeps   bool       // the inner transport keeps the message, and then data
	copying bool
	copied  bool  // of a send: into its slot
	failed  error // of a send: why it was not
}

// ours marks the tokens that the inner transport is given for an op. An engine's begin with the number of
// a request under way, which never comes to that.
const ours = nbc.Token(1<<32-2) << 32

func (o *op) token() nbc.Token { return ours | nbc.Token(o.number) }

// own returns the op that a token names; nil for a caller's.
func (t *Transport) own(tok nbc.Token) *op {
	if tok>>32 != ours>>32 {
		return nil
	}
	return t.ops[uint32(tok)]
}

// add returns an op of the kind and identity given.
func (t *Transport) add(k kind, tok nbc.Token, peer int, tag nbc.Tag, n int) *op {
	if last := len(t.unused) - 1; last < 0 {
		o := &op{number: len(t.ops)}
		t.ops = append(t.ops, o)
		t.unused = append(t.unused, o)
	}
	last := len(t.unused) - 1
	o := t.unused[last]
	t.unused = t.unused[:last]
	*o = op{number: o.number, kind: k, tok: tok, peer: peer, tag: tag, n: n}
	t.active++
	return o
}

// drop forgets an op.
func (t *Transport) drop(o *op) {
	*o = op{number: o.number}
	t.unused = append(t.unused, o)
	t.active--
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
	if src.Space() == mem.Host {
		return t.inner.Send(tok, to, tag, src)
	}
	if err := t.check(to, src.Space()); err != nil {
		return err
	}
	o := t.add(sends, tok, to, tag, src.Len())
	o.memory = src
	if t.waiting.Len() == 0 {
		t.moved = time.Now()
	}
	t.waiting.Push(o)
	t.send()
	return nil
}

// Recv begins to receive into dst.
func (t *Transport) Recv(tok nbc.Token, from int, tag nbc.Tag, dst mem.Buffer) error {
	if dst.Space() == mem.Host {
		return t.inner.Recv(tok, from, tag, dst)
	}
	if err := t.check(from, dst.Space()); err != nil {
		return err
	}
	o := t.add(receives, tok, from, tag, dst.Len())
	o.memory = dst
	return t.receive(o)
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
	return t.receive(t.add(borrows, tok, from, tag, n))
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
		if !t.out.room(o.n) {
			if time.Since(t.moved) < nbc.LinkPatience {
				break
			}
			t.moved = time.Now()
		}
		t.waiting.Drop(1)
		if t.take(o, &t.out) {
			t.leaving.Push(o)
			t.copy(o, o.host(), o.memory)
		}
	}
	for t.leaving.Len() > 0 && t.leaving.All()[0].copied {
		o := t.leaving.All()[0]
		t.leaving.Drop(1)
		err := o.failed
		if err == nil {
			err = t.inner.Send(o.token(), o.peer, o.tag, o.host())
		}
		if err != nil {
			t.end(o, err)
		}
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

// host returns the part of the slot that the message has.
func (o *op) host() mem.Buffer { return o.slot.Slice(0, o.n) }

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
	switch {
	case c.Err != nil || o.kind == sends:
		t.giveBack(o)
		t.end(o, c.Err)
	case o.keeps:
		o.data = c.Data
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
		b, err := t.device.get(o.n)
		if err != nil {
			t.end(o, err)
			return
		}
		t.lent[o.tok] = b
		o.memory = b.Slice(0, o.n)
	}
	t.copy(o, o.memory, o.host())
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

// end reports the end of o.
func (t *Transport) end(o *op, err error) {
	c := nbc.Completion{Token: o.tok, Err: err}
	if o.kind == borrows && err == nil {
		c.Data = o.memory
	}
	t.ended.Push(c)
	t.drop(o)
}

// Poll advances everything and stores what ended in done.
func (t *Transport) Poll(done []nbc.Completion) (int, error) {
	n, err := t.inner.Poll(done)
	if err != nil || t.drained {
		return 0, err
	}
	if t.active == 0 && t.ended.Len() == 0 {
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
	case t.waiting.Len() > 0:
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
