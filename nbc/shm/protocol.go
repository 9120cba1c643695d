//go:build linux && (amd64 || arm64)

package shm

import (
	"fmt"
	"unsafe"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// begin returns a new operation.
func (t *Transport) begin(tok nbc.Token, p *peer, tag nbc.Tag, b mem.Buffer, n int) *op {
	if len(t.unused) == 0 {
		t.unused = append(t.unused, len(t.ops))
		t.ops = append(t.ops, &op{id: uint64(len(t.ops))})
	}
	o := t.ops[t.unused[len(t.unused)-1]]
	t.unused = t.unused[:len(t.unused)-1]
	*o = op{id: o.id + 1<<32, tok: tok, peer: p, buf: b, n: n, total: max(n, t.expected), e: t.table.get(p, tag)}
	o.e.uses++
	t.active++
	return o
}

// lookup returns the operation a peer speaks of, nil where there is none.
func (t *Transport) lookup(p *peer, id uint64) *op {
	i := id & (1<<32 - 1)
	if i >= uint64(len(t.ops)) || t.ops[i].id != id || t.ops[i].peer != p {
		return nil
	}
	return t.ops[i]
}

// end reports o and forgets it, but for the memory a borrowing receive has
// lent.
func (t *Transport) end(o *op, err error) {
	if o.eager {
		t.endEager(o)
		return
	}
	c := nbc.Completion{Token: o.tok, Err: err}
	if o.asked { // a borrower may keep what it has; only others' reading is bounded
		o.asked = false
		t.asked -= o.n
		t.askMore()
	}
	if o.borrows && err == nil {
		c.Data = o.buf
		t.ended = append(t.ended, c)
		t.lent[o.tok] = o
		t.active-- // waits for its owner, not for a peer
		if o.other.place != registered {
			t.settle(o)
		}
		return
	}
	t.ended = append(t.ended, c)
	t.active--
	t.forget(o)
}

func (t *Transport) forget(o *op) {
	if o.staged {
		t.arena.unstage(o.buf)
	}
	if o.copy != nil {
		t.unstage(o.copy)
	}
	t.settle(o)
	*o = op{id: o.id}
	t.unused = append(t.unused, int(o.id&(1<<32-1)))
}

// settle takes o out of its entry: nothing of its tag depends on it any more.
func (t *Transport) settle(o *op) {
	e := o.e
	if e == nil {
		return
	}
	if o.queued {
		q := &e.recvs
		if o.sending {
			q = &e.sends
		}
		q.remove(o)
		o.queued = false
	}
	if !o.sending && !o.told {
		e.untold--
	}
	o.e = nil
	e.uses--
	t.table.tidy(e)
}

// send begins a send to a peer of this node.
func (t *Transport) send(tok nbc.Token, p *peer, tag nbc.Tag, src mem.Buffer) error {
	o := t.begin(tok, p, tag, src, src.Len())
	o.sending = true
	t.decide(o)
	if w := t.table.pop(&o.e.wanted); w != nil {
		if place, ok := p.at(&w.descriptor); int(w.length) != o.n || w.place == registered && ok && place.Same(src) { // it is there already
			t.answer(p, w.id, o.n, well)
			t.end(o, nil)
			return nil
		}
		o.other = w.descriptor
		if _, ok := t.arena.find(src); !ok {
			p.asks = false
		}
		if o.shared {
			t.share(o)
			t.offer(o)
		}
		t.enqueue(o)
		return nil
	}
	if o.n <= blockRoom {
		t.postMessage(o)
		return nil
	}
	d := descriptor{kind: sends, id: o.id, length: uint64(o.n)}.about(tag)
	if err := t.locate(o, &d); err != nil {
		t.active--
		t.forget(o)
		return err
	}
	if o.shared {
		d.place |= bothCopy
	}
	o.queued = true
	o.e.sends.push(o)
	t.post(p, d)
	return nil
}

// locate says in d where o's memory is. Of a small message that the peer does not
// share it makes a copy at once; of others the peer may ask for one.
func (t *Transport) locate(o *op, d *descriptor) error {
	off, ok := t.arena.find(o.buf)
	if !ok {
		d.place, d.addr = private, uint64(uintptr(o.buf.Pointer()))
		o.copy = t.staging(o.buf, o.eager)
		if !t.copiesAtOnce(o) {
			return nil
		}
		if err := t.fill(o.copy); err != nil {
			return err
		}
		o.buf = o.copy.to
		off, _ = t.arena.find(o.buf)
	}
	d.place, d.addr = registered, uint64(off)
	return nil
}

// receive begins a receive from a peer of this node.
func (t *Transport) receive(tok nbc.Token, p *peer, tag nbc.Tag, dst mem.Buffer, n int, borrows bool) {
	o := t.begin(tok, p, tag, dst, n)
	o.borrows = borrows
	e := o.e
	e.untold++
	if a := t.table.pop(&e.arrived); a != nil {
		t.meet(o, &a.descriptor, a.message)
		return
	}
	o.queued = true
	e.recvs.push(o)
	off, ok := t.arena.find(dst)
	if borrows || n <= blockRoom || e.untold > 1 || !ok && (n <= eagerCopy || !t.reaches(p)) {
		return
	}
	d := descriptor{kind: wants, place: private, id: o.id, addr: uint64(uintptr(dst.Pointer())), length: uint64(n)}.about(tag)
	if ok {
		d.place, d.addr = registered, uint64(off)
	}
	o.told = true
	e.untold--
	t.post(p, d)
}

// answer tells a peer that its operation id has ended.
func (t *Transport) answer(p *peer, id uint64, length int, how place) {
	t.post(p, descriptor{kind: done, place: how, id: id, length: uint64(length)})
}

// take handles the descriptor in s.
func (t *Transport) take(p *peer, s *slot) {
	d := &s.descriptor
	switch d.kind {
	case sends:
		e := t.table.get(p, d.tag())
		if o := e.recvs.head; o != nil {
			e.recvs.remove(o)
			o.queued = false
			t.meet(o, d, p.inlineOf(s))
			return
		}
		t.table.keep(&e.arrived, d, p.inlineOf(s))
	case wants:
		e := t.table.get(p, d.tag())
		if o := e.sends.head; o != nil { // they cross: the receiver gets, or both do
			e.sends.remove(o)
			o.queued = false
			p.asks = p.asks && o.copy == nil
			if o.copy != nil && o.buf.Same(o.copy.of) && !t.reaches(p) && int(d.length) == o.n {
				o.other = *d
				t.enqueue(o) // the receiver cannot get it: see meet
			} else {
				t.join(o, d)
			}
			return
		}
		t.table.keep(&e.wanted, d, nil)
	case helps:
		if o := t.lookup(p, d.id); o != nil { // otherwise the writer has copied all by itself
			t.helped(o, d)
		}
	case asks:
		t.answerAsk(p, d)
	case copied:
		t.hasCopy(p, d)
	case done:
		t.done(p, d)
	case retracts:
		e := t.table.get(p, d.tag())
		t.table.drop(&e.wanted, d.id)
		t.table.tidy(e)
		if !t.putting(p, d.id) { // otherwise the answer follows
			t.answer(p, d.id, int(d.length), withdrawn)
		}
	default:
		t.broken(p, fmt.Sprintf("a descriptor of unknown kind %d", d.kind))
	}
}

// done ends the operation of which the peer says so.
func (t *Transport) done(p *peer, d *descriptor) {
	o := t.lookup(p, d.id)
	if o != nil && o.shared {
		t.unlist(o)
	}
	switch {
	case o == nil && d.place == withdrawn: // it had ended meanwhile
	case o == nil:
		t.broken(p, "the end of an operation that is not under way")
	case o.err != nil:
		t.end(o, o.err)
	case o.sending:
		t.end(o, nil)
	case int(d.length) != o.n:
		t.end(o, t.mismatch(o, int(d.length)))
	case d.place == failed:
		t.end(o, fmt.Errorf("shm: rank %d could not write the message into the memory of rank %d", p.rank, t.Rank()))
	default:
		t.end(o, nil)
	}
}

// meet brings a receive together with the message's descriptor, and with the message where that came with it. By where it lies:
//
//	inlined, in the ring         copied now, to memory of the transport's for who borrows
//	registered, mapped by all    a borrower is lent it in place; else it is copied in its turn, by both ends where that pays
//	private, the sender's own    read through the kernel, now or in its turn; where this rank cannot, or should not, the sender
//	                             copies it to where both reach, or puts it where the receiver's own question, which has
//	                             crossed the descriptor, says
func (t *Transport) meet(o *op, d *descriptor, message []byte) {
	p, place := o.peer, d.lies()
	switch {
	case d.size() != o.n:
		t.refuse(o, d)
	case place == inlined && len(message) != o.n:
		t.broken(p, fmt.Sprintf("a message of %d bytes in its ring", d.size()))
	case place == inlined:
		if o.borrows && o.n > o.buf.Len() {
			var err error
			if o.buf, err = t.arena.stage(o.n); err != nil {
				t.end(o, err)
				return
			}
			o.staged = true
		}
		copy(mem.Bytes(o.buf), message)
		t.end(o, nil)
	case place == registered && o.borrows:
		src, ok := p.at(d)
		if !ok {
			t.broken(p, "a message beyond its memory")
			return
		}
		o.buf, o.other = src, *d
		o.other.place = place
		t.end(o, nil)
	case place == private && o.told && !t.reaches(p): // they cross, and the sender puts
		o.other = *d
	case place == private && t.reads(o):
		o.other = *d
		o.other.place = place
		t.read(o)
	case place == private && (o.borrows || !t.reaches(p)):
		o.other = *d
		t.ask(o)
	default:
		o.other = *d
		o.other.place = place
		if o.shared = d.place&bothCopy != 0; o.shared {
			t.share(o)
			if !o.told { // otherwise the sender joins by itself
				t.offer(o)
			}
		}
		t.enqueue(o)
	}
}

// refuse ends a receive whose message has another length.
func (t *Transport) refuse(o *op, d *descriptor) {
	err := t.mismatch(o, d.size())
	if d.lies() != inlined {
		t.answer(o.peer, d.id, o.n, well)
	} else if o.told {
		// The sender, which is finished with its message, still has this
		// receive's descriptor and might take it for another message's.
		o.err = err
		t.post(o.peer, descriptor{kind: retracts, id: o.id, length: uint64(o.n)}.about(o.e.tag))
		return
	}
	t.end(o, err)
}

func (t *Transport) mismatch(o *op, sent int) error {
	return fmt.Errorf("shm: %w: rank %d sent %d bytes where rank %d expects %d as %v: the ranks run different collectives or counts",
		nbc.ErrLength, o.peer.rank, sent, t.Rank(), o.n, o.e.tag)
}

// broken notes that a peer does not follow the protocol.
func (t *Transport) broken(p *peer, what string) {
	if t.fault == nil {
		t.fault = fmt.Errorf("shm: rank %d tells of %s: its memory is damaged, or it runs another version", p.rank, what)
	}
}

// at returns the registered memory of p that d names; false where that lies
// beyond it.
func (p *peer) at(d *descriptor) (mem.Buffer, bool) {
	arena := p.mapping[p.arena:]
	if d.addr > uint64(len(arena)) || d.length > uint64(len(arena))-d.addr {
		return mem.Buffer{}, false
	}
	return mem.At(unsafe.Add(unsafe.Pointer(unsafe.SliceData(arena)), d.addr), int(d.length), mem.Host), true
}

// Release gives the Data of the completion of tok back.
func (t *Transport) Release(tok nbc.Token) {
	o, ok := t.lent[tok]
	if !ok {
		t.inner.Release(tok)
		return
	}
	delete(t.lent, tok)
	if o.other.place == registered {
		t.answer(o.peer, o.other.id, o.n, well)
	}
	t.forget(o)
}
