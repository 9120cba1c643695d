package trace

import (
	"math"
	"slices"
	"sort"
	"time"
)

// segment is a stretch of the critical path: what rank did then is what the
// iteration's end waited for.
type segment struct {
	rank       int
	begin, end time.Duration
	part       Part
	iter       int32
}

// path walks the critical path from the end of the last of the iterations back
// to the begin of the first. Its segments come backwards.
//
// It begins at the rank that ends last, and follows that rank back in time.
// Where the rank waited for a collective, the time since the last rank began
// that collective is exposed communication; before, the path is at the rank
// that began last, and continues there.
func (tl *timeline) path(in map[int32]bool) []segment {
	rank, now := -1, time.Duration(math.MinInt64)
	for r, ps := range tl.pieces {
		for i := len(ps) - 1; i >= 0; i-- {
			if in[ps[i].iter] {
				if ps[i].end > now {
					rank, now = r, ps[i].end
				}
				break
			}
		}
	}
	if rank < 0 {
		return nil
	}
	w := walk{tl: tl, rank: rank, now: now, been: make([]bool, len(tl.pieces))}
	for p := tl.at(w.rank, w.now); p != nil && in[p.iter]; p = tl.at(w.rank, w.now) {
		w.step(p)
	}
	return w.out
}

// walk is the way back under way.
type walk struct {
	tl   *timeline
	rank int
	now  time.Duration
	been []bool // the ranks that the path has been at at this very moment
	out  []segment
}

func (w *walk) step(p *piece) {
	w.been[w.rank] = true
	if p.part == InSkew && !w.been[p.culprit] && w.tl.at(p.culprit, w.now) != nil {
		w.rank = p.culprit
		return
	}
	w.add(segment{w.rank, p.begin, w.now, p.part, p.iter})
	w.now = p.begin
	clear(w.been)
}

// add appends a segment, or makes the last one longer.
func (w *walk) add(s segment) {
	if n := len(w.out); n > 0 {
		if l := &w.out[n-1]; l.rank == s.rank && l.part == s.part && l.iter == s.iter && l.begin == s.end {
			l.begin = s.begin
			return
		}
	}
	w.out = append(w.out, s)
}

// waiters knows for how long ranks wait for a rank to begin collectives.
type waiters struct{ begins, ends moments }

// moments are sorted, with the sums of all up to each.
type moments struct{ at, sums []time.Duration }

func newMoments(at []time.Duration) moments {
	slices.Sort(at)
	m := moments{at, make([]time.Duration, len(at)+1)}
	for i, t := range at {
		m.sums[i+1] = m.sums[i] + t
	}
	return m
}

// since returns the time from each moment before t until t, added up.
func (m moments) since(t time.Duration) time.Duration {
	n := sort.Search(len(m.at), func(i int) bool { return m.at[i] >= t })
	return time.Duration(n)*t - m.sums[n]
}

// waiters returns those for each rank: the skew of the others on its account.
func (tl *timeline) waiters() []waiters {
	begins, ends := make([][]time.Duration, len(tl.pieces)), make([][]time.Duration, len(tl.pieces))
	for r := range tl.pieces {
		for i := range tl.pieces[r] {
			if p := &tl.pieces[r][i]; p.part == InSkew && p.culprit != r {
				begins[p.culprit] = append(begins[p.culprit], p.begin)
				ends[p.culprit] = append(ends[p.culprit], p.end)
			}
		}
	}
	out := make([]waiters, len(tl.pieces))
	for r := range out {
		out[r] = waiters{newMoments(begins[r]), newMoments(ends[r])}
	}
	return out
}

// within returns how long the others waited during a stretch of time, added up.
func (w waiters) within(begin, end time.Duration) time.Duration {
	until := func(t time.Duration) time.Duration { return w.begins.since(t) - w.ends.since(t) }
	return until(end) - until(begin)
}
