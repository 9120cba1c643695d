// Package halving builds the allreduce by recursive halving and doubling (Rabenseifner, 2004; Thakur, Rabenseifner
// and Gropp, 2005, section 4.4): a reduce-scatter in which the ranks of a pair each sum up half of what
// both still have to sum, and then an allgather that goes the same way back.
//
//	Allreduce, P = 4       distance 2       distance 1       distance 1       distance 2
//	                       0 ◀▶ 2           0 ◀▶ 1           0 ◀▶ 1           0 ◀▶ 2
//	                       1 ◀▶ 3           2 ◀▶ 3           2 ◀▶ 3           1 ◀▶ 3
//	rank 0 sends           parts 2, 3       part 1           part 0           parts 0, 1
//	       has summed      parts 0, 1       part 0           has parts 0, 1   has all
//
// Every rank sends 2(P-1)/P times the buffer, as in a ring, but in 2 log2 P steps, not 2(P-1): it is for buffers between those
// for which latency is all and those for which bandwidth is. Where P is no power of two, the ranks beyond the
// greatest one below it give their contributions to the first ranks before, whole, and get the result from them after.
package halving

import (
	"math/bits"

	"github.com/scaffe/scaffe/schedule"
)

// Allreduce adds to b a reduction of In to everyone's Out. Part k, from N·k/P on, is summed by rank k, first with the rank
// half of all away; partial sums travel in Out.
func Allreduce(b *schedule.Builder, p schedule.Params) {
	if p.Size == 1 {
		b.CopyAll()
		return
	}
	r := p.Relative()
	paired := paired(p)
	if r >= paired {
		for _, c := range p.Chunks() {
			b.Send(p.Absolute(r-paired), schedule.In.At(c))
			b.Recv(p.Absolute(r-paired), schedule.Out.At(c))
		}
		return
	}
	from, beyond := schedule.In, r+paired < p.Size
	if beyond {
		for _, c := range p.Chunks() {
			b.RecvReduce(p.Absolute(r+paired), from.At(c), schedule.Out.At(c))
		}
		from = schedule.Out
	}
	for n := paired / 2; n > 0; n /= 2 {
		peer := r ^ n
		to := p.Absolute(peer)
		schedule.InTurn(parts(p, peer, n), parts(p, r, n),
			func(c schedule.Range) { b.Send(to, from.At(c)) },
			func(c schedule.Range) { b.RecvReduce(to, from.At(c), schedule.Out.At(c)) })
		from = schedule.Out
	}
	for n := 1; n < paired; n *= 2 {
		peer := r ^ n
		to := p.Absolute(peer)
		schedule.InTurn(parts(p, r, n), parts(p, peer, n),
			func(c schedule.Range) { b.Send(to, schedule.Out.At(c)) },
			func(c schedule.Range) { b.Recv(to, schedule.Out.At(c)) })
	}
	if beyond {
		for _, c := range p.Chunks() {
			b.Send(p.Absolute(r+paired), schedule.Out.At(c))
		}
	}
}

// paired returns how many ranks halve.
func paired(p schedule.Params) int { return 1 << (bits.Len(uint(p.Size)) - 1) }

// parts returns in chunks those n parts, a power of two, among which rank r's is.
func parts(p schedule.Params, r, n int) []schedule.Range {
	first, all := r&^(n-1), paired(p)
	start := p.Count * first / all
	return schedule.Range{Off: start, Len: p.Count*(first+n)/all - start}.Chunks(p.Chunk)
}

// Order returns the ranges of the buffer in the order in which rank p.Rank's contribution is wanted, and in which it has
// the results: of the two halves that are wanted first one is sent, while the other is added to what arrives.
func Order(p schedule.Params) (wants, has []schedule.Range) {
	r, all := p.Relative(), paired(p)
	if r >= all || r+all < p.Size || all == 1 {
		whole := p.Chunks()
		return whole, whole
	}
	want := func(c schedule.Range) { wants = append(wants, c) }
	schedule.InTurn(parts(p, r^(all/2), all/2), parts(p, r, all/2), want, want)
	has = parts(p, r, 1)
	for n := 1; n < all; n *= 2 {
		has = append(has, parts(p, r^n, n)...)
	}
	return wants, has
}
