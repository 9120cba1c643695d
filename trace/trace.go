package trace

import (
	"cmp"
	"slices"
	"time"
)

// Trace is what all ranks did, on one clock: that of rank 0.
type Trace struct {
	// Start is when rank 0 began to record, by its wall clock. All times of
	// the trace count from there.
	Start time.Time
	// Meta holds facts about the run, as described at rank 0.
	Meta map[string]string
	// Buckets says what the buckets hold; empty where that is not known.
	Buckets []Bucket
	// WarmUp is the first iteration after the warm-up, 0 where that is not known.
	WarmUp int
	// Ranks are all ranks, in order.
	Ranks []Rank
}

// Rank is one rank of a Trace.
type Rank struct {
	Rank int
	Host string
	// Clock holds what was measured of this rank's clock, in the order of time;
	// empty for rank 0.
	Clock []Offset
	// Outside is how many events were not kept since their iteration was not
	// one to keep, Dropped how many since there was no more room.
	Outside, Dropped int64
	// Events are sorted by Begin; of those that begin together the longer one
	// comes first.
	Events []Record
}

// Offset is one measurement of a rank's clock against that of rank 0, by
// messages to and fro: of several rounds the one that took the least time.
type Offset struct {
	// At is when the measurement was made.
	At time.Duration
	// Offset is how far the rank's clock is ahead of rank 0's.
	Offset time.Duration
	// Bound is half the time of the round: the offset is right within ±Bound,
	// however unequal the two ways are.
	Bound time.Duration
}

// Record is an Event of a Trace. Layer and Bucket are -1 where they do not
// count for the Kind.
type Record struct {
	Kind                Kind
	Iter, Layer, Bucket int32
	Name                string
	Bytes               int64
	Begin, End          time.Duration // since the trace's Start
}

// Duration returns how long the event took.
func (r *Record) Duration() time.Duration { return r.End - r.Begin }

// ClockBound returns how well the ranks' clocks are known to agree: times of
// two ranks can be compared within ± the sum of their own bounds, and this is
// the largest bound of any rank. Between two measurements the clocks are taken
// to drift evenly.
func (t *Trace) ClockBound() time.Duration {
	var worst time.Duration
	for i := range t.Ranks {
		for _, o := range t.Ranks[i].Clock {
			worst = max(worst, o.Bound)
		}
	}
	return worst
}

// bounds returns the first begin and the last end of all events.
func (t *Trace) bounds() (begin, end time.Duration) {
	first := true
	for i := range t.Ranks {
		for j := range t.Ranks[i].Events {
			e := &t.Ranks[i].Events[j]
			if first {
				begin, end, first = e.Begin, e.End, false
			}
			begin, end = min(begin, e.Begin), max(end, e.End)
		}
	}
	return begin, end
}

// sortRecords puts events into the order that Rank.Events has: an event that
// holds another comes before it.
func sortRecords(es []Record) {
	slices.SortStableFunc(es, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(b.End, a.End), cmp.Compare(rankOf(a.Kind), rankOf(b.Kind)))
	})
}

// rankOf puts an Iteration around an event that is as long as itself.
func rankOf(k Kind) int {
	if k == Iteration {
		return 0
	}
	return 1 + int(k)
}

// normalize gives the fields that do not count for the kind their fixed
// values, so that a trace that was written and read is equal to itself.
func (r *Record) normalize() {
	if !r.Kind.hasLayer() {
		r.Layer = -1
	}
	if !r.Kind.hasBucket() {
		r.Bucket = -1
	}
	r.End = max(r.End, r.Begin)
}
