package spec

import "github.com/scaffe/scaffe/schedule"

// A reduce-scatter by levels: the ranks of a group reduce the whole buffer to their leader,
// and so on; the leaders of the last level reduce to each of them the parts of its group;
// then every leader gives its group's ranks theirs. With a node as a group no part leaves it
// twice.

// reduceScatter adds a reduce-scatter, done as s says.
func (c Call) reduceScatter(b *schedule.Builder, p schedule.Params, s Spec) error {
	parts, err := c.parts()
	if err != nil {
		return err
	}
	if c.Size == 1 {
		b.CopyAll()
		return nil
	}
	way, own := groups(c, p, s)
	all := members(p, c.node)
	last := len(way) - 1
	top := way[last]
	above := top.brings(all, parts)
	var order []schedule.Range // in which the levels below the last go
	if top.Algorithm == "ring" {
		order = append(top.others(above), above[top.at]...)
	}
	if c.Scaled {
		q := way[0].params(c)
		q.Order = order
		b = scaled(b, c, q)
	}
	lower := way[:min(own, last)]
	whole := schedule.Range{Len: c.Count}
	has := climb(b, c, lower, order, func() schedule.Ref { return b.Reserve(c.Count) })
	if own > last && len(top.ranks) > 1 {
		from := has
		if has.Buf == schedule.In { // the rank leads no one, and its own part is all it gets
			has = schedule.Out.At(whole)
		}
		q := top.params(c)
		q.Parts = above
		algorithms[top.Algorithm].Add(b.Sub(top.ranks, from, has), schedule.ReduceScatter, q)
	}
	for i := len(lower) - 1; i >= 0; i-- {
		if g := lower[i]; len(g.ranks) > 1 {
			has = c.handDown(b, g, g.brings(all, parts), has)
		}
	}
	for _, r := range parts[c.Rank] {
		if has.Buf == schedule.Scratch {
			b.Copy(at(has, r), schedule.Out.At(r))
		}
	}
	return nil
}

// handDown adds that the leader of a group gives its members the parts that they bring.
// has is where the rank's sum lies, and what it returns is where its parts do.
func (c Call) handDown(b *schedule.Builder, g group, brings [][]schedule.Range, has schedule.Ref) schedule.Ref {
	chunk := g.params(c).Chunk
	if g.at > 0 {
		if has.Buf == schedule.In { // the rank leads no one
			has = schedule.Out.At(schedule.Range{Len: c.Count})
		}
		for _, r := range brings[g.at] {
			for _, piece := range r.Chunks(chunk) {
				b.Recv(g.ranks[0], at(has, piece))
			}
		}
		return has
	}
	for m := 1; m < len(g.ranks); m++ {
		for _, r := range brings[m] {
			for _, piece := range r.Chunks(chunk) {
				b.Send(g.ranks[m], at(has, piece))
			}
		}
	}
	return has
}

// at returns the range r of what lies at base.
func at(base schedule.Ref, r schedule.Range) schedule.Ref {
	return base.Buf.At(schedule.Range{Off: base.Off + r.Off, Len: r.Len})
}
