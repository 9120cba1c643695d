package check

import (
	"fmt"

	"github.com/scaffe/scaffe/schedule"
)

// Kind is what is wrong with a set of schedules. It is an error itself, so
// that errors.Is(err, check.Race) asks for it.
type Kind uint8

const (
	// Malformed: sizes, ranks or counts disagree, or an op is of no known kind.
	Malformed Kind = iota
	// WrongPeer: a peer that is not a rank, or the rank itself.
	WrongPeer
	// OutOfBounds: a range that leaves its buffer.
	OutOfBounds
	// WriteToIn: an op that writes In.
	WriteToIn
	// BadDependency: an op that waits for itself, a later op, or none that exists.
	BadDependency
	// LengthMismatch: source and destination, or send and receive, differ in length.
	LengthMismatch
	// DuplicateMessage: two sends or two receives of the same message.
	DuplicateMessage
	// MessageGap: the numbers of the messages between two ranks leave one out.
	MessageGap
	// UnmatchedSend: a message that no rank receives.
	UnmatchedSend
	// UnmatchedRecv: a message that no rank sends.
	UnmatchedRecv
	// Race: two unordered ops touch the same element and one of them writes.
	Race
	// Deadlock: ops wait for each other in a circle.
	Deadlock
	// UninitialisedRead: an op reads what nothing has written.
	UninitialisedRead
	// DoubleContribution: a sum with the same contribution twice.
	DoubleContribution
	// Misplaced: contributions of different elements are added, or end up at
	// an element that is not theirs.
	Misplaced
	// MissingContribution: a result that lacks contributions.
	MissingContribution
	// ForeignOut: a reduction that touches Out at a rank other than the root, or more of
	// it than the rank's part.
	ForeignOut
)

var kinds = [...]string{
	Malformed:           "malformed schedule",
	WrongPeer:           "wrong peer",
	OutOfBounds:         "range out of bounds",
	WriteToIn:           "write to in",
	BadDependency:       "bad dependency",
	LengthMismatch:      "length mismatch",
	DuplicateMessage:    "duplicate message number",
	MessageGap:          "gap in message numbers",
	UnmatchedSend:       "unmatched send",
	UnmatchedRecv:       "unmatched receive",
	Race:                "race",
	Deadlock:            "deadlock",
	UninitialisedRead:   "uninitialised read",
	DoubleContribution:  "double contribution",
	Misplaced:           "misplaced contribution",
	MissingContribution: "missing contribution",
	ForeignOut:          "out that the rank does not have",
}

// Error returns the kind in words.
func (k Kind) Error() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return fmt.Sprintf("check.Kind(%d)", uint8(k))
}

// Error is the first thing found wrong.
type Error struct {
	Kind Kind
	// Rank and Op (an index into the rank's Ops) say where; -1: nowhere in
	// particular.
	Rank, Op int
	// Text is the op in text form, empty where Op is -1.
	Text string
	// Detail says what is wrong in a sentence.
	Detail string
}

// Error returns kind, place and detail in one line.
func (e *Error) Error() string {
	at := ""
	if e.Rank >= 0 {
		at = fmt.Sprintf("rank %d: ", e.Rank)
	}
	if e.Op >= 0 {
		at = fmt.Sprintf("rank %d op %d (%s): ", e.Rank, e.Op, e.Text)
	}
	return "check: " + e.Kind.Error() + ": " + at + e.Detail
}

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

func fail(k Kind, rank int, format string, args ...any) error {
	return &Error{Kind: k, Rank: rank, Op: -1, Detail: fmt.Sprintf(format, args...)}
}

func failOp(k Kind, s *schedule.Schedule, op int, format string, args ...any) error {
	return &Error{Kind: k, Rank: s.Rank, Op: op, Text: s.Ops[op].String(), Detail: fmt.Sprintf(format, args...)}
}
