package staging

import (
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// Rank returns the inner transport's.
func (t *Transport) Rank() int { return t.inner.Rank() }

// Size returns the inner transport's.
func (t *Transport) Size() int { return t.inner.Size() }

// Inner returns the transport below, for what only one kind of it has.
func (t *Transport) Inner() nbc.Transport { return t.inner }

// Nodes returns the inner transport's, one node where it does not know.
func (t *Transport) Nodes() []int {
	if p, ok := t.inner.(nbc.Topology); ok {
		return p.Nodes()
	}
	return make([]int, t.Size())
}

// Alloc returns the inner transport's memory, of the host.
func (t *Transport) Alloc(n int) (mem.Buffer, error) {
	if a, ok := t.inner.(nbc.Allocator); ok {
		return a.Alloc(n)
	}
	return mem.TryAlloc(n)
}

// Free gives it back.
func (t *Transport) Free(b mem.Buffer) {
	if a, ok := t.inner.(nbc.Allocator); ok {
		a.Free(b)
		return
	}
	b.Free()
}

// Notify hands a notice on. Where the inner transport is no Notifier, notices are lost.
func (t *Transport) Notify(to int, notice []byte) error {
	if n, ok := t.inner.(nbc.Notifier); ok {
		return n.Notify(to, notice)
	}
	return nil
}

// NextNotice hands the next notice on.
func (t *Transport) NextNotice(buf []byte) (from, length int) {
	if n, ok := t.inner.(nbc.Notifier); ok {
		return n.NextNotice(buf)
	}
	return -1, 0
}

// Expect tells the inner transport how many bytes the collective has whose operations come next.
func (t *Transport) Expect(bytes int) {
	if e, ok := t.inner.(nbc.Expecter); ok {
		e.Expect(bytes)
	}
}

// Yield offers the calling thread's core to others, where the inner transport knows how.
func (t *Transport) Yield() {
	if w, ok := t.inner.(nbc.Waiter); ok {
		w.Yield()
	}
}

// Waits tells the inner transport whether the thread has nothing to do but to wait.
func (t *Transport) Waits(only bool) {
	if w, ok := t.inner.(nbc.Waiter); ok {
		w.Waits(only)
	}
}

// Migrate makes the calling thread the one that makes all calls from now on, where the inner transport
// and the accelerator allow that.
func (t *Transport) Migrate() bool {
	m, ok := t.inner.(nbc.ThreadMigrator)
	if !ok || !m.Migrate() {
		return false
	}
	c, bound := t.copies.(nbc.ThreadMigrator)
	return !bound || c.Migrate()
}

// complete returns t with what the inner transport alone does: its library's collectives, which refuse device
// memory, and messages that are handed over at once, which are of host memory.
func (t *Transport) complete() nbc.Transport {
	l, calls := t.inner.(nbc.Library)
	e, eager := t.inner.(nbc.Eager)
	switch {
	case calls && eager:
		return struct {
			*Transport
			nbc.Library
			nbc.Eager
		}{t, l, e}
	case calls:
		return struct {
			*Transport
			nbc.Library
		}{t, l}
	case eager:
		return struct {
			*Transport
			nbc.Eager
		}{t, e}
	}
	return t
}
