package trace

import (
	"math"
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
// to the begin of the first.
//
// It begins at the rank that ends last, and follows that rank back in time.
// Where the rank waited for a collective, the time since the last rank began
// that collective is exposed communication; before, the path is at the rank
// that began last, and goes on there. What that rank computed while the other
// already waited is skew: with evenly loaded ranks it would not be there. (What
// else it did then, such as the update or waiting for input, keeps its name.)
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
	w := walk{tl: tl, rank: rank, now: now, waited: math.MaxInt64, been: make([]bool, len(tl.pieces))}
	for p := tl.at(w.rank, w.now); p != nil && in[p.iter]; p = tl.at(w.rank, w.now) {
		w.step(p)
	}
	return w.out
}

// walk is the way back under way.
type walk struct {
	tl     *timeline
	rank   int
	now    time.Duration
	waited time.Duration // since when another rank waits for this one; beyond now: none does
	been   []bool        // the ranks that the path has been at at this very moment
	out    []segment     // backwards
}

func (w *walk) step(p *piece) {
	w.been[w.rank] = true
	if p.part == InSkew && !w.been[p.culprit] && w.tl.at(p.culprit, w.now) != nil {
		w.waited = min(w.waited, p.begin)
		w.rank = p.culprit
		return
	}
	part, begin := p.part, p.begin
	if (part == InForward || part == InBackward) && w.waited < w.now {
		part, begin = InSkew, max(begin, w.waited)
	}
	w.add(segment{w.rank, begin, w.now, part, p.iter})
	w.now = begin
	if w.now <= w.waited {
		w.waited = math.MaxInt64
	}
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
