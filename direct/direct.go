// Package direct builds the segmented algorithms for ranks that read each
// other's memory, those of one node: every rank combines its own part of the
// buffer, reading the others' contributions where they lie.
//
//	Reduce, P = 4, one chunk      part 0   part 1   part 2   part 3
//	summed, over all ranks, by    rank 0   rank 1   rank 2   rank 3
//	and put into                  the root's Out
//
// A message between such ranks is not copied: a RecvReduce reads the sender's
// memory. So a reduction moves P+1 times the buffer through memory in all (P
// reads, one write), spread evenly over the ranks, which is the least that is
// possible; a tree or a chain writes its partial sums too, and lets most ranks
// wait. Over a network the same messages are real, and a chain is better.
//
// The buffer is cut into chunks, each of them into P parts, so that a level
// above can go on with the first chunk early, and a part's sum stays in cache
// until the others read it. The contributions to a part are added in one pass where
// the engine's device can.
package direct

import "github.com/scaffe/scaffe/schedule"

// Slots is how many of its parts' sums a rank other than the root holds at
// most until they lie in the root's Out.
const Slots = 4

// lend adds to b that every other rank may read this one's contribution to
// its part of c.
func lend(b *schedule.Builder, p schedule.Params, c schedule.Range) {
	r := p.Relative()
	for i := 1; i < p.Size; i++ {
		to := (r + p.Size - i) % p.Size
		if theirs := c.Part(to, p.Size); theirs.Len > 0 {
			b.Send(p.Absolute(to), schedule.In.At(theirs))
		}
	}
}

// combine adds to b that this rank sums its part of c over all ranks, itself
// first, then those after it.
func combine(b *schedule.Builder, p schedule.Params, mine schedule.Range, sum schedule.Ref) {
	r := p.Relative()
	from := schedule.In.At(mine)
	for i := 1; i < p.Size && mine.Len > 0; i++ {
		b.RecvReduce(p.Absolute((r+i)%p.Size), from, sum)
		from = sum
	}
}

// Reduce adds to b a reduction of In to the root's Out.
func Reduce(b *schedule.Builder, p schedule.Params) {
	chunks := p.Chunks()
	if p.Size == 1 || len(chunks) == 0 {
		b.CopyAll()
		return
	}
	r := p.Relative()
	var slots schedule.SlotRing
	if r > 0 {
		slots = b.SlotRing(Slots, schedule.Range{Len: p.Longest()}.Part(r, p.Size).Len+1, len(chunks))
	}
	for i, c := range chunks {
		lend(b, p, c)
		mine := c.Part(r, p.Size)
		if r > 0 {
			sum := slots.Slot(i, mine.Len)
			combine(b, p, mine, sum)
			if mine.Len > 0 {
				b.Send(p.Root, sum)
			}
			continue
		}
		combine(b, p, mine, schedule.Out.At(mine))
		for k := 1; k < p.Size; k++ {
			if theirs := c.Part(k, p.Size); theirs.Len > 0 {
				b.Recv(p.Absolute(k), schedule.Out.At(theirs))
			}
		}
	}
}

// Allreduce adds to b a reduction of In to everyone's Out: each rank sums its
// part into its own Out, where the others read it.
func Allreduce(b *schedule.Builder, p schedule.Params) {
	if p.Size == 1 {
		b.CopyAll()
		return
	}
	r := p.Relative()
	for _, c := range p.Chunks() {
		lend(b, p, c)
		mine := c.Part(r, p.Size)
		combine(b, p, mine, schedule.Out.At(mine))
		for i := 1; i < p.Size && mine.Len > 0; i++ {
			b.Send(p.Absolute((r+p.Size-i)%p.Size), schedule.Out.At(mine))
		}
		for i := 1; i < p.Size; i++ {
			k := (r + i) % p.Size
			if theirs := c.Part(k, p.Size); theirs.Len > 0 {
				b.Recv(p.Absolute(k), schedule.Out.At(theirs))
			}
		}
	}
}

// ReduceScatter adds to b a reduction of In of which every rank's part goes to its Out: each
// rank sums its part, itself first, then those after it.
func ReduceScatter(b *schedule.Builder, p schedule.Params) {
	for i := 1; i < p.Size; i++ {
		to := (p.Rank + p.Size - i) % p.Size
		for _, c := range p.PartChunks(to) {
			b.Send(to, schedule.In.At(c))
		}
	}
	for _, c := range p.PartChunks(p.Rank) {
		from := schedule.In.At(c)
		for i := 1; i < p.Size; i++ {
			b.RecvReduce((p.Rank+i)%p.Size, from, schedule.Out.At(c))
			from = schedule.Out.At(c)
		}
		b.Copy(from, schedule.Out.At(c)) // nothing, except for a lone rank
	}
}

// Alltoall adds to b that every rank copies its blocks from where they lie in the others' In: that of
// the rank after its own first, so that not all read the same memory.
func Alltoall(b *schedule.Builder, p schedule.Params) {
	b.Apart()
	b.CopyBlock(p)
	for i := 1; i < p.Size; i++ {
		to, from := (p.Rank+p.Size-i)%p.Size, (p.Rank+i)%p.Size
		for _, c := range p.Block(to).Chunks(p.Chunk) {
			b.Send(to, schedule.In.At(c))
		}
		for _, c := range p.Block(from).Chunks(p.Chunk) {
			b.Recv(from, schedule.Out.At(c))
		}
	}
}

// Bcast adds to b a broadcast of the root's Out to everyone's Out: every rank
// reads the root's memory.
func Bcast(b *schedule.Builder, p schedule.Params) {
	for _, c := range p.Chunks() {
		if p.Relative() > 0 {
			b.Recv(p.Root, schedule.Out.At(c))
			continue
		}
		for k := 1; k < p.Size; k++ {
			b.Send(p.Absolute(k), schedule.Out.At(c))
		}
	}
}

// Allgather adds to b that every rank copies the others' parts from where they lie in
// their Out: the one after its own first, so that not all read the same memory.
func Allgather(b *schedule.Builder, p schedule.Params) {
	b.CopyPart(p)
	for i := 1; i < p.Size; i++ {
		to, from := (p.Rank+p.Size-i)%p.Size, (p.Rank+i)%p.Size
		for _, c := range p.PartChunks(p.Rank) {
			b.Send(to, schedule.Out.At(c))
		}
		for _, c := range p.PartChunks(from) {
			b.Recv(from, schedule.Out.At(c))
		}
	}
}
