package nbc

import (
	"errors"
	"fmt"
)

// ErrLength is wrapped by the error of a receive whose message had another
// length than was asked for.
var ErrLength = errors.New("message of another length")

// ErrClosed is what requests of a closed engine end with.
var ErrClosed = errors.New("nbc: the engine is closed")

// AbortError says that another rank gave up, and why it did.
type AbortError struct {
	Rank   int    // the rank that gave up
	Reason string // in its words
}

// Error returns the rank and its reason.
func (e *AbortError) Error() string {
	return fmt.Sprintf("rank %d gave up: %s", e.Rank, e.Reason)
}

// Edge is something a rank waits for from another: the edge that blocks a
// collective.
type Edge struct {
	Rank    int    `json:"k"`           // who waits
	Request string `json:"q"`           // in what, such as reduce#812
	Op      string `json:"o"`           // for what: "chunk 7", with the direction
	Peer    int    `json:"p"`           // from or to whom; -1: it is not known
	Sending bool   `json:"s,omitempty"` // to whom
	// About is what moves, "" where only Op says it; Server is set where Peer serves that. See About.
	About  string `json:"a,omitempty"`
	Server bool   `json:"v,omitempty"`

	Execution `json:"x"`
}

// Execution is the identity of one execution of a collective.
type Execution struct {
	Comm     uint64 `json:"c,omitempty"` // as in Tag
	Instance uint32 `json:"i,omitempty"`
	Round    uint32 `json:"r,omitempty"` // of a persistent request, from 1
}

// String returns the edge as a sentence: "rank 5 waits for chunk 7 of
// reduce#812 from rank 4", or, of what a parameter server has, "rank 2 waits for
// slice 17 of fc6 from rank 1, its server (chunk 0 of bcast#812)".
func (e Edge) String() string {
	if e.Peer < 0 {
		return fmt.Sprintf("rank %d waits for %s in %s", e.Rank, e.Op, e.Request)
	}
	what, served, in := e.Op+" of "+e.Request, "", ""
	if e.About != "" {
		what, in = e.About, fmt.Sprintf(" (%s of %s)", e.Op, e.Request)
	}
	if e.Server {
		served = ", its server"
	}
	if e.Sending {
		if served != "" {
			served += ","
		}
		return fmt.Sprintf("rank %d waits for rank %d%s to take %s%s", e.Rank, e.Peer, served, what, in)
	}
	return fmt.Sprintf("rank %d waits for %s from rank %d%s%s", e.Rank, what, e.Peer, served, in)
}
