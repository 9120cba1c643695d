// Package scatter builds the broadcast of long messages in two steps (van de Geijn's: Barnett, Gupta, Payne, Shuler, van de Geijn
// and Watts, 1994; Thakur, Rabenseifner and Gropp, 2005, section 4.2): the root scatters the buffer over the other ranks, and each
// of them sends its part to all others.
//
//	Bcast, P = 4, one chunk    part 0     part 1     part 2
//	the root sends             to 1       to 2       to 3
//	who sends it on            to 2, 3    to 3, 1    to 1, 2
//
// Every rank receives the buffer once, as by linear, but not all of them read the same memory, and the root sends it once. Ranks
// of one node have more of it: who receives a part reads it where the root has it, and stores it where all want it in the same
// pass (package nbc). So P ranks move P times the buffer, one read and P-1 writes, where each reading the root's memory moves
// 2(P-1) times the buffer.
package scatter

import "github.com/scaffe/scaffe/schedule"

// Bcast adds to b a broadcast of the root's Out to everyone's Out. Part k of each chunk of N elements, from
// N·k/(P-1) on, goes by rank k+1, counted from the root.
func Bcast(b *schedule.Builder, p schedule.Params) {
	r, others := p.Relative(), p.Size-1
	for _, c := range p.Chunks() {
		if r == 0 {
			for k := range others {
				if theirs := c.Part(k, others); theirs.Len > 0 {
					b.Send(p.Absolute(k+1), schedule.Out.At(theirs))
				}
			}
			continue
		}
		mine := c.Part(r-1, others)
		if mine.Len > 0 {
			b.Recv(p.Root, schedule.Out.At(mine))
		}
		for i := 1; i < others; i++ {
			to, from := (r-1+others-i)%others, (r-1+i)%others
			if mine.Len > 0 {
				b.Send(p.Absolute(to+1), schedule.Out.At(mine))
			}
			if theirs := c.Part(from, others); theirs.Len > 0 {
				b.Recv(p.Absolute(from+1), schedule.Out.At(theirs))
			}
		}
	}
}
