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
	// Gather copies everyone's part to the root's Out, laid out as an Allgather's.
	Gather
	// ReduceScatter combines everyone's In, and leaves every rank its own part of the
	// result, in Out at the place that it has in In; nothing else of Out is there.
	ReduceScatter
	// Alltoall copies block k of every rank's In to rank k's Out, in the order of ranks: the buffers
	// consist of as many blocks as there are ranks, of Count/Size elements each. What is left of Count
	// where the ranks do not divide it is not used. In and Out lie apart (Builder.Apart).
	Alltoall
	// Scatter copies every rank's part of the root's In to that rank's Out, to the place that it has in
	// In; nothing else of Out is there.
	Scatter
)

// Collectives lists all of them.
var Collectives = []Collective{Reduce, Bcast, Allreduce, Allgather, ReduceScatter, Alltoall, Gather, Scatter}

var collectives = [...]string{
	Reduce: "reduce", Bcast: "bcast", Allreduce: "allreduce", Allgather: "allgather", Gather: "gather",
	ReduceScatter: "reduce_scatter", Alltoall: "alltoall", Scatter: "scatter",
}

// Valid reports whether c is a Collective.
func (c Collective) Valid() bool { return int(c) < len(collectives) }

// Reduces reports whether c combines contributions; otherwise it copies.
func (c Collective) Reduces() bool { return c == Reduce || c == Allreduce || c == ReduceScatter }

// Rooted reports whether c has a root.
func (c Collective) Rooted() bool { return c == Reduce || c == Bcast || c == Gather || c == Scatter }

// Parts reports whether everyone has a part of the buffer (Params.Parts), which it gives
// or gets.
func (c Collective) Parts() bool { return c.Gathers() || c == ReduceScatter || c == Scatter }

// ByRank reports whether the buffer consists of something for every rank, so that each has to do
// with a share of it.
func (c Collective) ByRank() bool { return c.Parts() || c == Alltoall }

// Gathers reports whether everyone gives a part of the buffer.
func (c Collective) Gathers() bool { return c == Allgather || c == Gather }

// String returns reduce, bcast, allreduce, allgather, gather, reduce_scatter, alltoall or scatter.
func (c Collective) String() string {
	if c.Valid() {
		return collectives[c]
	}
	return fmt.Sprintf("collective(%d)", uint8(c))
}

// ParseCollective reads the name of one of Collectives.
func ParseCollective(s string) (Collective, error) {
	var names []string
	for _, c := range Collectives {
		if c.String() == s {
			return c, nil
		}
		names = append(names, c.String())
	}
	last := len(names) - 1
	return 0, fmt.Errorf("unknown collective %q: use %s or %s", s, strings.Join(names[:last], ", "), names[last])
}

// Algorithm is a family of builders: what adds each collective to a Builder. A
// family may lack Reduce and Bcast, and then serves those without a root alone, or Reduce alone, and then serves Bcast and Allgather; or a Gather or Scatter; or an
// Allreduce of its own, which is then the reduction to the root joined to the
// broadcast; or an Allgather, which is then everyone's part sent to the root, joined
// to the broadcast; or a ReduceScatter, which is then the reduction of each rank's part to
// that rank. An Alltoall is always its own.
type Algorithm struct {
	Reduce, Bcast, Allreduce, Allgather, Gather, Scatter, ReduceScatter, Alltoall func(*Builder, Params)
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
	case c == Allreduce && a.Allreduce != nil, c == Allgather && a.Allgather != nil, c == ReduceScatter && a.ReduceScatter != nil:
		return true
	case c == Bcast, c == Allgather:
		return a.Bcast != nil
	case c == Gather:
		return a.Gather != nil
	case c == Scatter:
		return a.Scatter != nil
	case c == Alltoall:
		return a.Alltoall != nil
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
		b.GatherParts(p)
		a.spread(b, p)
		return
	case c == Gather:
		a.Gather(b, p)
		return
	case c == Scatter:
		a.Scatter(b, p)
		return
	case c == Alltoall:
		a.Alltoall(b, p)
		return
	case c == ReduceScatter && a.ReduceScatter != nil:
		a.ReduceScatter(b, p)
		return
	case c == ReduceScatter:
		a.reduceParts(b, p)
		return
	case c.Reduces():
		a.Reduce(b, p)
	}
	if c != Reduce {
		a.Bcast(b, p)
	}
}

// spread adds that the parts go from the root to everyone. Below other levels they are
// not the whole buffer.
func (a Algorithm) spread(b *Builder, p Params) {
	all := p.everyone()
	for _, r := range p.PartsOf(0, p.Size) {
		q := p
		q.Count = r.Len
		a.Bcast(b.Sub(all, Out.At(r), Out.At(r)), q)
	}
}

// reduceParts adds that every part is reduced to the rank whose it is. All ranks have the
// reductions in the same order: in different ones two of them could wait for each other's
// scratch memory.
func (a Algorithm) reduceParts(b *Builder, p Params) {
	all := p.everyone()
	for k := range p.Size {
		q := p
		q.Root = k
		for _, r := range p.PartsOf(k, 1) {
			q.Count = r.Len
			a.Reduce(b.Sub(all, In.At(r), Out.At(r)), q)
		}
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
