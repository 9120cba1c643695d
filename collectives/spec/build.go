package spec

import (
	"fmt"
	"slices"

	"github.com/scaffe/scaffe/schedule"
)

// Call is one rank's view of a collective.
type Call struct {
	Collective       schedule.Collective
	Rank, Size, Root int
	// Count is the number of elements, ElemSize that of bytes of each; the
	// latter turns the spec's chunks into elements.
	Count, ElemSize int
	// Nodes[r] is the node of rank r; nil: all are on one.
	Nodes []int
	// Scaled says that every rank's contribution to a reduction is divided first,
	// by what the execution says, into scratch memory (schedule.Scale).
	Scaled bool
}

// Build returns the schedule of the calling rank. It is a pure function: all
// ranks that agree on the call and the spec have schedules that fit together.
func Build(c Call, s Spec) (*schedule.Schedule, error) {
	b := schedule.NewBuilder(c.Rank, c.Size, c.Count)
	if err := c.add(b, s); err != nil {
		return nil, err
	}
	return b.Schedule(), nil
}

// add adds the call to b, done as s says.
func (c Call) add(b *schedule.Builder, s Spec) error {
	p := schedule.Params{Rank: c.Rank, Size: c.Size, Root: c.Root, Count: c.Count}
	if err := p.Validate(); err != nil {
		return err
	}
	if c.ElemSize < 1 {
		return fmt.Errorf("spec: elements of %d bytes", c.ElemSize)
	}
	if c.Nodes != nil && len(c.Nodes) != c.Size {
		return fmt.Errorf("spec: the nodes of %d ranks where there are %d", len(c.Nodes), c.Size)
	}
	if err := s.Validate(); err != nil {
		return err
	}
	last := s.Levels[len(s.Levels)-1].Algorithm
	switch {
	case s.IsLibrary():
		return fmt.Errorf("spec: spec %s has no schedule: it is the MPI library's own", s)
	case c.Collective != schedule.Allreduce && algorithms[last].Reduce == nil:
		return fmt.Errorf("spec: spec %s: %s serves allreduce alone, not %v", s, last, c.Collective)
	}
	levels := groups(c, p, s)
	if c.Scaled && c.Collective != schedule.Bcast && c.Size > 1 {
		b = scaled(b, c, levels[0].params(c))
	}
	switch c.Collective {
	case schedule.Reduce:
		reduce(b, c, levels)
	case schedule.Bcast:
		bcast(b, c, levels)
	case schedule.Allreduce:
		allreduce(b, c, levels, s)
	default:
		return fmt.Errorf("spec: unknown collective %v", c.Collective)
	}
	return nil
}

// scaled adds the scaling of In, and returns a view in which In is what it results
// in. It goes chunk by chunk, so that the first one leaves early.
func scaled(b *schedule.Builder, c Call, p schedule.Params) *schedule.Builder {
	into := b.Reserve(c.Count)
	for _, chunk := range p.Chunks() {
		b.Scale(schedule.In.At(chunk), schedule.Scratch.At(schedule.Range{Off: into.Off + chunk.Off, Len: chunk.Len}))
	}
	all := make([]int, c.Size)
	for i := range all {
		all[i] = i
	}
	return b.Sub(all, into, schedule.Out.At(schedule.Range{Len: c.Count}))
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

// members returns all ranks, the root first, then those after it, but with
// each node's ranks side by side.
func members(p schedule.Params, node func(int) int) []int {
	ranks := make([]int, p.Size)
	first := map[int]int{} // node -> when it first appears
	for i := range ranks {
		ranks[i] = p.Absolute(i)
		if _, seen := first[node(ranks[i])]; !seen {
			first[node(ranks[i])] = i
		}
	}
	slices.SortStableFunc(ranks, func(a, b int) int { return first[node(a)] - first[node(b)] })
	return ranks
}

// groups returns the groups that the rank belongs to, lowest level first: at
// every level those consecutive members that the level's size says, up to the
// level where the rank is not the leader.
func groups(c Call, p schedule.Params, s Spec) []group {
	node := func(r int) int {
		if c.Nodes == nil {
			return 0
		}
		return c.Nodes[r]
	}
	all := members(p, node)
	at := slices.Index(all, c.Rank)
	var gs []group
	for _, l := range s.Levels {
		var leaders []int
		var own group
		for first := 0; first < len(all); {
			end := l.end(all, first, node)
			if first <= at && at < end && own.ranks == nil {
				own = group{l, all[first:end], at - first}
				at = len(leaders) // its leader's place in the next level
			}
			leaders = append(leaders, all[first])
			first = end
		}
		gs = append(gs, own)
		if own.at != 0 {
			break
		}
		all = leaders
	}
	return gs
}

// end returns where the group ends that begins at members[first].
func (l Level) end(members []int, first int, node func(int) int) int {
	end := len(members)
	switch {
	case l.Size > 0:
		end = min(first+l.Size, end)
	case l.Size == Node:
		for end = first + 1; end < len(members) && node(members[end]) == node(members[first]); {
			end++
		}
	}
	return end
}

// reduce adds the way up. A leader's sum of one level is its contribution to
// the next: in Out at the root, else in Scratch.
func reduce(b *schedule.Builder, c Call, levels []group) {
	whole := schedule.Range{Len: c.Count}
	out := func() schedule.Ref { return b.Reserve(c.Count) }
	if c.Rank == c.Root {
		out = func() schedule.Ref { return schedule.Out.At(whole) }
	}
	sum := climb(b, c, levels, out)
	if c.Rank == c.Root {
		finish(b, sum)
	}
}

// climb adds the reductions of the levels, and returns where this rank's sum
// lies: still in In, or where out, called at most once, says.
func climb(b *schedule.Builder, c Call, levels []group, out func() schedule.Ref) schedule.Ref {
	sum := schedule.In.At(schedule.Range{Len: c.Count})
	for _, g := range levels {
		if len(g.ranks) == 1 {
			continue
		}
		into := sum
		if g.at == 0 && sum.Buf == schedule.In {
			into = out()
		}
		algorithms[g.Algorithm].Reduce(b.Sub(g.ranks, sum, into), g.params(c))
		sum = into
	}
	return sum
}

// finish adds a copy of the sum to Out where no rank had anything to add.
func finish(b *schedule.Builder, sum schedule.Ref) {
	if sum.Buf == schedule.In && sum.Len > 0 {
		b.Copy(sum, schedule.Out.At(sum.Range))
	}
}

// bcast adds the way down, the highest level first.
func bcast(b *schedule.Builder, c Call, levels []group) {
	out := schedule.Out.At(schedule.Range{Len: c.Count})
	for _, g := range slices.Backward(levels) {
		algorithms[g.Algorithm].Bcast(b.Sub(g.ranks, out, out), g.params(c))
	}
}

// allreduce adds the way up to the last of the spec's levels, that level's
// allreduce, and the way down. Levels and directions are joined by the ranges that
// they touch: chunk 0 goes down while chunk 7 comes up. Sums lie in Out from the
// start, since every rank has one.
func allreduce(b *schedule.Builder, c Call, levels []group, s Spec) {
	out := schedule.Out.At(schedule.Range{Len: c.Count})
	n := len(s.Levels)
	lower := levels[:min(len(levels), n-1)]
	sum := climb(b, c, lower, func() schedule.Ref { return out })
	if len(levels) == n {
		if top := levels[n-1]; len(top.ranks) == 1 {
			finish(b, sum)
		} else {
			algorithms[top.Algorithm].Add(b.Sub(top.ranks, sum, out), schedule.Allreduce, top.params(c))
		}
	}
	bcast(b, c, lower)
}
