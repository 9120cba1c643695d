package nbc

import (
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
// which nothing ends for a while takes one message more: so no rank waits for ever.

const (
	// LinkBytes is how large a message must be to be held back; smaller ones
	// are about latency, and go at once.
	LinkBytes = 16 << 10
	// linkPatience is how long a full link may stand still before it takes one
	// message more.
	linkPatience = 2 * time.Millisecond
)

// linkQueue holds large sends back until their link has room. It is given the
// time, and does nothing by itself.
type linkQueue struct {
	links   []*link // by rank; nil for those of this node
	waiting []*link // those that hold sends back
	held    int     // sends held back, on all links
	orders  uint64  // requests admitted
}

// link is the sends to one rank of another node.
type link struct {
	under int       // large sends under way
	held  heap      // those that wait for room
	moved time.Time // when the last one began or ended
}

// newLinkQueue returns the links of a rank to those of other nodes; nodes is
// by rank.
func newLinkQueue(rank int, nodes []int) linkQueue {
	var q linkQueue
	for r, n := range nodes {
		if n == nodes[rank] {
			continue
		}
		if q.links == nil {
			q.links = make([]*link, len(nodes))
		}
		q.links[r] = &link{}
	}
	return q
}

// admit gives r its place among requests of equal priority.
func (q *linkQueue) admit(r *Request) {
	q.orders++
	r.order = q.orders
}

// to returns the link that op i of r is to take, nil for one that is not held
// back: no send, small, or to a rank of this node.
func (q *linkQueue) to(r *Request, i int32) *link {
	op := &r.plan.schedule.Ops[i]
	if op.Kind != schedule.Send || r.library != nil || q.links == nil || r.bind.Datatype.Bytes(op.Src.Len) < LinkBytes {
		return nil
	}
	return q.links[r.peer(op.Peer)]
}

// hold lets a send wait for its turn, which next gives it.
func (q *linkQueue) hold(l *link, r *Request, op int32) {
	if l.held.empty() {
		q.waiting = append(q.waiting, l)
	}
	l.held.push(r, op)
	q.held++
}

// next returns a send that has waited and may begin now, which it then counts
// as under way: where there is room, and one more on a link that stands still; the
// most urgent of them. What it costs grows with the number of links that hold sends back,
// not with that of the sends.
func (q *linkQueue) next(now time.Time) (h pending, ok bool) {
	best := -1
	for i, l := range q.waiting {
		if l.under >= SendWindow && now.Sub(l.moved) <= linkPatience {
			continue
		}
		if best < 0 || l.held.top().before(q.waiting[best].held.top()) {
			best = i
		}
	}
	if best < 0 {
		return h, false
	}
	l := q.waiting[best]
	h = l.held.pop()
	if l.held.empty() {
		last := len(q.waiting) - 1
		q.waiting[best] = q.waiting[last]
		q.waiting = q.waiting[:last]
	}
	q.held--
	l.under++
	l.moved = now
	return h, true
}

// sent says that a send of l has ended.
func (l *link) sent(now time.Time) {
	l.under--
	l.moved = now
}

// clear forgets what is held back and under way: the engine has failed.
func (q *linkQueue) clear() {
	for _, l := range q.links {
		if l != nil {
			l.held, l.under = heap{}, 0
		}
	}
	q.waiting, q.held = nil, 0
}
