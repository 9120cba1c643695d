// Package over is what a transport that lies over another one leaves to that.
package over

import (
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// Transport hands on, to be embedded, what concerns no message, with the optional abilities of the inner transport: where it
// lacks one, with what is done without.
type Transport struct{ inner nbc.Transport }

// New returns that of an inner transport.
func New(inner nbc.Transport) Transport { return Transport{inner} }

// Rank returns the inner transport's.
func (t Transport) Rank() int { return t.inner.Rank() }

// Size returns the inner transport's.
func (t Transport) Size() int { return t.inner.Size() }

// Wake ends a Park under way, or the next one.
func (t Transport) Wake() { t.inner.Wake() }

// Inner returns the transport below, for what only one kind of it has.
func (t Transport) Inner() nbc.Transport { return t.inner }

// Nodes returns the inner transport's, one node where it does not know.
func (t Transport) Nodes() []int {
	if p, ok := t.inner.(nbc.Topology); ok {
		return p.Nodes()
	}
	return make([]int, t.Size())
}

// Alloc returns the inner transport's memory, of the host.
func (t Transport) Alloc(n int) (mem.Buffer, error) {
	if a, ok := t.inner.(nbc.Allocator); ok {
		return a.Alloc(n)
	}
	return mem.TryAlloc(n)
}

// Free gives it back.
func (t Transport) Free(b mem.Buffer) {
	if a, ok := t.inner.(nbc.Allocator); ok {
		a.Free(b)
		return
	}
	b.Free()
}

// Notify hands a notice on. Where the inner transport is no Notifier, notices are lost.
func (t Transport) Notify(to int, notice []byte) error {
	if n, ok := t.inner.(nbc.Notifier); ok {
		return n.Notify(to, notice)
	}
	return nil
}

// NextNotice hands the next notice on.
func (t Transport) NextNotice(buf []byte) (from, length int) {
	if n, ok := t.inner.(nbc.Notifier); ok {
		return n.NextNotice(buf)
	}
	return -1, 0
}

// CarriesWith reports whether the inner transport itself takes memory of the space for messages to and from a rank.
func (t Transport) CarriesWith(rank int, s mem.Space) bool { return CarriesWith(t.inner, rank, s) }

// CarriesWith is a transport's: the host's memory, where it is no nbc.PartCarrier.
func CarriesWith(t nbc.Transport, rank int, s mem.Space) bool {
	p, ok := t.(nbc.PartCarrier)
	return s == mem.Host || ok && p.CarriesWith(rank, s)
}

// Expect tells the inner transport how many bytes the collective has whose operations come next.
func (t Transport) Expect(bytes int) {
	if e, ok := t.inner.(nbc.Expecter); ok {
		e.Expect(bytes)
	}
}

// Shared is the inner transport's.
func (t Transport) Shared(b mem.Buffer) bool {
	p, ok := t.inner.(nbc.Placer)
	return ok && p.Shared(b)
}

// Place returns the inner transport's, of host memory.
func (t Transport) Place(to int, tag nbc.Tag, n int) (mem.Buffer, bool) {
	if p, ok := t.inner.(nbc.Placer); ok {
		return p.Place(to, tag, n)
	}
	return mem.Buffer{}, false
}

// RecvBorrowTo is the inner transport's, of host memory; one that does not copy to where the caller likes lends what comes.
func (t Transport) RecvBorrowTo(tok nbc.Token, from int, tag nbc.Tag, dst mem.Buffer) error {
	if l, ok := t.inner.(nbc.Lander); ok {
		return l.RecvBorrowTo(tok, from, tag, dst)
	}
	return t.inner.RecvBorrow(tok, from, tag, dst.Len())
}

// Yield offers the calling thread's core to others, where the inner transport knows how.
func (t Transport) Yield() {
	if w, ok := t.inner.(nbc.Waiter); ok {
		w.Yield()
	}
}

// Crowded reports whether ranks share cores, as far as the inner transport knows.
func (t Transport) Crowded() bool {
	w, ok := t.inner.(nbc.Waiter)
	return ok && w.Crowded()
}

// Drain has the inner transport end its copies, where something makes some that works on by itself.
func (t Transport) Drain() {
	if d, ok := t.inner.(nbc.Drainer); ok {
		d.Drain()
	}
}

// Waits tells the inner transport whether the thread has nothing to do but to wait.
func (t Transport) Waits(only bool) {
	if w, ok := t.inner.(nbc.Waiter); ok {
		w.Waits(only)
	}
}

// MigrateWith makes the calling thread the one that makes all calls from now on, where the inner transport
// and the device that goes with it allow that.
func (t Transport) MigrateWith(d nbc.Device) bool {
	m, ok := t.inner.(nbc.ThreadMigrator)
	if !ok || !m.Migrate() {
		return false
	}
	c, bound := d.(nbc.ThreadMigrator)
	return !bound || c.Migrate()
}

// Abilities returns what the inner transport alone does: its library's collectives, which refuse device
// memory, and messages that are handed over at once, which are of host memory; nil where it does not.
func (t Transport) Abilities() (nbc.Library, nbc.Eager) {
	l, _ := t.inner.(nbc.Library)
	e, _ := t.inner.(nbc.Eager)
	return l, e
}
