// Package doubling builds recursive doubling, an allreduce of whole buffers: in
// round k every rank exchanges what it has summed so far with the rank whose number
// differs in bit k, so that after ⌊log2 P⌋ rounds all have everything (Thakur,
// Rabenseifner and Gropp, 2005, section 4.4).
//
//	Allreduce, P = 4     round 0         round 1
//	                     0 ◀▶ 1          0 ◀▶ 2
//	                     2 ◀▶ 3          1 ◀▶ 3
//
// Where P is no power of two, the ranks beyond the greatest one below it give their
// contributions to the first ranks before, and get the result from them after.
//
// An allgather of this kind needs no pairs: see Allgather.
//
// Allreduce has half the steps of a reduction followed by a broadcast, and every rank sends
// the buffer log2 P times: good for small buffers. Both ranks of a pair add the same
// two sums, and ⊕ commutes, so all ranks end with the same bits.
package doubling

import (
	"math/bits"

	"github.com/scaffe/scaffe/schedule"
)

// Slots is how many chunks a rank has partial sums of at a time.
const Slots = 4

// Allreduce adds to b a reduction of In to everyone's Out.
func Allreduce(b *schedule.Builder, p schedule.Params) {
	chunks := p.Chunks()
	if p.Size == 1 || len(chunks) == 0 {
		b.CopyAll()
		return
	}
	r := p.Relative()
	paired := 1 << (bits.Len(uint(p.Size)) - 1) // ranks that double
	if r >= paired {
		for _, c := range chunks {
			b.Send(p.Absolute(r-paired), schedule.In.At(c))
			b.Recv(p.Absolute(r-paired), schedule.Out.At(c))
		}
		return
	}
	beyond := r+paired < p.Size
	partial := b.SlotRing(2*Slots, p.Longest(), 2*len(chunks))
	for i, c := range chunks {
		sum := schedule.In.At(c)
		step := steps{
			sums: [2]schedule.Ref{partial.Slot(2*i, c.Len), partial.Slot(2*i+1, c.Len)},
			out:  schedule.Out.At(c), left: bits.Len(uint(paired)) - 1, apart: !b.MayBeOne(),
		}
		if beyond {
			step.left++
			to := step.next()
			b.RecvReduce(p.Absolute(r+paired), sum, to)
			sum = to
		}
		for bit := 1; bit < paired; bit <<= 1 {
			to := step.next()
			b.Send(p.Absolute(r^bit), sum)
			b.RecvReduce(p.Absolute(r^bit), sum, to)
			sum = to
		}
		b.Copy(sum, step.out) // nothing where it is there
		if beyond {
			b.Send(p.Absolute(r+paired), step.out)
		}
	}
}

// steps says where each step's sum goes: never where the one before lies, which may
// still be read by the partner, and at last to Out, unless there is one step alone
// whose partner may be reading Out, since that may be In.
type steps struct {
	sums  [2]schedule.Ref
	out   schedule.Ref
	apart bool // In and Out
	done  int
	left  int
}

func (s *steps) next() schedule.Ref {
	s.left--
	s.done++
	if s.left == 0 && (s.done > 1 || s.apart) {
		return s.out
	}
	return s.sums[s.done%2]
}

// Allgather adds to b that every rank gets all parts: in round k it gets as many as it
// has, from the rank 2^k after it, and sends as many to the rank 2^k before it, so that
// after ⌈log2 P⌉ rounds it has all, whatever P (Bruck et al., 1997). Where P is a power
// of two the ranks of a pair exchange what they have, as in Allreduce: then the parts of
// a rank always adjoin each other, and are one message. Parts arrive where they belong.
func Allgather(b *schedule.Builder, p schedule.Params) {
	b.CopyPart(p)
	r, pairs := p.Rank, p.Size&(p.Size-1) == 0
	for has := 1; has < p.Size; has *= 2 {
		to, from := (r+p.Size-has)%p.Size, (r+has)%p.Size
		mine, theirs := r, r+has // the first parts of each
		if pairs {
			to, from = r^has, r^has
			mine, theirs = r&^(has-1), from&^(has-1)
		}
		n := min(has, p.Size-has)
		for _, c := range p.PartsChunks(mine, n) {
			b.Send(to, schedule.Out.At(c))
		}
		for _, c := range p.PartsChunks(theirs, n) {
			b.Recv(from, schedule.Out.At(c))
		}
	}
}
