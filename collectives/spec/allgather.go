package spec

import (
	"fmt"

	"github.com/scaffe/scaffe/schedule"
)

// An allgather by levels: the ranks of a group give each other their parts, their
// leaders those of their groups, and so on; then every leader has all, and its group
// gets from it what it has not got yet. With a node as a group no part enters it twice.

// allgather adds an allgather, done as s says.
func (c Call) allgather(b *schedule.Builder, p schedule.Params, s Spec) error {
	parts, err := c.parts()
	if err != nil {
		return err
	}
	way, own := groups(c, p, s)
	all := members(p, c.node)
	brings := make([][][]schedule.Range, len(way)) // by level and member
	for i, g := range way {
		brings[i] = g.brings(all, parts)
	}
	whole := schedule.Range{Len: c.Count}
	from := schedule.In // where the rank's parts so far lie
	for i, g := range way[:own] {
		if len(g.ranks) == 1 {
			continue
		}
		q := g.params(c)
		q.Parts = brings[i]
		algorithms[g.Algorithm].Add(b.Sub(g.ranks, from.At(whole), schedule.Out.At(whole)), schedule.Allgather, q)
		from = schedule.Out
	}
	if c.Size == 1 {
		b.CopyAll()
	}
	for i := min(own, len(way)-1) - 1; i >= 0; i-- {
		var rest []schedule.Range
		for k := i + 1; k < len(way); k++ { // as they arrive at the leader, from the nearest level first
			rest = append(rest, way[k].others(brings[k])...)
		}
		if len(rest) > 0 {
			bcast(b, c, way[i:i+1], rest)
		}
	}
	return nil
}

// brings returns, for every member of a group, where the parts lie that it has when the
// levels below have done theirs.
func (g group) brings(all []int, parts [][]schedule.Range) [][]schedule.Range {
	brings := make([][]schedule.Range, len(g.ranks))
	for i := range brings {
		for _, rank := range all[g.below[i]:g.below[i+1]] {
			brings[i] = append(brings[i], parts[rank]...)
		}
		brings[i] = schedule.Join(brings[i])
	}
	return brings
}

// others returns what a member gets in its group, in the order of a ring.
func (g group) others(brings [][]schedule.Range) (ranges []schedule.Range) {
	for k := 1; k < len(brings); k++ {
		ranges = append(ranges, brings[(g.at+len(brings)-k)%len(brings)]...)
	}
	return ranges
}

// parts returns where every rank's part lies.
func (c Call) parts() ([][]schedule.Range, error) {
	parts := make([][]schedule.Range, c.Size)
	if c.Counts == nil {
		p := schedule.Params{Size: c.Size, Count: c.Count}
		for r := range parts {
			parts[r] = p.PartsOf(r, 1)
		}
		return parts, nil
	}
	sum := 0
	for r, n := range c.Counts {
		if n < 0 || r >= c.Size {
			return nil, fmt.Errorf("spec: parts of %v elements of %d ranks", c.Counts, c.Size)
		}
		parts[r] = schedule.Join([]schedule.Range{{Off: sum, Len: n}})
		sum += n
	}
	if sum != c.Count || len(c.Counts) != c.Size {
		return nil, fmt.Errorf("spec: parts of %v elements of %d ranks are not a buffer of %d", c.Counts, c.Size, c.Count)
	}
	return parts, nil
}
