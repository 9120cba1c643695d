package nbc

import (
	"slices"
	"time"

	"github.com/scaffe/scaffe/mem"
)

// inquiry is what a stalled request has asked and heard.
type inquiry struct {
	id    uint64
	round int // of questions
	deep  bool
	last  bool // the round before the request is given up, or waited for longer
	asked []question
}

// question is one to a rank about a collective: the stalled one, or another
// that a rank is in that has not come to it.
type question struct {
	rank    int
	about   Execution
	request string // its name
	round   int    // in which it was asked last
	at      time.Time
	since   time.Time  // of the first time without an answer; zero: none
	heard   *PeerState // the last answer
}

// take takes what a rank says.
func (k *question) take(from int, n *notice) {
	k.since = time.Time{}
	k.heard = &PeerState{
		Rank: from, Request: k.request, Status: n.Status,
		Call: n.Call, Edges: n.Edges, Last: n.Last, Reason: n.Reason,
	}
}

func (q *inquiry) find(rank int, about Execution) *question {
	i := slices.IndexFunc(q.asked, func(k question) bool { return k.rank == rank && k.about == about })
	if i < 0 {
		return nil
	}
	return &q.asked[i]
}

// waits reports whether an answer to the round's questions may still come. A
// rank that has answered before lives, and gets the time that a busy machine
// may need.
func (q *inquiry) waits(now time.Time, deadline time.Duration) bool {
	return slices.ContainsFunc(q.asked, func(k question) bool {
		limit := silentWait(deadline)
		if k.heard != nil {
			limit = aliveWait
		}
		return k.round == q.round && !k.since.IsZero() && now.Sub(k.at) < limit
	})
}

// silentWait is how long a rank that has never answered is waited for.
func silentWait(deadline time.Duration) time.Duration {
	return min(max(deadline/4, silentLeast), silentMost)
}

// peers returns what was heard of other ranks. One that has left questions open
// for long has not answered.
func (q *inquiry) peers(now time.Time, deadline time.Duration) []PeerState {
	if q == nil {
		return nil
	}
	var peers []PeerState
	for _, k := range q.asked {
		silent := !k.since.IsZero() && now.Sub(k.since) >= silentWait(deadline)
		if k.heard != nil {
			silent = !k.since.IsZero() && now.Sub(k.since) >= aliveWait
		}
		switch {
		case silent && slices.ContainsFunc(peers, func(o PeerState) bool { return o.Rank == k.rank && o.Status == NoReply }):
		case silent:
			peers = append(peers, PeerState{Rank: k.rank, Request: k.request, Status: NoReply})
		case k.heard != nil:
			peers = append(peers, *k.heard)
		}
	}
	return peers
}

// past is an execution that this rank has ended.
type past struct {
	Execution
	print uint32
	what  *what
}

// what is what a request does, in words: without its buffers, which are its caller's.
type what struct {
	name, call string
	dt         mem.Datatype
	op         mem.Op
}

func (b *Binding) what() *what { return &what{b.Name, b.Call, b.Datatype, b.Op} }

// history holds the last executions, the oldest overwritten first.
type history struct {
	ended [historyLen]past
	next  int
	last  called // what was started last
}

const historyLen = 128

func (h *history) add(r *Request) {
	h.ended[h.next%historyLen] = past{r.execution(), r.print, r.what}
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
