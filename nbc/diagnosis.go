package nbc

import (
	"fmt"
	"strings"
	"time"
)

// DeadlineError says that a collective did not end within its deadline, which
// edges blocked it on this rank, and what the ranks at their other ends say.
type DeadlineError struct {
	Request  string
	Deadline time.Duration
	// Edges are what this rank waited for.
	Edges []Edge
	// Peers are the ranks that were asked about the collective, in the order in
	// which they were asked: those of Edges first, then those that they wait
	// for in turn. Empty where the transport is no Notifier.
	Peers []PeerState
}

// Error names the request, the deadline, the blocking edges, and then the
// ranks that hold the collective up before those that only wait too.
func (e *DeadlineError) Error() string {
	return fmt.Sprintf("%s did not end within %v: %s", e.Request, e.Deadline, diagnosis(e.Edges, e.Peers))
}

// Culprits returns the peers that are not waiting inside the collective: those
// at which the chain of waiting ranks ends.
func (e *DeadlineError) Culprits() []PeerState { return culprits(e.Peers, true) }

// PeerStatus is where another rank is with a collective.
type PeerStatus uint8

const (
	// NoReply ranks have not answered: the process or its progress thread does
	// not run, or the network is gone.
	NoReply PeerStatus = iota
	// NotEntered ranks have not started the collective, or not this execution
	// of a persistent request.
	NotEntered
	// InCollective ranks are in the collective too.
	InCollective
	// Completed ranks have ended their part of it.
	Completed
	// Failed ranks have an engine that has failed.
	Failed
)

// PeerState is what another rank says about a collective.
type PeerState struct {
	Rank    int
	Request string // the collective asked about
	Status  PeerStatus
	// Call is how the rank called the collective, where it has.
	Call string
	// Edges are what the rank waits for: in the collective where it is inside
	// it, elsewhere where it has not entered it. The first few.
	Edges []Edge
	// Last names the collective that the rank started last, where it has not
	// entered this one.
	Last string
	// Reason is why the rank has failed.
	Reason string
}

// String returns the state as a sentence: "rank 4 has not entered reduce#812".
func (p PeerState) String() string {
	switch p.Status {
	case NotEntered:
		text := fmt.Sprintf("rank %d has not entered %s", p.Rank, p.Request)
		switch {
		case len(p.Edges) > 0:
			text += " (" + p.Edges[0].String() + ")"
		case p.Last != "":
			text += " (the last it started is " + p.Last + ")"
		}
		return text
	case InCollective:
		if len(p.Edges) == 0 {
			return fmt.Sprintf("rank %d is in %s and waits for no message", p.Rank, p.Request)
		}
		return p.Edges[0].String()
	case Completed:
		return fmt.Sprintf("rank %d has ended its part of %s", p.Rank, p.Request)
	case Failed:
		return fmt.Sprintf("rank %d has failed: %s", p.Rank, p.Reason)
	}
	return fmt.Sprintf("rank %d has not answered", p.Rank)
}

// MismatchError says that two ranks called different collectives where they
// should have called the same.
type MismatchError struct {
	Request        string // this rank's name for it
	Rank, Peer     int
	Call, PeerCall string
}

// Error prints both sides.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s: the ranks called different collectives: rank %d called %s; rank %d called %s",
		e.Request, e.Rank, e.Call, e.Peer, e.PeerCall)
}

// How much of a diagnosis a text has.
const (
	edgesShown = 6
	peersShown = 4
)

// diagnosis returns edges and peers as text.
func diagnosis(edges []Edge, peers []PeerState) string {
	text := some(edges, edgesShown)
	if text == "" {
		text = "nothing is in flight on this rank"
	}
	if c := some(culprits(peers, true), peersShown); c != "" {
		text += "; " + c
	}
	if on := some(culprits(peers, false), peersShown); on != "" {
		text += "; also, " + on
	}
	return text
}

// culprits returns the peers outside the collective, or those inside.
func culprits(peers []PeerState, are bool) []PeerState {
	var found []PeerState
	for _, p := range peers {
		if are != (p.Status == InCollective && len(p.Edges) > 0) {
			found = append(found, p)
		}
	}
	return found
}

// some joins the first of the sentences.
func some[T fmt.Stringer](all []T, limit int) string {
	var shown []string
	for i, s := range all {
		if i == limit {
			shown = append(shown, fmt.Sprintf("and %d more", len(all)-limit))
			break
		}
		shown = append(shown, s.String())
	}
	return strings.Join(shown, "; ")
}
