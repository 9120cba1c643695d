package trace

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sort"
	"time"
)

// Part is what a piece of a rank's time went into.
type Part uint8

// The parts of a rank's time. At every moment the innermost event of the
// computing goroutine counts, but a test phase or a snapshot is one as a whole.
const (
	InForward  Part = iota // the layers' forward passes
	InBackward             // the layers' backward passes
	InUpdate               // the solver's update
	// InExposed is communication that nothing hides: the part of a WaitPush or
	// WaitPull after the last rank has begun that collective.
	InExposed
	// InSkew is the part of a wait before the last rank, another one, has begun
	// that collective: no network would make it shorter.
	InSkew
	InInput    // waiting for a batch
	InSync     // as InExposed, of a Sync
	InTest     // test phases
	InSnapshot // snapshots
	InOther    // all the rest: between the events above
	// Parts is how many there are.
	Parts
)

var partNames = [Parts]string{"forward", "backward", "update", "exposed", "skew", "input", "sync", "test", "snapshot", "other"}

// String returns the part's name, such as "exposed".
func (p Part) String() string { return partNames[p] }

func (k Kind) part() Part {
	switch k {
	case Forward:
		return InForward
	case Backward:
		return InBackward
	case Update:
		return InUpdate
	case WaitPush, WaitPull:
		return InExposed
	case Input:
		return InInput
	case Sync:
		return InSync
	case Test:
		return InTest
	case Snapshot:
		return InSnapshot
	}
	return InOther
}

// piece is a stretch of a rank's computing goroutine that went into one part.
// The pieces of a rank lie side by side without gaps.
type piece struct {
	begin, end time.Duration
	part       Part
	event      int   // index in the rank's Events; -1 between events
	iter       int32 // the iteration that the rank was in, or none
	culprit    int   // of InSkew: the rank that began last
}

func (p *piece) length() time.Duration { return p.end - p.begin }

// identity of a collective across ranks.
type identity struct {
	kind   Kind
	bucket int32
	iter   int32
	name   string // of a Sync
	nth    int    // of a Sync: the how many-th of that name in the iteration
}

// start is what is known of a collective's begins on all ranks.
type start struct {
	last  time.Duration
	rank  int // who began last
	ranks int // how many have begun
}

// timeline is a trace made ready for analysis and for pictures.
type timeline struct {
	t      *Trace
	starts map[identity]*start
	syncs  []map[int]identity // of each rank, by event
	pieces [][]piece          // of each rank
}

func newTimeline(t *Trace) *timeline {
	tl := &timeline{t: t, starts: map[identity]*start{}}
	for r := range t.Ranks {
		tl.syncs = append(tl.syncs, tl.begins(r))
	}
	for r := range t.Ranks {
		tl.pieces = append(tl.pieces, tl.cut(r))
	}
	return tl
}

// begins notes where rank r begins collectives, and returns what its Syncs are.
func (tl *timeline) begins(r int) map[int]identity {
	syncs, seen := map[int]identity{}, map[identity]int{}
	counted := map[identity]bool{}
	for i := range tl.t.Ranks[r].Events {
		e := &tl.t.Ranks[r].Events[i]
		id := identity{kind: e.Kind, iter: e.Iter}
		switch e.Kind {
		case Push, Pull:
			id.bucket = e.Bucket
		case Sync:
			id.name = e.Name
			seen[id]++
			id.nth = seen[id]
			syncs[i] = id
		default:
			continue
		}
		s := tl.starts[id]
		if s == nil {
			s = &start{last: math.MinInt64}
			tl.starts[id] = s
		}
		if e.Begin > s.last {
			s.last, s.rank = e.Begin, r
		}
		if !counted[id] {
			counted[id] = true
			s.ranks++
		}
	}
	return syncs
}

// start returns when the last rank began what event i of rank r waits for; nil
// where it waits for no other rank, or that is not known.
func (tl *timeline) start(r, i int) *start {
	e := &tl.t.Ranks[r].Events[i]
	id := identity{bucket: e.Bucket, iter: e.Iter}
	switch e.Kind {
	case WaitPush:
		id.kind = Push
	case WaitPull:
		id.kind = Pull
	case Sync:
		id = tl.syncs[r][i]
		if s := tl.starts[id]; s.ranks == len(tl.t.Ranks) {
			return s
		}
		return nil // not one that all ranks take part in
	default:
		return nil
	}
	return tl.starts[id]
}

