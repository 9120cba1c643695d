// Package binomial builds the binomial tree: ⌈log2 P⌉ rounds. In round k the
// ranks whose distance from the root is an odd multiple of 2^k take part
// (S-Caffe section 5, equation 1: T = log2(P) · t(b)).
//
//	Reduce, P = 8        round 0     round 1     round 2
//	                     1 ▶ 0       2 ▶ 0       4 ▶ 0
//	                     3 ▶ 2       6 ▶ 4
//	                     5 ▶ 4
//	                     7 ▶ 6
//
// It has the fewest steps of all, and the root receives the buffer ⌈log2 P⌉
// times: good for small buffers and many ranks. With chunks, a tree becomes a
// pipeline too; it then saves the inner ranks' waiting, not the root's bytes.
package binomial

import "github.com/scaffe/scaffe/schedule"

// Slots is how many chunks an inner rank of a reduction accumulates at a time.
const Slots = 4

// Reduce adds to b a reduction of In to the root's Out. A rank adds its
// children's sums to its own contribution in ascending order of distance.
func Reduce(b *schedule.Builder, p schedule.Params) {
	chunks := p.Chunks()
	if len(chunks) == 0 {
		return
	}
	r := p.Relative()
	below := children(r, p.Size)
	var slots schedule.SlotRing
	if r > 0 && len(below) > 0 {
		slots = b.SlotRing(Slots, p.Longest(), len(chunks))
	}
	for i, c := range chunks {
		sum, acc := schedule.In.At(c), schedule.Out.At(c)
		if r > 0 && len(below) > 0 {
			acc = slots.Slot(i, c.Len)
		}
		for _, child := range below {
			b.RecvReduce(p.Absolute(child), sum, acc)
			sum = acc
		}
		switch {
		case r > 0:
			b.Send(p.Absolute(parent(r)), sum)
		case p.Size == 1:
			b.Copy(sum, acc)
		}
	}
}

// Bcast adds to b a broadcast of the root's Out to everyone's Out: the
// reduction's tree, the farthest child first.
func Bcast(b *schedule.Builder, p schedule.Params) {
	r := p.Relative()
	below := children(r, p.Size)
	for _, c := range p.Chunks() {
		if r > 0 {
			b.Recv(p.Absolute(parent(r)), schedule.Out.At(c))
		}
		for i := len(below) - 1; i >= 0; i-- {
			b.Send(p.Absolute(below[i]), schedule.Out.At(c))
		}
	}
}

// Gather adds to b that everyone's part goes up the tree to the root's Out. A rank between keeps those of
// the ranks below it beside its own, and sends them on together: P-1 messages in all, as with linear, but of
// these the root receives ⌈log2 P⌉, and half of all bytes move twice or more. So it is for few of them.
func Gather(b *schedule.Builder, p schedule.Params) {
	r := p.Relative()
	at := schedule.In.At // of a leaf, which has nothing but its own
	if below := children(r, p.Size); r == 0 || len(below) > 0 {
		at = kept(b, p, schedule.Out)
		for _, c := range p.PartChunks(p.Rank) {
			b.Copy(schedule.In.At(c), at(c))
		}
		for _, child := range below {
			for _, c := range p.PartsChunks(p.Absolute(child), subtree(child, p.Size)) {
				b.Recv(p.Absolute(child), at(c))
			}
		}
	}
	if r > 0 {
		for _, c := range p.PartsChunks(p.Rank, subtree(r, p.Size)) {
			b.Send(p.Absolute(parent(r)), at(c))
		}
	}
}

// Scatter adds to b that everyone's part of the root's In comes down the tree: a Gather backwards, those of the
// largest subtree first.
func Scatter(b *schedule.Builder, p schedule.Params) {
	r := p.Relative()
	below := children(r, p.Size)
	at := schedule.Out.At
	if r == 0 || len(below) > 0 {
		at = kept(b, p, schedule.In)
	}
	if r > 0 {
		for _, c := range p.PartsChunks(p.Rank, subtree(r, p.Size)) {
			b.Recv(p.Absolute(parent(r)), at(c))
		}
	}
	for i := len(below) - 1; i >= 0; i-- {
		for _, c := range p.PartsChunks(p.Absolute(below[i]), subtree(below[i], p.Size)) {
			b.Send(p.Absolute(below[i]), at(c))
		}
	}
	for _, c := range p.PartChunks(p.Rank) {
		b.Copy(at(c), schedule.Out.At(c))
	}
}

// kept says where a rank with children has the parts of its subtree: the root in a buffer of its own, others one
// after the other in Scratch.
func kept(b *schedule.Builder, p schedule.Params, root schedule.Buffer) func(schedule.Range) schedule.Ref {
	r := p.Relative()
	if r == 0 {
		return root.At
	}
	ranges := p.PartsOf(p.Rank, subtree(r, p.Size))
	total := 0
	for _, x := range ranges {
		total += x.Len
	}
	from := b.Reserve(total).Off
	return func(c schedule.Range) schedule.Ref {
		off := from
		for _, x := range ranges {
			if x.Off <= c.Off && c.End() <= x.End() {
				off += c.Off - x.Off
				break
			}
			off += x.Len
		}
		return schedule.Scratch.At(schedule.Range{Off: off, Len: c.Len})
	}
}

// subtree returns how many ranks the tree below r has, r itself among them.
func subtree(r, size int) int {
	if r == 0 {
		return size
	}
	return min(r&-r, size-r)
}

// parent returns the relative rank above r > 0: r without its lowest bit.
func parent(r int) int { return r & (r - 1) }

// children returns the relative ranks below r, nearest first.
func children(r, size int) []int {
	var c []int
	for bit := 1; r&bit == 0 && r+bit < size; bit <<= 1 {
		c = append(c, r+bit)
	}
	return c
}
