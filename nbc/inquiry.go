package nbc

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scaffe/scaffe/mem"
)

// Where a collective stalls, its rank asks those that it waits for, and, once
// half of the deadline has passed, those that they wait for in turn. Asked
// ranks answer from their progress loops, whatever their callers do.
const (
	askFirst   = 500 * time.Millisecond // without progress; less for a short deadline
	askedMost  = 64                     // ranks, of one request
	historyLen = 128                    // executions that ended and are remembered
	lengthWait = time.Second            // for the answer of a rank that sent another length
)

// inquiry is what a stalled request has asked and heard.
type inquiry struct {
	id    uint64
	round int // of questions
	deep  bool
	asked []question
}

// question is one to a rank about a collective: the stalled one, or another
// that a rank is in that has not come to it.
type question struct {
	rank    int
	about   Execution
	request string // its name
	round   int
	since   time.Time  // of the first time without an answer; zero: none
	heard   *PeerState // the last answer
}

func (q *inquiry) find(rank int, about Execution) *question {
	i := slices.IndexFunc(q.asked, func(k question) bool { return k.rank == rank && k.about == about })
	if i < 0 {
		return nil
	}
	return &q.asked[i]
}

// past is an execution that this rank has ended.
type past struct {
	Execution
	print      uint32
	name, call string
	dt         mem.Datatype
	op         mem.Op
}

// history holds the last executions, the oldest overwritten first.
type history struct {
	ended [historyLen]past
	next  int
	last  called // what was started last
}

func (h *history) add(r *Request) {
	b := &r.bind
	h.ended[h.next%historyLen] = past{r.execution(), r.print, b.Name, b.Call, b.Datatype, b.Op}
	h.next++
}

func (h *history) find(x Execution) *past {
	for i := range min(h.next, historyLen) {
		if p := &h.ended[i]; p.Execution == x {
			return p
		}
	}
	return nil
}

func (r *Request) execution() Execution { return Execution{r.bind.Comm, r.bind.Instance, r.round} }

// stall looks whether r moves, and asks where it does not.
func (e *Engine) stall(r *Request, now time.Time) {
	if r.left != r.seenLeft {
		r.seenLeft, r.moved, r.inquiry = r.left, now, nil
		r.askAt = now.Add(min(askFirst, r.bind.Deadline/4))
		return
	}
	if now.Before(r.askAt) || e.notifier == nil {
		return
	}
	r.askAt = now.Add(min(max(now.Sub(r.moved), time.Millisecond), max(r.bind.Deadline/8, time.Millisecond)))
	e.inquire(r, now, now.Sub(r.started) >= r.bind.Deadline/2)
}

// inquire asks everyone that r waits for.
func (e *Engine) inquire(r *Request, now time.Time, deep bool) {
	if e.notifier == nil {
		return
	}
	q := e.newRound(r)
	q.deep = q.deep || deep
	for _, edge := range r.edges(e.rank) {
		e.follow(r, edge, now)
	}
}

// newRound begins a round of questions about r.
func (e *Engine) newRound(r *Request) *inquiry {
	if r.inquiry == nil {
		e.inquiries++
		r.inquiry = &inquiry{id: e.inquiries}
	}
	r.inquiry.round++
	return r.inquiry
}

// follow asks the rank at the other end of an edge about the edge's collective,
// for the sake of r.
func (e *Engine) follow(r *Request, edge Edge, now time.Time) {
	if edge.Peer >= 0 {
		e.ask(r, edge.Peer, edge, now)
		return
	}
	for rank := range e.size { // the library's own: it may be anyone
		e.ask(r, rank, edge, now)
	}
}

// ask asks a rank, once in a round.
func (e *Engine) ask(r *Request, rank int, edge Edge, now time.Time) {
	q := r.inquiry
	k := q.find(rank, edge.Execution)
	if k == nil {
		if rank == e.rank || rank >= e.size || len(q.asked) == askedMost {
			return
		}
		q.asked = append(q.asked, question{rank: rank, about: edge.Execution, request: edge.Request})
		k = &q.asked[len(q.asked)-1]
	}
	if k.round == q.round {
		return
	}
	k.round = q.round
	if k.since.IsZero() {
		k.since = now
	}
	n := notice{ID: q.id, About: edge.Execution, Deep: q.deep}
	if edge.Execution == r.execution() {
		n.Print, n.Call = r.print, r.bind.describe()
	}
	// One that is lost is one more question without an answer.
	_ = e.notifier.Notify(rank, n.encode())
}

// readNotices takes what other engines ask and answer.
func (e *Engine) readNotices() {
	if e.notifier == nil {
		return
	}
	for {
		from, n := e.notifier.NextNotice(e.noticeBuf[:])
		if from < 0 {
			return
		}
		switch n, ok := decode(e.noticeBuf[:n]); {
		case !ok:
		case n.Note != "":
			e.note(from, n.Note)
		case n.Answer:
			e.hear(from, &n)
		default:
			e.answer(from, &n)
		}
	}
}

// find returns the request under way that is, or was, or will be x.
func (e *Engine) find(x Execution) *Request {
	for _, r := range e.active {
		if r != nil && r.bind.Comm == x.Comm && r.bind.Instance == x.Instance {
			return r
		}
	}
	return nil
}

