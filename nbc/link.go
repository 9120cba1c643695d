package nbc

import (
	"slices"
	"sync/atomic"
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
// All links of a rank share its port. What is needed soonest has the port to itself only
// where that holds over all peers: of the requests with a credit (Binding.Credit), only so much
// is under way to other nodes, whichever these are, and the most urgent is the
// next to leave. The port is one more queue beside those of the links, for these requests.
//
// Ranks may start requests in different orders, so the messages that fill a
// link may be ones that their receiver does not expect yet. Therefore a link, or a port, on
// which nothing ends for a while takes one message more: so no rank waits for ever. At a port
// the message that has been under way longest then stands: its receiver is late, and it counts no more. So
// a rank that is late costs the others' messages one patience for each that waits for it, not one each.

const (
	// LinkBytes is how large a message must be to be held back; smaller ones
	// are about latency, and go at once.
	LinkBytes = 16 << 10
	// LinkPatience is how long a full link or port may stand still before it takes one
	// message more, at least.
	LinkPatience = 2 * time.Millisecond
	// MostPatience is how long a full link may at most. Where messages take longer than
	// LinkPatience to leave, patience is not to undo the order: a link waits for linkPaces times as
	// long as the last ones took, within this. Several senders share the port of a receiver, so that a message
	// may well take some times as long as the one before it. Of two, four and eight paces of a link four was the quickest for
	// what auto chooses, at 1 Gbit/s (docs/benchmarks/p3-found.md): by two the order is lost again.
	MostPatience = 50 * time.Millisecond
	linkPaces    = 4
	// A port stands still for as long as all other ranks may take to send one receiver, before it, what each has a credit for: that many
	// paces, portTurns times, and MostPortPatience at most. What a port lets go too soon makes receivers' ports fuller and what
	// is under way slower still; where it waits too long, a rank that is late holds up what goes to the others.
	MostPortPatience = time.Second
	portTurns        = 2
	// A pace is that of so many messages of late; some leave at once, into the kernel's memory, and then none for long. A link of a
	// few messages has less to go by than a port.
	linkRecent, portRecent = 4, 32
)

// linkQueue holds large sends back until there is room for them. It is given the
// time, and does nothing by itself.
type linkQueue struct {
	links   []*link // by rank; nil for those of this node
	others  int     // how many there are
	port    *link   // of requests with a credit, to all ranks of other nodes
	waiting []*link // those that hold sends back
	held    int     // sends held back, on all links
	pushed  uint64  // sends that had to wait, ever
	orders  uint64  // requests admitted
	started time.Time
	begun   precedence

	patience, longest atomic.Int64                            // see Order
	disorder          func(DisorderKind, *pending, time.Time) // unless nil, is told of what Order counts
}

// link is the sends to one rank of another node, or through the port.
type link struct {
	under int       // large sends under way, without those of a port that stand
	bytes int       // of these, at a port
	away  []sending // those of a port, the oldest first
	held  heap      // those that wait for room
	moved time.Time // when the last one began or ended
	ended time.Time // when the last one ended, or the first began
	port  bool
	pace  time.Duration // between the ends of two messages, of late
	paces int           // how many messages that is, at most portRecent
}

// sending is a send that is under way through a port.
type sending struct {
	r      *Request
	op     int32
	stands bool // for so long that it takes none of the credit
}

// open makes the links of a rank to those of other nodes; nodes is by rank.
func (q *linkQueue) open(rank int, nodes []int, now time.Time) {
	q.started = now
	for r, n := range nodes {
		if n == nodes[rank] {
			continue
		}
		if q.links == nil {
			q.links = make([]*link, len(nodes))
			q.port = &link{port: true}
		}
		q.links[r] = &link{}
		q.others++
	}
}

// admit gives r its place among requests of equal priority.
func (q *linkQueue) admit(r *Request) {
	q.orders++
	r.order = q.orders
}

// to returns the link that op i of r is to take, nil for one that is not held
// back: no send, small, or to a rank of this node.
func (q *linkQueue) to(r *Request, i int32) *link {
	if q.links == nil { // all ranks are of this node
		return nil
	}
	return q.linkTo(r, i)
}

func (q *linkQueue) linkTo(r *Request, i int32) *link {
	op := &r.plan.schedule.Ops[i]
	if op.Kind != schedule.Send || r.library != nil || r.sends(i) < LinkBytes {
		return nil
	}
	l := q.links[r.peer(op.Peer)]
	if l != nil && r.bind.Credit > 0 {
		return q.port
	}
	return l
}

// hold lets a send wait for its turn, which next gives it.
func (q *linkQueue) hold(l *link, r *Request, op int32, now time.Time) {
	if l.held.empty() {
		q.waiting = append(q.waiting, l)
	}
	q.pushed++
	l.held.insert(pending{r.bind.Priority, r.order, q.pushed, r, op, now.Sub(q.started)})
	q.held++
}

// room reports whether there is room for the next send.
func (l *link) room() bool {
	if l.port {
		h := l.held.top()
		return l.under == 0 || l.bytes+h.r.sends(h.op) <= h.r.bind.Credit
	}
	return l.under < SendWindow
}

// sends returns how many bytes op i, a send, has.
func (r *Request) sends(i int32) int { return r.bind.Datatype.Bytes(r.plan.schedule.Ops[i].Src.Len) }

// still reports whether the link has stood still for longer than it may.
func (q *linkQueue) still(l *link, now time.Time) bool {
	patience := min(linkPaces*l.pace, MostPatience)
	if l.port {
		patience = min(time.Duration(portTurns*q.others*l.under)*l.pace, MostPortPatience)
	}
	return now.Sub(l.moved) > max(LinkPatience, patience)
}

// next returns a send that has waited and may begin now, which it then counts
// as under way: where there is room, and one more where nothing moves; the
// most urgent of them. What it costs grows with the number of links that hold sends back,
// not with that of the sends.
func (q *linkQueue) next(now time.Time) (h pending, ok bool) {
	best := -1
	for i, l := range q.waiting {
		if (l.room() || q.still(l, now)) && (best < 0 || l.held.top().before(q.waiting[best].held.top())) {
			best = i
		}
	}
	if best < 0 {
		return h, false
	}
	l := q.waiting[best]
	q.count(l, now)
	room := l.room()
	h = l.held.pop()
	if l.held.empty() {
		last := len(q.waiting) - 1
		q.waiting[best] = q.waiting[last]
		q.waiting = q.waiting[:last]
	}
	q.held--
	if l.port {
		if !room {
			l.stand()
		}
		l.away = append(l.away, sending{r: h.r, op: h.op})
		l.bytes += h.r.sends(h.op)
	}
	if l.under++; l.under == 1 {
		l.ended = now
	}
	l.moved = now
	return h, true
}

// stand says that the oldest send of a port that takes credit stands.
func (l *link) stand() {
	for i := range l.away {
		if a := &l.away[i]; !a.stands {
			a.stands = true
			l.under--
			l.bytes -= a.r.sends(a.op)
			return
		}
	}
}

// count keeps account of the next send of l.
func (q *linkQueue) count(l *link, now time.Time) {
	h := l.held.top()
	if q.begun.begin(h, q.pushed) && q.disorder != nil {
		q.disorder(Inversion, h, now)
	}
	if !l.room() {
		q.patience.Add(1)
		if q.disorder != nil {
			q.disorder(LetGo, h, now)
		}
	}
	if waited := int64(now.Sub(q.started) - h.at); waited > q.longest.Load() {
		q.longest.Store(waited)
	}
}

// sent says that send op of r, one of l's, has ended.
func (l *link) sent(r *Request, op int32, now time.Time) {
	l.moved = now
	at := -1
	if l.port {
		if at = slices.IndexFunc(l.away, func(a sending) bool { return a.r == r && a.op == op }); at < 0 { // another has begun it
			return
		}
	}
	if !l.held.empty() && !l.room() {
		l.went(now.Sub(l.ended))
	}
	l.ended = now
	stood := false
	if l.port {
		if stood = l.away[at].stands; !stood {
			l.bytes -= r.sends(op)
		}
		l.away = slices.Delete(l.away, at, at+1)
	}
	if !stood {
		l.under--
	}
}

// went takes what a message took to leave after the one before, while others waited. One that stood for a late receiver
// counts for twice as much as the others at most, or for MostPatience.
func (l *link) went(took time.Duration) {
	recent := linkRecent
	if l.port {
		l.paces = min(l.paces+1, portRecent)
		recent = l.paces
	}
	l.pace += (min(took, max(MostPatience, 2*l.pace)) - l.pace) / time.Duration(recent)
}

// clear forgets what is held back and under way: the engine has failed.
func (q *linkQueue) clear() {
	for _, l := range append(q.links, q.port) {
		if l != nil {
			l.held, l.under, l.bytes, l.away = heap{}, 0, 0, nil
		}
	}
	q.waiting, q.held = nil, 0
}
