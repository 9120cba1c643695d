package schedule

import (
	"fmt"
	"slices"
	"strings"
)

// Collective is a collective operation.
type Collective uint8

const (
	// Reduce combines everyone's In into the root's Out.
	Reduce Collective = iota
	// Bcast copies the root's Out to everyone's Out.
	Bcast
	// Allreduce combines everyone's In into everyone's Out.
	Allreduce
	// Allgather copies everyone's part to everyone's Out, in the order of ranks. A
	// rank's part lies in its In at the place that it has in Out; nothing else does.
	Allgather
)

// Collectives lists every Collective.
var Collectives = []Collective{Reduce, Bcast, Allreduce, Allgather}

var collectives = [...]string{Reduce: "reduce", Bcast: "bcast", Allreduce: "allreduce", Allgather: "allgather"}

// Valid reports whether c is one of Collectives.
func (c Collective) Valid() bool { return int(c) < len(collectives) }

// Reduces reports whether c combines contributions; otherwise it copies.
func (c Collective) Reduces() bool { return c == Reduce || c == Allreduce }

// Rooted reports whether c has a root.
func (c Collective) Rooted() bool { return c == Reduce || c == Bcast }

// String returns reduce, bcast, allreduce or allgather.
func (c Collective) String() string {
	if c.Valid() {
		return collectives[c]
	}
	return fmt.Sprintf("collective(%d)", uint8(c))
}

// ParseCollective is the inverse of String.
func ParseCollective(s string) (Collective, error) {
	for _, c := range Collectives {
		if c.String() == s {
			return c, nil
		}
	}
	return 0, fmt.Errorf("unknown collective %q: use %s or %s", s, strings.Join(collectives[:len(collectives)-1], ", "), collectives[len(collectives)-1])
}

// Algorithm is a family of builders: what adds each collective to a Builder. A
// family may lack Reduce and Bcast, and then serves those without a root alone; or an
// Allreduce of its own, which is then the reduction to the root joined to the
// broadcast; or an Allgather, which is then everyone's part sent to the root, joined
// to the broadcast.
type Algorithm struct {
	Reduce, Bcast, Allreduce, Allgather func(*Builder, Params)
	// Order returns the ranges of the buffer in the order in which Allreduce wants
	// p.Rank's contribution, and in that in which p.Rank has the results; nil:
	// both from front to back. The levels below such a rank go in that order
	// (Params.Order).
	Order func(p Params) (wants, has []Range)
}

// Collectives lists those that the family has.
func (a Algorithm) Collectives() []Collective {
	return slices.DeleteFunc(slices.Clone(Collectives), func(c Collective) bool { return !a.Serves(c) })
}

// Serves reports whether the family has c.
func (a Algorithm) Serves(c Collective) bool {
	switch {
	case c == Allreduce && a.Allreduce != nil, c == Allgather && a.Allgather != nil:
		return true
	case c == Allgather:
		return a.Bcast != nil
	}
	return a.Reduce != nil
}

// Add adds one of the family's collectives to b.
func (a Algorithm) Add(b *Builder, c Collective, p Params) {
	switch {
	case c == Allreduce && a.Allreduce != nil:
		a.Allreduce(b, p)
		return
	case c == Allgather && a.Allgather != nil:
		a.Allgather(b, p)
		return
	case c == Allgather:
		gather(b, p)
		a.spread(b, p)
		return
	case c.Reduces():
		a.Reduce(b, p)
	}
	if c != Reduce {
		a.Bcast(b, p)
	}
}

// gather adds that everyone's part goes to the root's Out.
func gather(b *Builder, p Params) {
	if p.Rank != p.Root {
		for _, c := range p.PartChunks(p.Rank) {
			b.Send(p.Root, In.At(c))
		}
		return
	}
	b.CopyPart(p)
	for i := 1; i < p.Size; i++ {
		from := (p.Root + i) % p.Size
		for _, c := range p.PartChunks(from) {
			b.Recv(from, Out.At(c))
		}
	}
}

// spread adds that the parts go from the root to everyone. Below other levels they are
// not the whole buffer.
func (a Algorithm) spread(b *Builder, p Params) {
	all := make([]int, p.Size)
	for i := range all {
		all[i] = i
	}
	for _, r := range p.PartsOf(0, p.Size) {
		q := p
		q.Count = r.Len
		a.Bcast(b.Sub(all, Out.At(r), Out.At(r)), q)
	}
}

// Build returns the schedules of all ranks; p.Rank does not matter.
func (a Algorithm) Build(c Collective, p Params) []*Schedule {
	all := make([]*Schedule, p.Size)
	for p.Rank = range p.Size {
		b := NewBuilder(p.Rank, p.Size, p.Count)
		a.Add(b, c, p)
		all[p.Rank] = b.Schedule()
	}
	return all
}
