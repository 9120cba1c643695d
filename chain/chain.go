// Package chain builds the chunked chain: the pipeline of S-Caffe section 5
// ("Chunked Chain", CC), in both directions.
//
//	Reduce   P-1 ──▶ P-2 ──▶ … ──▶ 1 ──▶ 0 (root)
//	Bcast    0 (root) ──▶ 1 ──▶ … ──▶ P-1
//
// The buffer moves in n chunks; while a rank passes chunk i on, it receives
// chunk i+1. A rank sends and receives each element once at most, so a chain
// is bound by the bandwidth of one link whatever the number of ranks: it
// takes n+P-2 steps of one chunk each (section 5, equation 2).
//
// Relative ranks are counted from the root, which is the head of the chain.
package chain

import "github.com/scaffe/scaffe/schedule"

// Slots is how many chunks an inner rank of a reduction holds at most between
// receiving and sending them: two would do if all ranks kept step, the rest
// absorbs skew.
const Slots = 4

// Reduce adds to b a reduction of In to the root's Out. The bits of the
// result depend on the ranks' order alone: in0 ⊕ (in1 ⊕ (… ⊕ inP-1)).
func Reduce(b *schedule.Builder, p schedule.Params) {
	chunks := p.Chunks()
	if len(chunks) == 0 {
		return
	}
	r, last := p.Relative(), p.Size-1
	toHead, fromTail := p.Absolute(r+p.Size-1), p.Absolute(r+1)
	switch {
	case p.Size == 1:
		for _, c := range chunks {
			b.Copy(schedule.In.At(c), schedule.Out.At(c))
		}
	case r == 0:
		for _, c := range chunks {
			b.RecvReduce(fromTail, schedule.In.At(c), schedule.Out.At(c))
		}
	case r == last:
		for _, c := range chunks {
			b.Send(toHead, schedule.In.At(c))
		}
	default:
		slots := b.SlotRing(Slots, p.Longest(), len(chunks))
		for i, c := range chunks {
			sum := slots.Slot(i, c.Len)
			b.RecvReduce(fromTail, schedule.In.At(c), sum)
			b.Send(toHead, sum)
		}
	}
}

// Bcast adds to b a broadcast of the root's Out to everyone's Out.
func Bcast(b *schedule.Builder, p schedule.Params) {
	r, last := p.Relative(), p.Size-1
	toTail, fromHead := p.Absolute(r+1), p.Absolute(r+p.Size-1)
	for _, c := range p.Chunks() {
		if r > 0 {
			b.Recv(fromHead, schedule.Out.At(c))
		}
		if r < last {
			b.Send(toTail, schedule.Out.At(c))
		}
	}
}
