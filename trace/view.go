package trace

import (
	"fmt"
	"time"

	"github.com/scaffe/scaffe/internal/svg"
)

// class is what an item of a picture is colored by: a Part, or one of those
// below for what runs alongside the computing goroutine.
type class uint8

const (
	inFlightUp class = class(Parts) + iota
	inFlightDown
	readAhead
	wasOvertaken
	wasLetGo
	copied
	classes
)

// classNames name the classes in legends.
var classNames = func() (names [classes]string) {
	for p := range Parts {
		names[p] = p.String()
	}
	names[InExposed], names[InSkew] = "exposed wait", "skew: wait for the last rank to begin"
	names[inFlightUp], names[inFlightDown], names[readAhead] = "push in flight", "pull in flight", "read"
	names[wasOvertaken], names[wasLetGo] = "held back and overtaken", "held back, let go by patience"
	names[copied] = "copy between host and GPU"
	return names
}()

// short names a class in a box.
func (c class) short() string {
	if c < class(Parts) {
		return Part(c).String()
	}
	return [...]string{"push", "pull", "read", "overtaken", "let go", "copy"}[c-inFlightUp]
}

// item is a box of a picture.
type item struct {
	begin, end time.Duration
	class      class
	row        int // of the rank's rows
	event      int // index in the rank's Events
}

// view is a rank as pictures show it: the computing goroutine in its first row,
// without overlaps; then the lanes of the other tracks.
type view struct {
	items   []item
	rows    [tracks]int // how many of each track
	periods []period
}

// view returns what pictures show of rank r.
func (tl *timeline) view(r int) view {
	es := tl.t.Ranks[r].Events
	of := tracksOf(es)
	lane, used := lanes(es, of)
	v := view{rows: used, periods: tl.periods(r)}
	v.rows[compute] = 1
	for i := range tl.pieces[r] {
		p := &tl.pieces[r][i]
		if p.part == InOther {
			continue
		}
		if n := len(v.items); n > 0 { // cut at an iteration's boundary
			if l := &v.items[n-1]; l.event == p.event && l.class == class(p.part) && l.end == p.begin {
				l.end = p.end
				continue
			}
		}
		v.items = append(v.items, item{p.begin, p.end, class(p.part), 0, p.event})
	}
	first := [tracks]int{}
	for tr := compute + 1; tr < tracks; tr++ {
		first[tr] = first[tr-1] + v.rows[tr-1]
	}
	classOf := [tracks]class{helper: class(InUpdate), up: inFlightUp, down: inFlightDown, reader: readAhead, disorder: wasOvertaken, device: class(InForward), copyUp: copied, copyDown: copied}
	for i := range es {
		if tr := of[i]; tr != compute {
			c := classOf[tr]
			switch es[i].Kind {
			case LetGo:
				c = wasLetGo
			case OnBackward:
				c = class(InBackward)
			}
			v.items = append(v.items, item{es[i].Begin, es[i].End, c, first[tr] + lane[i], i})
		}
	}
	return v
}

// within returns what of a view lies in a stretch of time, without the lanes
// that have nothing there.
func (v view) within(begin, end time.Duration) view {
	var kept []item
	used := map[int]bool{0: true}
	for _, it := range v.items {
		it.begin, it.end = max(it.begin, begin), min(it.end, end)
		if it.begin < it.end || it.begin == it.end && it.begin > begin && it.end < end {
			kept = append(kept, it)
			used[it.row] = true
		}
	}
	var to []int // of each row, the new one
	row, next := 0, 0
	for tr, n := range v.rows {
		v.rows[tr] = 0
		for range n {
			to = append(to, next)
			if used[row] {
				v.rows[tr]++
				next++
			}
			row++
		}
	}
	for i := range kept {
		kept[i].row = to[kept[i].row]
	}
	v.items = kept
	return v
}

// title is a caption of a picture of the trace.
func (t *Trace) title() string {
	out := svg.Count(len(t.Ranks), "rank")
	for _, key := range []string{"net", "profile", "design", "algorithm", "aggregate"} {
		if v := t.Meta[key]; v != "" {
			out += " · " + v
		}
	}
	return out
}

// window returns the time that some iterations take, from the first rank's
// begin of the first to the last rank's end of the last.
func (tl *timeline) window(s Span) (begin, end time.Duration, err error) {
	found := false
	for r := range tl.t.Ranks {
		for _, p := range tl.periods(r) {
			if !s.Contains(int(p.iter)) {
				continue
			}
			if !found {
				begin, end, found = p.begin, p.end, true
			}
			begin, end = min(begin, p.begin), max(end, p.end)
		}
	}
	if !found || end <= begin {
		return 0, 0, fmt.Errorf("the trace has no events of iterations %v: it has %s", s, tl.has())
	}
	return begin, end, nil
}

// has says which iterations the trace has.
func (tl *timeline) has() string {
	first, last, found := int32(0), int32(0), false
	for r := range tl.t.Ranks {
		for _, p := range tl.periods(r) {
			if !found {
				first, last, found = p.iter, p.iter, true
			}
			first, last = min(first, p.iter), max(last, p.iter)
		}
	}
	if !found {
		return "none"
	}
	return fmt.Sprintf("%d to %d", first, last)
}
