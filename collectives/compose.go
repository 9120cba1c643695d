package collectives

import (
	"fmt"

	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check"
)

// Verb is a collective operation.
type Verb uint8

const (
	// Reduce combines everyone's In into the root's Out.
	Reduce Verb = iota
	// Bcast copies the root's Out to everyone's Out.
	Bcast
	// Allreduce combines everyone's In into everyone's Out.
	Allreduce
)

// String returns reduce, bcast or allreduce.
func (v Verb) String() string {
	if int(v) < 3 {
		return [...]string{"reduce", "bcast", "allreduce"}[v]
	}
	return fmt.Sprintf("verb(%d)", uint8(v))
}

// ParseVerb is the inverse of String.
func ParseVerb(s string) (Verb, error) {
	for v := Reduce; v <= Allreduce; v++ {
		if v.String() == s {
			return v, nil
		}
	}
	return 0, fmt.Errorf("unknown collective %q: use reduce, bcast or allreduce", s)
}

// Call is one rank's view of a collective.
type Call struct {
	Verb             Verb
	Rank, Size, Root int
	// Count is the number of elements, ElemSize that of bytes of each; the
	// latter turns the spec's chunks into elements.
	Count, ElemSize int
}

// Build returns the schedule of the calling rank. It is a pure function: all
// ranks that agree on the call and the spec have schedules that fit together.
func Build(c Call, s Spec) (*schedule.Schedule, error) {
	p := schedule.Params{Rank: c.Rank, Size: c.Size, Root: c.Root, Count: c.Count}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if c.ElemSize < 1 {
		return nil, fmt.Errorf("collectives: elements of %d bytes", c.ElemSize)
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	b := schedule.NewBuilder(c.Rank, c.Size, c.Count)
	levels := groups(p, s)
	switch c.Verb {
	case Reduce:
		reduce(b, c, levels)
	case Bcast:
		bcast(b, c, levels)
	case Allreduce: // joined by the ranges they touch: chunk 0 goes down while chunk 7 comes up
		reduce(b, c, levels)
		bcast(b, c, levels)
	default:
		return nil, fmt.Errorf("collectives: unknown verb %v", c.Verb)
	}
	return b.Schedule(), nil
}

// Check proves the schedules of all ranks of a collective right together.
func Check(v Verb, all []*schedule.Schedule, root int) error {
	switch v {
	case Reduce:
		return check.Reduce(all, root)
	case Bcast:
		return check.Bcast(all, root)
	}
	return check.Allreduce(all)
}

// group is the part of one level that a rank belongs to.
type group struct {
	Level
	ranks []int // its members, the leader first
	at    int   // the rank's own position
}

// params returns what the group's algorithm is a function of.
func (g group) params(c Call) schedule.Params {
	bytes := g.Chunk
	if bytes == 0 {
		bytes = DefaultChunk
	}
	return schedule.Params{Rank: g.at, Size: len(g.ranks), Count: c.Count, Chunk: max(1, bytes/c.ElemSize)}
}

// groups returns the groups that the rank belongs to, lowest level first: at
// every level those consecutive members, counted from the root, up to the
// level where the rank is not the leader.
func groups(p schedule.Params, s Spec) []group {
	members := make([]int, p.Size)
	for i := range members {
		members[i] = p.Absolute(i)
	}
	at := p.Relative()
	var gs []group
	for _, l := range s.Levels {
		size := l.Size
		if size == 0 {
			size = len(members)
		}
		first := at / size * size
		gs = append(gs, group{l, members[first:min(first+size, len(members))], at - first})
		if at != first {
			break
		}
		var leaders []int
		for i := 0; i < len(members); i += size {
			leaders = append(leaders, members[i])
		}
		members, at = leaders, at/size
	}
	return gs
}

// reduce adds the way up. A leader's sum of one level is its contribution to
// the next: in Out at the root, else in Scratch.
func reduce(b *schedule.Builder, c Call, levels []group) {
	whole := schedule.Range{Len: c.Count}
	sum := schedule.In.At(whole)
	for _, g := range levels {
		if len(g.ranks) == 1 {
			continue
		}
		into := sum
		switch {
		case c.Rank == c.Root:
			into = schedule.Out.At(whole)
		case g.at == 0 && sum.Buf == schedule.In:
			into = b.Reserve(c.Count)
		}
		algorithms[g.Algorithm].reduce(b.On(g.ranks, sum, into), g.params(c))
		sum = into
	}
	if c.Rank == c.Root && c.Count > 0 && sum.Buf == schedule.In { // nobody else has anything to add
		b.Copy(sum, schedule.Out.At(whole))
	}
}

// bcast adds the way down, the highest level first.
func bcast(b *schedule.Builder, c Call, levels []group) {
	out := schedule.Out.At(schedule.Range{Len: c.Count})
	for i := len(levels) - 1; i >= 0; i-- {
		g := levels[i]
		algorithms[g.Algorithm].bcast(b.On(g.ranks, out, out), g.params(c))
	}
}
