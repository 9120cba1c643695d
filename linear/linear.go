// Package linear builds the linear algorithms: the root exchanges the whole buffer with every
// other rank itself. That is P-1 steps of the whole buffer at one rank, or, in a gather, a scatter, an
// allgather or an alltoall, of each rank's part. It is the reference implementation that every other builder must equal,
// and the best choice for two ranks or next to no bytes.
package linear

import (
	"slices"

	"github.com/scaffe/scaffe/schedule"
)

// Slots is of how many chunks a root holds the sum of those before it until its own is added, and so by how many one rank may be ahead of
// another: what it has sent beyond, nobody expects, and it stands in the way of what it sends to others. A KV pair of Poseidon (2M) is so many chunks
// of 256K.
const Slots = 8

// Reduce adds to b a reduction of In to the root's Out: ((in0 ⊕ in1) ⊕ in2) ⊕ …, in
// ranks. So the result has the same bits whichever rank is the root. A root that is
// one of the first two adds what arrives to its own; another one adds up what comes before
// its own in Scratch, since Out may be the memory of In.
func Reduce(b *schedule.Builder, p schedule.Params) {
	chunks := p.Chunks()
	if p.Rank != p.Root {
		for _, c := range chunks {
			b.Send(p.Root, schedule.In.At(c))
		}
		return
	}
	order := p.Ascending()
	own := slices.Index(order, p.Root)
	if own == 1 {
		order[0], order[1] = order[1], order[0] // a ⊕ b is b ⊕ a
	}
	var before schedule.SlotRing
	if own > 1 {
		before = b.SlotRing(Slots, p.Longest(), len(chunks))
	}
	for i, c := range chunks {
		in, out := schedule.In.At(c), schedule.Out.At(c)
		sum := in
		if own > 1 {
			sum = before.Slot(i, c.Len)
			b.Recv(order[0], sum)
		}
		for k, from := range order[1:] {
			into := out
			if k+1 < own && own > 1 {
				into = sum
			}
			if from == p.Root && own > 1 {
				b.Add(in, sum, into)
			} else {
				b.RecvReduce(from, sum, into)
			}
			sum = into
		}
		b.Copy(sum, out) // nothing, except for a lone rank
	}
}

// Bcast adds to b a broadcast of the root's Out to everyone's Out.
func Bcast(b *schedule.Builder, p schedule.Params) {
	for _, c := range p.Chunks() {
		if p.Relative() > 0 {
			b.Recv(p.Root, schedule.Out.At(c))
			continue
		}
		for to := 1; to < p.Size; to++ {
			b.Send(p.Absolute(to), schedule.Out.At(c))
		}
	}
}

// Alltoall adds to b that every rank sends every other its block.
func Alltoall(b *schedule.Builder, p schedule.Params) {
	b.Apart()
	for i := 1; i < p.Size; i++ {
		to := (p.Rank + i) % p.Size
		for _, c := range p.Block(to).Chunks(p.Chunk) {
			b.Send(to, schedule.In.At(c))
		}
	}
	b.CopyBlock(p)
	for i := 1; i < p.Size; i++ {
		from := (p.Rank + p.Size - i) % p.Size
		for _, c := range p.Block(from).Chunks(p.Chunk) {
			b.Recv(from, schedule.Out.At(c))
		}
	}
}

// Gather adds to b that every rank sends its part to the root: what Adam does with
// sufficient factors (Chilimbi et al. 2014).
func Gather(b *schedule.Builder, p schedule.Params) { b.GatherParts(p) }

// Scatter adds to b that the root sends every rank its part.
func Scatter(b *schedule.Builder, p schedule.Params) { b.ScatterParts(p) }

// Allgather adds to b that every rank sends its part to every other: what Poseidon does
// with sufficient factors (section 3.2). A rank sends to those after it in turn, so that
// not all begin with the same one.
func Allgather(b *schedule.Builder, p schedule.Params) {
	for _, c := range p.PartChunks(p.Rank) {
		for i := 1; i < p.Size; i++ {
			b.Send((p.Rank+i)%p.Size, schedule.In.At(c))
		}
	}
	b.CopyPart(p)
	for i := 1; i < p.Size; i++ {
		from := (p.Rank + p.Size - i) % p.Size
		for _, c := range p.PartChunks(from) {
			b.Recv(from, schedule.Out.At(c))
		}
	}
}
