package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/scaffe/scaffe/schedule"
)

// set is a set of ranks, one bit each. Sets are never changed once made.
type set []uint64

// term is what a cell holds in the symbolic run: the sum of the contributions
// of some ranks, each once, to the elements that lie shift further on.
type term struct {
	ranks set
	shift int
}

// piece is a stretch of a value on its way: n elements, the first of them
// element origin of the contributions of ranks.
type piece struct {
	n, origin int
	ranks     set
}

// summing is the state of one symbolic run.
type summing struct {
	*joint
	mem   [][3]*memory[term] // by rank and buffer
	sent  [][]piece          // by send: what it sends
	local []piece            // for reuse
}

// sum runs the schedules on symbols and compares what comes out with g.
func (j *joint) sum(g goal, order []event, inPlace bool) error {
	r := j.start(g, inPlace)
	for _, e := range order {
		if err := r.happen(e); err != nil {
			return r.explain(err, inPlace)
		}
	}
	for _, s := range j.all {
		if !g.has(s.Rank) {
			continue
		}
		if err := r.result(s, g); err != nil {
			return r.explain(err, inPlace)
		}
	}
	return nil
}

// start returns the state before the first op.
func (j *joint) start(g goal, inPlace bool) *summing {
	r := &summing{joint: j, mem: make([][3]*memory[term], len(j.all)), sent: make([][]piece, len(j.rank))}
	buffers := make([]memory[term], 3*len(j.all))
	words := (len(j.all) + 63) / 64
	singles := make(set, words*len(j.all))
	for rank, s := range j.all {
		m := &r.mem[rank]
		for b := range m {
			m[b] = &buffers[3*rank+b]
		}
		if inPlace && !s.Apart {
			m[schedule.Out] = m[schedule.In]
		}
		own := singles[rank*words : (rank+1)*words : (rank+1)*words]
		own[rank/64] = 1 << (rank % 64)
		if at := g.start(rank, s.Count); at.Len > 0 {
			m[at.Buf].cells = []cell[term]{{off: at.Off, end: at.End(), is: term{ranks: own}}}
		}
	}
	return r
}

// happen performs one event. A message is read when its send starts and
// arrives when its receive ends; between the two nothing writes to its source,
// since there are no races.
func (r *summing) happen(e event) error {
	n := e / 2
	s, i := r.at(n)
	o := &s.Ops[i]
	starts := e%2 == 0
	if starts != (o.Kind == schedule.Send) {
		return nil
	}
	var err error
	switch o.Kind {
	case schedule.Send:
		r.sent[n], err = r.read(s, i, o.Src, nil)
	case schedule.Recv:
		r.write(s, o.Dst, r.take(n))
	case schedule.Copy, schedule.Scale:
		if r.local, err = r.read(s, i, o.Src, r.local[:0]); err == nil {
			r.write(s, o.Dst, r.local)
		}
	case schedule.RecvReduce, schedule.Add:
		if r.local, err = r.read(s, i, o.Src, r.local[:0]); err != nil {
			return err
		}
		var total, other []piece
		if o.Kind == schedule.RecvReduce {
			other = r.take(n)
		} else if other, err = r.read(s, i, o.With, nil); err != nil {
			return err
		}
		if total, err = add(s, i, other, r.local); err == nil {
			r.write(s, o.Dst, total)
		}
	}
	return err
}

// take returns the message that receive n receives.
func (r *summing) take(n int32) []piece {
	message := r.sent[r.peer[n]]
	r.sent[r.peer[n]] = nil
	return message
}

// read appends what src, which op i of s reads, holds.
func (r *summing) read(s *schedule.Schedule, i int, src schedule.Ref, to []piece) ([]piece, error) {
	if src.Len == 0 {
		return to, nil
	}
	m := r.mem[s.Rank][src.Buf]
	from, end := m.carve(src.Off, src.End())
	at := src.Off
	for _, c := range m.cells[from:end] {
		if c.off > at {
			return nil, unwritten(s, i, src.Buf, at, c.off)
		}
		to = append(to, piece{n: c.end - c.off, origin: c.off + c.is.shift, ranks: c.is.ranks})
		at = c.end
	}
	if at < src.End() {
		return nil, unwritten(s, i, src.Buf, at, src.End())
	}
	return to, nil
}

func unwritten(s *schedule.Schedule, i int, b schedule.Buffer, off, end int) error {
	what := b.At(schedule.Range{Off: off, Len: end - off})
	return failOp(UninitialisedRead, s, i, "nothing was written to %s", what)
}

