// Package schedule is the plan of a collective as plain data.
//
// A Schedule is what one rank does in one collective: ops (Send, Recv,
// RecvReduce, Copy, Scale, Add) over ranges of named buffers (In, Out, Scratch), with the
// ops that each must wait for. It holds no pointer, no communicator, no time
// and does no I/O. Because it is plain data it can be executed (package nbc),
// proved for all ranks together (package schedule/check), cached, remapped to
// other ranks, printed and parsed.
//
// An algorithm is a function that adds ops to a Builder, in the order in which
// the paper tells it:
//
//	b := schedule.NewBuilder(p.Rank, p.Size, p.Count)
//	for _, c := range p.Chunks() {
//		b.RecvReduce(fromTail, schedule.In.At(c), schedule.Out.At(c))
//	}
//	s := b.Schedule()
//
// Dependencies are never written by hand. An op waits for the earlier ops of
// its rank whose ranges overlap its own where at least one of the two writes:
// the read-after-write, write-after-read and write-after-write hazards, no
// more. That one rule pipelines an algorithm (chunk 1 is received while chunk
// 0 is sent), joins levels (chunk 0 climbs to the next level while chunk 7 is
// still below) and joins collectives (the broadcast of an allreduce starts
// with its first reduced chunk). Rounds, as in libnbc, would forbid all three.
//
// All counts and offsets are in elements; bytes and datatypes are bound when
// the schedule is executed.
package schedule