// cut returns the pieces of a rank's computing goroutine.
func (tl *timeline) cut(r int) []piece {
	es := tl.t.Ranks[r].Events
	var out []piece
	var now time.Duration
	var open []int // events that are under way, the innermost last
	until := func(end time.Duration) {
		for now < end {
			open = slices.DeleteFunc(open, func(i int) bool { return es[i].End <= now })
			p := piece{begin: now, end: end, part: InOther, event: -1, culprit: -1}
			p.event, p.part = innermost(es, open)
			for _, i := range open { // until the next change
				p.end = min(p.end, es[i].End)
			}
			out = tl.split(out, r, p)
			now = p.end
		}
	}
	first, last := true, time.Duration(0)
	for i := range es {
		if es[i].Kind.track() != compute {
			continue
		}
		if first {
			now, last, first = es[i].Begin, es[i].End, false
		}
		until(es[i].Begin)
		open = append(open, i)
		last = max(last, es[i].End)
	}
	if !first {
		until(last)
	}
	return tl.divide(out, r)
}

// innermost returns which of the events under way counts, and as what: the last
// one, but a test phase or a snapshot as a whole; what another goroutine updates
// does not keep a layer from computing, and what is waited for is then the update.
func innermost(es []Record, open []int) (event int, part Part) {
	event, part = -1, InOther
	rank := func(k Kind) int {
		switch {
		case k == Test || k == Snapshot:
			return 4
		case k.hasLayer():
			return 3
		case k == Update:
			return 2
		case k == Iteration:
			return 0
		}
		return 1
	}
	for _, i := range open {
		if event < 0 || rank(es[i].Kind) >= rank(es[event].Kind) {
			event, part = i, es[i].Kind.part()
		}
	}
	return event, part
}

// split appends p, a wait in two where the last rank begins in its midst.
func (tl *timeline) split(out []piece, r int, p piece) []piece {
	if p.event < 0 {
		return append(out, p)
	}
	s := tl.start(r, p.event)
	if s == nil || s.last <= p.begin || s.rank == r { // a rank does not wait for itself to begin
		return append(out, p)
	}
	skew := p
	skew.part, skew.culprit, skew.end = InSkew, s.rank, min(p.end, s.last)
	out = append(out, skew)
	if p.begin = skew.end; p.begin < p.end {
		out = append(out, p)
	}
	return out
}

// period is the time of an iteration on a rank.
type period struct {
	iter       int32
	begin, end time.Duration
}

// none is the iteration of what belongs to none.
const none = math.MinInt32

// periods returns when the iterations are on a rank. They begin with their
// Iteration event, and last until the next; the last one until its event's
// end. Without any such event they begin and end with what else the computing
// goroutine does, apart from waiting for others: that may be for what the
// iteration before has started.
func (tl *timeline) periods(r int) []period {
	es := tl.t.Ranks[r].Events
	marks := slices.ContainsFunc(es, func(e Record) bool { return e.Kind == Iteration })
	of := map[int32]period{}
	for i := range es {
		e := &es[i]
		switch wait := e.Kind == WaitPush || e.Kind == WaitPull || e.Kind == Sync; {
		case marks && e.Kind != Iteration, wait && !marks, e.Kind.track() != compute:
			continue
		}
		p, known := of[e.Iter]
		if !known { // events are in order
			p = period{e.Iter, e.Begin, e.End}
		}
		p.end = max(p.end, e.End)
		of[e.Iter] = p
	}
	out := slices.SortedFunc(maps.Values(of), func(a, b period) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.iter, b.iter))
	})
	for i := range len(out) - 1 {
		out[i].end = out[i+1].begin
	}
	return out
}

// divide says for every piece which iteration it belongs to. A piece over the
// boundary is cut there.
func (tl *timeline) divide(ps []piece, r int) []piece {
	var cuts []period // without gaps, the last without end
	at := time.Duration(math.MinInt64)
	for _, p := range tl.periods(r) {
		cuts = append(cuts, period{none, at, p.begin}, p)
		at = p.end
	}
	cuts = append(cuts, period{none, at, math.MaxInt64})
	var out []piece
	k := 0
	for _, p := range ps {
		for cuts[k].end <= p.begin {
			k++
		}
		for cuts[k].end < p.end {
			if head := p; cuts[k].end > p.begin {
				head.end, head.iter = cuts[k].end, cuts[k].iter
				out = append(out, head)
				p.begin = head.end
			}
			k++
		}
		p.iter = cuts[k].iter
		out = append(out, p)
	}
	return out
}

// at returns the piece of rank r that ends at t or holds the moment before it;
// nil where the rank has not begun by then.
func (tl *timeline) at(r int, t time.Duration) *piece {
	ps := tl.pieces[r]
	i := sort.Search(len(ps), func(i int) bool { return ps[i].end >= t })
	if i == len(ps) {
		i--
	}
	if i < 0 || ps[i].begin >= t {
		return nil
	}
	return &ps[i]
}