// write puts a value in its place.
func (r *summing) write(s *schedule.Schedule, dst schedule.Ref, value []piece) {
	if dst.Len == 0 {
		return
	}
	m := r.mem[s.Rank][dst.Buf]
	from, end := m.carve(dst.Off, dst.End())
	if len(value) == 1 && end-from == 1 { // the common case
		m.cells[from] = cell[term]{dst.Off, dst.End(), term{value[0].ranks, value[0].origin - dst.Off}}
		return
	}
	cells := make([]cell[term], len(value))
	at := dst.Off
	for k, p := range value {
		cells[k] = cell[term]{at, at + p.n, term{p.ranks, p.origin - at}}
		at += p.n
	}
	m.cells = slices.Replace(m.cells, from, end, cells...)
}

// operands says what an op adds.
var operands = map[bool]string{false: "the message and the local operand", true: "the local operands"}

// add returns message ⊕ local, equally long both, for op i of s.
func add(s *schedule.Schedule, i int, message, local []piece) ([]piece, error) {
	total := make([]piece, 0, max(len(message), len(local)))
	var m, l piece
	for at := s.Ops[i].Dst.Off; at < s.Ops[i].Dst.End(); {
		if m.n == 0 {
			m, message = message[0], message[1:]
		}
		if l.n == 0 {
			l, local = local[0], local[1:]
		}
		n := min(m.n, l.n)
		if m.origin != l.origin {
			return nil, failOp(Misplaced, s, i, "it adds element %d of rank %s to element %d of rank %s", m.origin, m.ranks, l.origin, l.ranks)
		}
		if both := m.ranks.and(l.ranks); both != nil {
			what := s.Ops[i].Dst.Buf.At(schedule.Range{Off: at, Len: n})
			return nil, failOp(DoubleContribution, s, i, "%s both contain rank %s, for %s", operands[s.Ops[i].Local()], both, what)
		}
		total = append(total, piece{n: n, origin: m.origin, ranks: m.ranks.or(l.ranks)})
		m.skip(n)
		l.skip(n)
		at += n
	}
	return total, nil
}

func (p *piece) skip(n int) {
	p.n -= n
	p.origin += n
}

// result compares a rank's Out with what the goal says.
func (r *summing) result(s *schedule.Schedule, g goal) error {
	for _, want := range g.end(s.Rank, len(r.all), s.Count) {
		if err := r.holds(s, want); err != nil {
			return err
		}
	}
	return nil
}

// holds compares a range of a rank's Out with what is due.
func (r *summing) holds(s *schedule.Schedule, want cell[term]) error {
	m := r.mem[s.Rank][schedule.Out]
	from, end := m.carve(want.off, want.end)
	at := want.off
	for _, c := range append(m.cells[from:end:end], cell[term]{off: want.end, end: want.end, is: want.is}) {
		out := schedule.Out.At(schedule.Range{Off: c.off, Len: c.end - c.off})
		switch {
		case c.off > at:
			return fail(MissingContribution, s.Rank, "%s is never written", schedule.Out.At(schedule.Range{Off: at, Len: c.off - at}))
		case c.is.shift != want.is.shift:
			return fail(Misplaced, s.Rank, "%s ends with the contributions to element %d and on", out, c.off+c.is.shift)
		case !slices.Equal(c.is.ranks, want.is.ranks):
			return fail(MissingContribution, s.Rank, "%s lacks the contribution of rank %s", out, want.is.ranks.not(c.is.ranks))
		}
		at = c.end
	}
	return nil
}

// explain adds to err in which of the runs it came up.
func (r *summing) explain(err error, inPlace bool) error {
	if e, ok := err.(*Error); ok && inPlace {
		e.Detail += " (when in and out are the same memory)"
	}
	return err
}

// or returns the union.
func (a set) or(b set) set {
	c := make(set, len(a))
	for w := range c {
		c[w] = a[w] | b[w]
	}
	return c
}

// and returns the intersection, nil where it is empty.
func (a set) and(b set) set {
	for w := range a {
		if a[w]&b[w] != 0 {
			c := make(set, len(a))
			for w := range c {
				c[w] = a[w] & b[w]
			}
			return c
		}
	}
	return nil
}

// not returns what a has and b has not.
func (a set) not(b set) set {
	c := make(set, len(a))
	for w := range c {
		c[w] = a[w] &^ b[w]
	}
	return c
}

// String returns the ranks as 0,2..5,9.
func (a set) String() string {
	var s strings.Builder
	has := func(r int) bool { return r/64 < len(a) && a[r/64]>>(r%64)&1 == 1 }
	for r := 0; r < 64*len(a); r++ {
		if !has(r) {
			continue
		}
		from := r
		for has(r + 1) {
			r++
		}
		if s.Len() > 0 {
			s.WriteByte(',')
		}
		if fmt.Fprintf(&s, "%d", from); r > from {
			fmt.Fprintf(&s, "..%d", r)
		}
	}
	return s.String()
}