// answer tells a rank how this one stands with a collective.
func (e *Engine) answer(from int, q *notice) {
	a := notice{Answer: true, ID: q.ID, About: q.About, Standing: NotEntered}
	r, p := e.find(q.About), e.history.find(q.About)
	same := r != nil && r.round == q.About.Round
	switch {
	case e.failed != nil:
		a.Standing, a.Reason = Failed, e.failed.Error()
	case same:
		a.Standing, a.Print, a.Call, a.Edges = Inside, r.print, r.bind.describe(), r.edges(e.rank)
	case p != nil:
		b := Binding{Name: p.name, Call: p.call, Datatype: p.dt, Op: p.op}
		a.Standing, a.Print, a.Call = Left, p.print, b.describe()
	case r != nil && r.round > q.About.Round:
		a.Standing = Left
	default:
		a.Last, a.Edges = e.history.last.String(), e.edges()
	}
	_ = e.notifier.Notify(from, a.encode())
	switch {
	case !same || e.failed != nil:
	case q.Call != "" && r.print != q.Print:
		e.mismatch(r, from, q.Call)
	case q.Deep && r.inquiry == nil:
		e.inquire(r, time.Now(), true)
	}
}

// hear takes an answer.
func (e *Engine) hear(from int, n *notice) {
	i := slices.IndexFunc(e.active, func(r *Request) bool { return r != nil && r.inquiry != nil && r.inquiry.id == n.ID })
	if i < 0 {
		return
	}
	r := e.active[i]
	k := r.inquiry.find(from, n.About)
	if k == nil {
		return
	}
	k.since = time.Time{}
	k.heard = &PeerState{
		Rank: from, Request: k.request, Standing: n.Standing,
		Call: n.Call, Edges: n.Edges, Last: n.Last, Reason: n.Reason,
	}
	own := n.About == r.execution()
	switch {
	case own && n.Call != "" && n.Print != r.print:
		e.mismatch(r, from, n.Call)
	case own && r.suspect != nil && from == r.suspected:
		e.failAndTell(r.suspect)
	case r.inquiry.deep:
		for _, edge := range n.Edges {
			e.follow(r, edge, time.Now())
		}
	}
}

func (e *Engine) mismatch(r *Request, peer int, call string) {
	e.failAndTell(&MismatchError{Request: r.bind.name(), Rank: e.rank, Call: r.bind.describe(), Peer: peer, PeerCall: call})
}

// suspect takes the error of an op. Where a message had another length than
// r expects, the likely reason is that its sender called something else: it is
// asked before the engine fails.
func (e *Engine) suspect(r *Request, peer int, err error) {
	if r.suspect != nil {
		return
	}
	if e.notifier == nil || peer == e.rank || !errors.Is(err, ErrLength) {
		e.failAndTell(err)
		return
	}
	now := time.Now()
	r.suspect, r.suspected, r.suspectUntil = err, peer, now.Add(lengthWait)
	e.newRound(r)
	e.ask(r, peer, Edge{Request: r.bind.name(), Execution: r.execution()}, now)
}

// peers returns what r has heard of other ranks.
func (r *Request) peers(now time.Time) []PeerState {
	if r.inquiry == nil {
		return nil
	}
	var peers []PeerState
	for _, k := range r.inquiry.asked {
		p := PeerState{Rank: k.rank, Request: k.request, Standing: Silent}
		switch {
		case !k.since.IsZero() && now.Sub(k.since) > r.bind.Deadline/16:
			if slices.ContainsFunc(peers, func(o PeerState) bool { return o.Rank == p.Rank && o.Standing == Silent }) {
				continue
			}
		case k.heard != nil:
			p = *k.heard
		default:
			continue // asked just now
		}
		peers = append(peers, p)
	}
	return peers
}

// checkDeadlines fails the engine where a request outlasted its deadline, and
// tells the other ranks.
func (e *Engine) checkDeadlines() {
	if e.inUse == 0 {
		return
	}
	now := time.Now()
	for _, r := range e.active {
		switch {
		case r == nil:
		case r.suspect != nil && now.After(r.suspectUntil):
			e.failAndTell(r.suspect)
			return
		case now.Sub(r.started) >= r.bind.Deadline:
			e.failAndTell(&DeadlineError{Request: r.bind.name(), Deadline: r.bind.Deadline, Edges: r.edges(e.rank), Peers: r.peers(now)})
			return
		default:
			if e.stall(r, now); e.failed != nil {
				return
			}
		}
	}
}

// failure is the error of a request that the engine's failure ended: with
// what this rank was waiting for, where the cause lies elsewhere.
func (r *Request) failure(me int, cause error) error {
	var abort *AbortError
	if edges := r.edges(me); errors.As(cause, &abort) && abort.Rank != me && len(edges) > 0 {
		return fmt.Errorf("%s failed: %w (here %s)", r.bind.name(), cause, diagnosis(edges, r.peers(time.Now())))
	}
	return fmt.Errorf("%s failed: %w", r.bind.name(), cause)
}
