// Package ring builds the ring allreduce: reduce-scatter, then allgather, each
// in P-1 steps of a P-th of the buffer (Patarasuk and Yuan, 2009); and each of the two
// alone, of any parts. Alone the reduce-scatter ends with a rank's own part:
//
//	step s:                  send part r-s-1, combine part r-s-2
//
//	rank r sends to r+1, receives from r-1; segment k is element range N·k/P …
//	reduce-scatter, step s:  send segment r-s, combine segment r-s-1
//	allgather, step s:       send segment r+1-s, receive segment r-s
//
// Every link carries 2(P-1)/P times the buffer, in both directions at once:
// the least that an allreduce can move, whatever P. The price is 2(P-1) steps
// of latency, so it is for large buffers. A segment travels in chunks, so that
// combining one overlaps with receiving the next.
package ring

import "github.com/scaffe/scaffe/schedule"

// Allreduce adds to b a reduction of In to everyone's Out. Segment k is summed
// in the order k, k+1, …, k-1; partial sums travel in Out.
func Allreduce(b *schedule.Builder, p schedule.Params) {
	if p.Size == 1 {
		b.CopyAll()
		return
	}
	r := p.Relative()
	next, prev := p.Absolute((r+1)%p.Size), p.Absolute((r+p.Size-1)%p.Size)
	for s := range p.Size - 1 {
		from := schedule.Out
		if s == 0 {
			from = schedule.In
		}
		schedule.InTurn(chunks(p, r-s), chunks(p, r-s-1),
			func(c schedule.Range) { b.Send(next, from.At(c)) },
			func(c schedule.Range) { b.RecvReduce(prev, schedule.In.At(c), schedule.Out.At(c)) })
	}
	for s := range p.Size - 1 {
		schedule.InTurn(chunks(p, r+1-s), chunks(p, r-s),
			func(c schedule.Range) { b.Send(next, schedule.Out.At(c)) },
			func(c schedule.Range) { b.Recv(prev, schedule.Out.At(c)) })
	}
}

// Order returns the ranges of the buffer in the order in which rank p.Rank's
// contribution is wanted, and in which it has the results. The first two segments are
// wanted in turn: while one is sent, the other is added to what arrives.
func Order(p schedule.Params) (wants, has []schedule.Range) {
	r := p.Relative()
	add := func(c schedule.Range) { wants = append(wants, c) }
	schedule.InTurn(chunks(p, r), chunks(p, r-1), add, add)
	for s := range p.Size {
		if s > 1 {
			add(segment(p, r-s))
		}
		has = append(has, segment(p, r+1-s))
	}
	return wants, has
}

// Allgather adds to b that everyone's part goes round: in step s rank r passes on the
// part of rank r-s, and gets that of rank r-s-1.
func Allgather(b *schedule.Builder, p schedule.Params) {
	next, prev := (p.Rank+1)%p.Size, (p.Rank+p.Size-1)%p.Size
	for s := range p.Size - 1 {
		from := schedule.Out
		if s == 0 {
			from = schedule.In
		}
		schedule.InTurn(p.PartChunks(p.Rank-s), p.PartChunks(p.Rank-s-1),
			func(c schedule.Range) { b.Send(next, from.At(c)) },
			func(c schedule.Range) { b.Recv(prev, schedule.Out.At(c)) })
	}
	b.CopyPart(p)
}

// ReduceScatter adds to b a reduction of In of which every rank's part goes to its Out. Part k
// is summed in the order k+1, k+2, …, k; partial sums travel in Scratch, those of one step
// while those of the step before leave.
func ReduceScatter(b *schedule.Builder, p schedule.Params) {
	if p.Size == 1 {
		b.CopyPart(p)
		return
	}
	longest := 0
	for k := range p.Size {
		longest = max(longest, partLen(p, k))
	}
	next, prev := (p.Rank+1)%p.Size, (p.Rank+p.Size-1)%p.Size
	sums := b.SlotRing(2, longest, p.Size-2)
	var sent []schedule.Ref // what the step before has summed
	for _, c := range p.PartChunks(p.Rank - 1) {
		sent = append(sent, schedule.In.At(c))
	}
	for s := range p.Size - 1 {
		ins := p.PartChunks(p.Rank - s - 2)
		var slot schedule.Ref
		last := s == p.Size-2
		if !last {
			slot = sums.Slot(s, longest)
		}
		var summed []schedule.Ref
		for i := range max(len(sent), len(ins)) {
			if i < len(sent) {
				b.Send(next, sent[i])
			}
			if i >= len(ins) {
				continue
			}
			into := schedule.Out.At(ins[i])
			if !last {
				into = schedule.Scratch.At(schedule.Range{Off: slot.Off, Len: ins[i].Len})
				slot.Off += ins[i].Len
			}
			b.RecvReduce(prev, schedule.In.At(ins[i]), into)
			summed = append(summed, into)
		}
		sent = summed
	}
}

// partLen returns how many elements a rank's part has.
func partLen(p schedule.Params, rank int) (n int) {
	for _, r := range p.PartsOf(rank, 1) {
		n += r.Len
	}
	return n
}

// segment returns segment k, counted modulo the ranks.
func segment(p schedule.Params, k int) schedule.Range {
	k = (k%p.Size + p.Size) % p.Size
	from, to := p.Count*k/p.Size, p.Count*(k+1)/p.Size
	return schedule.Range{Off: from, Len: to - from}
}

// chunks cuts segment k into chunks.
func chunks(p schedule.Params, k int) []schedule.Range { return segment(p, k).Chunks(p.Chunk) }
