// Package linear builds the linear algorithms: the root exchanges the whole
// buffer with every other rank itself. That is P-1 steps of the whole buffer at
// one rank, or, in an allgather, of each rank's part. It is the reference implementation that every other builder must
// equal, and the best choice for two ranks or next to no bytes.
package linear

import "github.com/scaffe/scaffe/schedule"

// Reduce adds to b a reduction of In to the root's Out:
// ((in0 ⊕ in1) ⊕ in2) ⊕ …, in relative ranks.
func Reduce(b *schedule.Builder, p schedule.Params) {
	r := p.Relative()
	for _, c := range p.Chunks() {
		if r > 0 {
			b.Send(p.Root, schedule.In.At(c))
			continue
		}
		sum := schedule.In.At(c)
		for from := 1; from < p.Size; from++ {
			b.RecvReduce(p.Absolute(from), sum, schedule.Out.At(c))
			sum = schedule.Out.At(c)
		}
		b.Copy(sum, schedule.Out.At(c)) // nothing, except for a lone rank
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
