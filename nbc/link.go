package nbc

import (
	"slices"
	"time"

	"github.com/scaffe/scaffe/schedule"
)

// Sends to one rank of another node share a link. Those that are under way
// together arrive together, late; so where several requests are active, the
// messages of the one that is needed soonest go first (Binding.Priority, then
// the order of starts) and the others are held back until there is room. A
// request that starts late but is needed soon overtakes between two messages
// (P3 section 4.2).
//
// Ranks may start requests in different orders, so the messages that fill a
// link may be ones that their receiver does not expect yet. Therefore a link on
// which nothing ends for a while takes one message more: nobody waits for ever.

const (
	// LinkBytes is how large a message must be to be held back; smaller ones
	// are about latency, and go at once.
	LinkBytes = 16 << 10
	// linkPatience is how long a full link may stand still before it takes one
	// message more.
	linkPatience = 2 * time.Millisecond
)

// link is the sends to one rank of another node.
type link struct {
	under int // large sends under way
	held  []heldSend
	moved time.Time // when the last one began or ended
}

// heldSend is a send that waits for room.
type heldSend struct {
	r  *Request
	op int32
}

// before reports whether a's messages go before b's.
func (a *Request) before(b *Request) bool {
	if a.bind.Priority != b.bind.Priority {
		return a.bind.Priority < b.bind.Priority
	}
	return a.order < b.order
}

// linkTo returns the link that an op of r is to take, nil for one that is not held
// back: no send, small, or to a rank of this node.
func (e *Engine) linkTo(r *Request, op *schedule.Op) *link {
	if op.Kind != schedule.Send || r.library != nil || e.links == nil || r.bind.Datatype.Bytes(op.Src.Len) < LinkBytes {
		return nil
	}
	return e.links[r.peer(op.Peer)]
}

// hold lets a send wait for its turn, which fill gives it.
func (e *Engine) hold(l *link, r *Request, op int32) {
	at, _ := slices.BinarySearchFunc(l.held, r, func(h heldSend, r *Request) int {
		if r.before(h.r) { // the sends of one request stay in order
			return 1
		}
		return -1
	})
	l.held = slices.Insert(l.held, at, heldSend{r, op})
	e.held++
}

// fill posts what is held back as far as there is room, and one message more
// on a link that stands still. It reports whether there was anything.
func (e *Engine) fill() bool {
	if e.held == 0 {
		return false
	}
	now := time.Now()
	before := e.held
	for _, l := range e.links {
		if l == nil {
			continue
		}
		for len(l.held) > 0 && (l.under < SendWindow || now.Sub(l.moved) > linkPatience) {
			h := l.held[0]
			l.held = slices.Delete(l.held, 0, 1)
			e.held--
			l.under++
			l.moved = now
			e.start(h.r, h.op)
		}
	}
	return e.held < before
}

// sent says that a send of l has ended.
func (e *Engine) sent(l *link) {
	if e.failed == nil {
		l.under--
		l.moved = time.Now()
	}
}

// makeLinks makes the links to the ranks of other nodes.
func (e *Engine) makeLinks() {
	nodes := e.Nodes()
	for r, n := range nodes {
		if n == nodes[e.rank] {
			continue
		}
		if e.links == nil {
			e.links = make([]*link, e.size)
		}
		e.links[r] = &link{}
	}
}

// clearLinks forgets what is held back and under way: the engine has failed.
func (e *Engine) clearLinks() {
	for _, l := range e.links {
		if l != nil {
			l.held, l.under = nil, 0
		}
	}
	e.held = 0
}
