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
	// Counts are those of the parts of a collective that has parts, by rank; nil: equal ones.
	Counts []int
	// Nodes[r] is the node of rank r; nil: all are on one.
	Nodes []int
	// Apart says that In and Out of this rank are not the same memory, as in a call in place: an allreduce
	// then stores some sums where they belong that it would otherwise keep elsewhere first. Ranks may differ in it.
	Apart bool
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
	if s.IsLibrary() {
		return fmt.Errorf("spec: spec %s has no schedule: it is the MPI library's own", s)
	}
	if err := s.Serves(c.Collective); err != nil {
		return fmt.Errorf("spec: %w", err)
	}
	if c.Collective == schedule.Allgather {
		return c.allgather(b, p, s)
	}
	if _, one := oneLevel[c.Collective]; one {
		return c.atOnce(b, p, s.Levels[0])
	}
	if c.Collective == schedule.ReduceScatter {
		return c.reduceScatter(b, p, s)
	}
	if c.Apart && c.Collective.Reduces() {
		b.Apart()
	}
	way, n := groups(c, p, s)
	levels, top := way[:n], way[len(way)-1]
	var up, down []schedule.Range // in which order the levels below the last go
	if a := algorithms[last]; c.Collective == schedule.Allreduce && a.Order != nil {
		up, down = a.Order(top.params(c))
	}
	if c.Scaled && c.Collective.Reduces() && c.Size > 1 {
		p := levels[0].params(c)
		p.Order = up
		b = scaled(b, c, p)
	}
	switch c.Collective {
	case schedule.Reduce:
		reduce(b, c, levels)
	case schedule.Bcast:
		bcast(b, c, levels, nil)
	case schedule.Allreduce:
		n := len(s.Levels) - 1
		lower := levels[:min(len(levels), n)]
		sum := climb(b, c, lower, up, func() schedule.Ref { return schedule.Out.At(schedule.Range{Len: c.Count}) })
		if len(levels) > n {
			allreduce(b, c, top, sum)
		}
		bcast(b, c, lower, down)
	default:
		return fmt.Errorf("spec: unknown collective %v", c.Collective)
	}
	return nil
}

// atOnce adds a collective that has one level.
func (c Call) atOnce(b *schedule.Builder, p schedule.Params, l Level) (err error) {
	p.Chunk = group{Level: l}.params(c).Chunk
	if c.Collective.Parts() {
		p.Parts, err = c.parts()
	}
	if err == nil {
		algorithms[l.Algorithm].Add(b, c.Collective, p)
	}
	return err
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
	below []int // member i's data are those of the ranks all[below[i]:below[i+1]]
	all   []int // members
}

// params returns what the group's algorithm is a function of.
func (g group) params(c Call) schedule.Params {
	bytes := g.Chunk
	if bytes == 0 {
		bytes = DefaultChunk
	}
	p := schedule.Params{Rank: g.at, Size: len(g.ranks), Count: c.Count, Chunk: max(1, bytes/c.ElemSize)}
	if c.Collective.Reduces() {
		for i := range g.ranks {
			p.Lowest = append(p.Lowest, slices.Min(g.all[g.below[i]:g.below[i+1]]))
		}
	}
	return p
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

// groups returns the groups that the rank's data pass, one of every level, lowest level
// first: of those consecutive members that the level's size says, at the place of the
// member that they pass. The rank itself belongs to the first own of them, up to the
// level where it is not the leader.
func groups(c Call, p schedule.Params, s Spec) (way []group, own int) {
	all := members(p, c.node)
	at, everyone := slices.Index(all, c.Rank), all
	below := make([]int, len(all)+1)
	for i := range below {
		below[i] = i
	}
	leads := true
	for _, l := range s.Levels {
		var leaders, led []int
		var place int // of the own group's leader in the next level
		for first := 0; first < len(all); {
			end := l.end(all, first, c.node)
			if first <= at && at < end {
				way, place = append(way, group{l, all[first:end], at - first, below[first : end+1], everyone}), len(leaders)
			}
			leaders, led = append(leaders, all[first]), append(led, below[first])
			first = end
		}
		if leads {
			own++
		}
		leads = leads && way[len(way)-1].at == 0
		all, at, below = leaders, place, append(led, c.Size)
	}
	return way, own
}

// node returns the node of a rank.
func (c Call) node(rank int) int {
	if c.Nodes == nil {
		return 0
	}
	return c.Nodes[rank]
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
	sum := climb(b, c, levels, nil, out)
	if c.Rank == c.Root {
		finish(b, sum)
	}
}

// climb adds the reductions of the levels, in the order given, and returns where this
// rank's sum lies: still in In, or where out, called at most once, says.
func climb(b *schedule.Builder, c Call, levels []group, order []schedule.Range, out func() schedule.Ref) schedule.Ref {
	sum := schedule.In.At(schedule.Range{Len: c.Count})
	for _, g := range levels {
		if len(g.ranks) == 1 {
			continue
		}
		into := sum
		if g.at == 0 && sum.Buf == schedule.In {
			into = out()
		}
		p := g.params(c)
		p.Order = order
		algorithms[g.Algorithm].Reduce(b.Sub(g.ranks, sum, into), p)
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

// bcast adds the way down, the highest level first, one range of the buffer after the
// other; nil: all of it at once.
func bcast(b *schedule.Builder, c Call, levels []group, ranges []schedule.Range) {
	if ranges == nil {
		ranges = []schedule.Range{{Len: c.Count}}
	}
	for _, g := range slices.Backward(levels) {
		for _, r := range ranges {
			p := g.params(c)
			p.Count = r.Len
			algorithms[g.Algorithm].Bcast(b.Sub(g.ranks, schedule.Out.At(r), schedule.Out.At(r)), p)
		}
	}
}

// allreduce adds the last level of an allreduce. Levels and directions are joined by
// the ranges that they touch: chunk 0 goes down while chunk 7 comes up. Sums lie in
// Out from the start, since every rank has one.
func allreduce(b *schedule.Builder, c Call, top group, sum schedule.Ref) {
	if len(top.ranks) == 1 {
		finish(b, sum)
		return
	}
	out := schedule.Out.At(schedule.Range{Len: c.Count})
	algorithms[top.Algorithm].Add(b.Sub(top.ranks, sum, out), schedule.Allreduce, top.params(c))
}
