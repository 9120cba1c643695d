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
