package overmpi

import (
	"fmt"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/internal/backoff"
)

// eager is what is known of the messages of nbc.Eager.
type eager struct {
	sent   []mem.Buffer // messages of Put that MPI has not taken yet, where they lie
	unused []uint64     // indexes into sent
	taken  *arrival     // what Take has handed out
}

var _ nbc.Eager = (*Transport)(nil)

// EagerRoom returns how many bytes lie in an envelope, which needs no answer.
func (t *Transport) EagerRoom(rank int) nbc.EagerRoom {
	if rank == t.Rank() {
		return nbc.EagerRoom{}
	}
	return nbc.EagerRoom{Most: inlineRoom, Copied: inlineRoom, Kept: inlineRoom}
}

// Lent returns nothing: messages of Put are copied.
func (t *Transport) Lent() []nbc.Token { return nil }

// Keep has nothing to keep.
func (t *Transport) Keep(nbc.Token) {}

// Bound reports true: MPI is called by one thread.
func (t *Transport) Bound(int) bool { return true }

// Put sends src in an envelope, which is a copy.
func (t *Transport) Put(_ nbc.Token, to int, tag nbc.Tag, src mem.Buffer, _ bool) bool {
	if t.fault != nil || t.over.Load() {
		return false
	}
	e := &t.eager
	b := t.packed(tag, src)
	if len(e.unused) == 0 {
		e.unused = append(e.unused, uint64(len(e.sent)))
		e.sent = append(e.sent, mem.Buffer{})
	}
	i := e.unused[len(e.unused)-1]
	ended, err := t.data.IsendTest(t.reqs, forEager|i, b.Pointer(), b.Len(), to, envelopeTag)
	switch {
	case err != nil:
		t.staging.put(b)
		t.fail(fmt.Errorf("overmpi: %w", err))
		return false
	case ended:
		t.staging.put(b)
	default:
		e.sent[i] = b
		e.unused = e.unused[:len(e.unused)-1]
		t.active++
		t.small++
	}
	return true
}

// eagerEnded takes the end of a message of Put.
func (t *Transport) eagerEnded(i uint64, d mpi.Done) {
	e := &t.eager
	t.staging.put(e.sent[i])
	e.sent[i] = mem.Buffer{}
	e.unused = append(e.unused, i)
	t.active--
	t.small--
	if d.Err != nil {
		t.fail(fmt.Errorf("overmpi: %w", d.Err))
	}
}

// Unsent reports whether MPI has not taken all messages of Put yet.
func (t *Transport) Unsent() bool { return len(t.eager.unused) < len(t.eager.sent) }

// Take returns a message that came in its envelope.
func (t *Transport) Take(from int, tag nbc.Tag, n int, _ mem.Buffer) (mem.Buffer, bool) {
	id := identity(from, tag)
	a, ok := t.waiting.SeeMessage(id)
	if !ok {
		if t.advance() != nil {
			return mem.Buffer{}, false
		}
		a, ok = t.waiting.SeeMessage(id)
	}
	if !ok || a.wire != 0 || a.length != n {
		return mem.Buffer{}, false
	}
	_, _ = t.waiting.TakeMessage(id)
	t.eager.taken = a
	return a.data, true
}

// Taken gives back what Take returned last.
func (t *Transport) Taken(int) {
	t.staging.put(t.eager.taken.data)
	t.arrivals.put(t.eager.taken)
	t.eager.taken = nil
}

// Nap lets the calling thread sleep, while others use the transport.
func (t *Transport) Nap(d time.Duration) { t.rest.naps.Nap(d, &t.rest.woken) }

// Linger waits between looks as Park does, but never sleeps.
func (t *Transport) Linger(_, looks int) bool {
	switch {
	case looks <= t.rest.Spins:
		return true
	case looks <= t.rest.Spins+t.rest.Yields:
		backoff.Yield()
		return true
	}
	return false
}
