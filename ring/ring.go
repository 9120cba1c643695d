// Package ring builds the ring allreduce: reduce-scatter, then allgather, each
// in P-1 steps of a P-th of the buffer (Patarasuk and Yuan, 2009).
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
		each(p, r-s, r-s-1,
			func(c schedule.Range) { b.Send(next, from.At(c)) },
			func(c schedule.Range) { b.RecvReduce(prev, schedule.In.At(c), schedule.Out.At(c)) })
	}
	for s := range p.Size - 1 {
		each(p, r+1-s, r-s,
			func(c schedule.Range) { b.Send(next, schedule.Out.At(c)) },
			func(c schedule.Range) { b.Recv(prev, schedule.Out.At(c)) })
	}
}

// each calls out with the chunks of one segment and in with those of another,
// in turn.
func each(p schedule.Params, segmentOut, segmentIn int, out, in func(schedule.Range)) {
	outs, ins := chunks(p, segmentOut), chunks(p, segmentIn)
	for i := range max(len(outs), len(ins)) {
		if i < len(outs) {
			out(outs[i])
		}
		if i < len(ins) {
			in(ins[i])
		}
	}
}

// chunks cuts segment k, counted modulo the ranks, into chunks.
func chunks(p schedule.Params, k int) []schedule.Range {
	k = (k%p.Size + p.Size) % p.Size
	from, to := p.Count*k/p.Size, p.Count*(k+1)/p.Size
	return schedule.Range{Off: from, Len: to - from}.Chunks(p.Chunk)
}
