package check

import (
	"fmt"
	"slices"

	"github.com/scaffe/scaffe/schedule"
)

// Prove proves that all, one schedule per rank in the order of ranks, are the
// collective c: that they leave the sum of every rank's In in root's Out (Reduce) or
// in every rank's Out (Allreduce), or in every rank's Out what root's Out held at the
// start (Bcast) or everyone's part of In (Allgather; in root's alone: Gather), or in every rank's Out its
// part of the sum and nothing else (ReduceScatter) or of root's In (Scatter), or its block of everyone's In (Alltoall). Where there is no root, root says nothing. counts are those of the parts; none: equal ones.
func Prove(c schedule.Collective, all []*schedule.Schedule, root int, counts ...int) error {
	if !c.Valid() {
		return fmt.Errorf("check: unknown %v", c)
	}
	g := goal{Collective: c, root: root}
	if !c.Rooted() {
		g.root = 0
	}
	if c.Parts() && len(all) > 0 && all[0] != nil {
		var err error
		if g.parts, err = parts(all[0].Count, len(all), counts); err != nil {
			return err
		}
	}
	return prove(all, g)
}

// parts returns where every rank's part lies in a buffer.
func parts(count, size int, counts []int) ([]schedule.Range, error) {
	if counts == nil {
		var equal []schedule.Range
		for k := range size {
			from, to := count*k/size, count*(k+1)/size
			equal = append(equal, schedule.Range{Off: from, Len: to - from})
		}
		return equal, nil
	}
	split := schedule.Split(counts)
	if len(counts) != size || split[size-1].End() != count || slices.Min(counts) < 0 {
		return nil, fmt.Errorf("check: parts of %v elements are not those of %d ranks and of %d elements in all", counts, size, count)
	}
	return split, nil
}

// goal is what a collective starts from and has to arrive at.
type goal struct {
	schedule.Collective
	root  int
	parts []schedule.Range // of a collective of parts, by rank
}

// start is what a rank has at the start.
func (g goal) start(rank, count int) schedule.Ref {
	whole := schedule.Range{Len: count}
	switch {
	case g.Gathers():
		return schedule.In.At(g.parts[rank])
	case g.Reduces(), g.Collective == schedule.Alltoall, g.Collective == schedule.Scatter && rank == g.root:
		return schedule.In.At(whole)
	case g.Collective == schedule.Bcast && rank == g.root:
		return schedule.Out.At(whole)
	}
	return schedule.Out.At(schedule.Range{})
}

// end is what a rank's result consists of, from front to back: ranges with whose
// contributions they are to hold, to which elements.
func (g goal) end(rank, size, count int) (want []cell[term]) {
	one := func(rank int) set {
		s := make(set, (size+63)/64)
		s[rank/64] = 1 << (rank % 64)
		return s
	}
	if g.Gathers() {
		for rank, r := range g.parts {
			if r.Len > 0 {
				want = append(want, cell[term]{r.Off, r.End(), term{ranks: one(rank)}})
			}
		}
		return want
	}
	if g.Collective == schedule.Alltoall {
		p := schedule.Params{Size: size, Count: count}
		for from := range size {
			if r := p.Block(from); r.Len > 0 {
				want = append(want, cell[term]{r.Off, r.End(), term{one(from), p.Block(rank).Off - r.Off}})
			}
		}
		return want
	}
	all := one(g.root)
	if g.Reduces() {
		for rank := range size {
			all = all.or(one(rank))
		}
	}
	if own := g.out(rank, count); own.Len > 0 {
		want = append(want, cell[term]{own.Off, own.End(), term{ranks: all}})
	}
	return want
}

// out is the part of Out that a rank with a result has.
func (g goal) out(rank, count int) schedule.Range {
	if g.Parts() && !g.Gathers() {
		return g.parts[rank]
	}
	return schedule.Range{Len: count}
}

// has reports whether rank has a result, hence an Out.
func (g goal) has(rank int) bool {
	return g.Collective != schedule.Reduce && g.Collective != schedule.Gather || rank == g.root
}

func prove(all []*schedule.Schedule, g goal) error {
	if err := form(all, g); err != nil {
		return err
	}
	j, err := join(all)
	if err != nil {
		return err
	}
	for _, s := range all {
		if err := races(s); err != nil {
			return err
		}
	}
	order, err := j.order()
	if err != nil {
		return err
	}
	for _, inPlace := range []bool{false, true} {
		if inPlace && (g.Collective == schedule.Bcast || !slices.ContainsFunc(all, func(s *schedule.Schedule) bool { return !s.Apart })) {
			break // which has no In, or one that lies apart on every rank
		}
		if err := j.sum(g, order, inPlace); err != nil {
			return err
		}
	}
	return nil
}
