package nbc

import (
	"errors"
	"fmt"
	"slices"
	"time"
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
	round int // of questions
	deep  bool
	peers []asked
}

type asked struct {
	rank  int
	round int
	since time.Time  // of the first question without an answer; zero: none
	heard *PeerState // the last answer
}

func (q *inquiry) of(rank int) *asked {
	i := slices.IndexFunc(q.peers, func(a asked) bool { return a.rank == rank })
	if i < 0 {
		return nil
	}
	return &q.peers[i]
}

// execution is one that this rank has ended.
type execution struct {
	comm, instance, round uint32
	print                 uint32
	bind                  Binding // what describe reads
}

// history holds the last executions, the oldest overwritten first.
type history struct {
	ended [historyLen]execution
	next  int
	last  string // what was started last
}

func (h *history) add(r *Request) {
	b := &r.bind
	h.ended[h.next%historyLen] = execution{
		comm: b.Comm, instance: b.Instance, round: r.round, print: r.print,
		bind: Binding{Name: b.Name, Call: b.Call, Datatype: b.Datatype, Op: b.Op},
	}
	h.next++
}

func (h *history) find(n *notice) *execution {
	for i := range min(h.next, historyLen) {
		if x := &h.ended[i]; x.comm == n.Comm && x.instance == n.Instance && x.round == n.Round {
			return x
		}
	}
	return nil
}

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
	if r.inquiry == nil {
		r.inquiry = &inquiry{}
	}
	r.inquiry.round++
	r.inquiry.deep = r.inquiry.deep || deep
	for _, edge := range r.edges(e.rank) {
		if edge.Peer >= 0 {
			e.ask(r, edge.Peer, now)
			continue
		}
		for rank := range e.size { // the library's own: it may be anyone
			e.ask(r, rank, now)
		}
	}
}

// ask asks a rank about r, once in a round.
func (e *Engine) ask(r *Request, rank int, now time.Time) {
	q := r.inquiry
	a := q.of(rank)
	if a == nil {
		if rank == e.rank || len(q.peers) == askedMost {
			return
		}
		q.peers = append(q.peers, asked{rank: rank})
		a = &q.peers[len(q.peers)-1]
	}
	if a.round == q.round {
		return
	}
	a.round = q.round
	if a.since.IsZero() {
		a.since = now
	}
	// A notice that is lost is one more question without an answer.
	_ = e.notifier.Notify(rank, notice{
		Comm: r.bind.Comm, Instance: r.bind.Instance, Round: r.round,
		Print: r.print, Call: r.bind.describe(), Deep: q.deep,
	}.encode())
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
		if n, ok := decode(e.noticeBuf[:n]); ok && n.Answer {
			e.hear(from, &n)
		} else if ok {
			e.answer(from, &n)
		}
	}
}

// find returns the request under way with the identity of n, nil for none.
func (e *Engine) find(n *notice) *Request {
	for _, r := range e.active {
		if r != nil && r.bind.Comm == n.Comm && r.bind.Instance == n.Instance {
			return r
		}
	}
	return nil
}

// answer tells a rank how this one stands with a collective.
func (e *Engine) answer(from int, q *notice) {
	a := notice{Answer: true, Comm: q.Comm, Instance: q.Instance, Round: q.Round, Standing: NotEntered, Print: q.Print}
	r, past := e.find(q), e.history.find(q)
	same := r != nil && r.round == q.Round
	switch {
	case e.failed != nil:
		a.Standing, a.Reason = Failed, e.failed.Error()
	case same:
		a.Standing, a.Print, a.Call, a.Edges = Inside, r.print, r.bind.describe(), r.edges(e.rank)
	case past != nil:
		a.Standing, a.Print, a.Call = Left, past.print, past.bind.describe()
	case r != nil && r.round > q.Round:
		a.Standing = Left
	default:
		a.Last, a.Edges = e.history.last, e.edges()
	}
	_ = e.notifier.Notify(from, a.encode())
	switch {
	case !same || e.failed != nil:
	case r.print != q.Print:
		e.mismatch(r, from, q.Call)
	case q.Deep && r.inquiry == nil:
		e.inquire(r, time.Now(), true)
	}
}

// hear takes an answer.
func (e *Engine) hear(from int, n *notice) {
	r := e.find(n)
	if r == nil || r.round != n.Round || r.inquiry == nil {
		return
	}
	a := r.inquiry.of(from)
	if a == nil {
		return
	}
	a.since = time.Time{}
	a.heard = &PeerState{
		Rank: from, Request: r.bind.Name, Standing: n.Standing,
		Call: n.Call, Edges: n.Edges, Last: n.Last, Reason: n.Reason,
	}
	switch {
	case n.Print != r.print:
		e.mismatch(r, from, n.Call)
	case r.suspect != nil && from == r.suspected:
		e.failAndTell(r.suspect)
	case r.inquiry.deep && n.Standing == Inside:
		for _, edge := range n.Edges {
			if edge.Peer >= 0 && edge.Peer < e.size {
				e.ask(r, edge.Peer, time.Now())
			}
		}
	}
}

func (e *Engine) mismatch(r *Request, peer int, call string) {
	e.failAndTell(&MismatchError{Request: r.bind.Name, Rank: e.rank, Call: r.bind.describe(), Peer: peer, PeerCall: call})
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
	if r.inquiry == nil {
		r.inquiry = &inquiry{}
	}
	r.inquiry.round++
	e.ask(r, peer, now)
}

// peers returns what r has heard of other ranks.
func (r *Request) peers(now time.Time) []PeerState {
	if r.inquiry == nil {
		return nil
	}
	var peers []PeerState
	for _, a := range r.inquiry.peers {
		late := !a.since.IsZero() && now.Sub(a.since) > r.bind.Deadline/16
		switch {
		case late:
			peers = append(peers, PeerState{Rank: a.rank, Request: r.bind.Name, Standing: Silent})
		case a.heard != nil:
			peers = append(peers, *a.heard)
		}
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
			e.failAndTell(&DeadlineError{Request: r.bind.Name, Deadline: r.bind.Deadline, Edges: r.edges(e.rank), Peers: r.peers(now)})
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
		return fmt.Errorf("%s failed: %w (here %s)", r.bind.Name, cause, diagnosis(edges, r.peers(time.Now())))
	}
	return fmt.Errorf("%s failed: %w", r.bind.Name, cause)
}
