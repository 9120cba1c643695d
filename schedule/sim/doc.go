// Package sim tells how long a collective takes without running it: a cost
// model of a cluster (Model), and a simulation of schedules under it
// (Simulate), for as many ranks as one likes.
//
//	m := sim.Default()
//	m.Inter.Bandwidth = 125e6 // 1 Gbit/s
//	r, err := sim.Simulate(schedules, sim.Setup{Model: m, Nodes: nodes, ElemSize: 4})
//	fmt.Println(r.Max) // seconds until the last rank has ended
//
// # What the model is
//
// The usual α-β-γ, one α and β a level, and what the engine of package nbc adds:
//
//   - Each node has one network port, with Inter.Bandwidth in each direction at
//     the same time, or Inter.Burst bytes at once, but no call takes less than what a port needs for
//     all its bytes unless it can make up for them while ranks meet before the next; a message takes Inter.Latency more on its way. It consists of
//     packets (Packets): one or two, or, where it waits for its receive, a question and an answer
//     besides. Each costs either end Packet of CPU time, and the bytes theirs (Carry).
//   - A rank has one progress thread, as in package nbc. Posting an op, and
//     finishing one, costs it Op of CPU time. A machine has Cores cores for the threads of
//     its ranks, those of one node or of several (Hosted); one that has served another rank needs Switch first. Where
//     all messages are short and stay on a node, Short stands for Op and latency.
//   - Messages between ranks of a node take Intra.Latency; one side reads or
//     writes the other's memory (see Simulate's step). Reading and writing goes at
//     the rates of Core a thread and of Memory a node, which depend on how much
//     memory the schedules touch (Rates.At), and at Fresh where another core has just
//     written: sums, and what a rank gives to the collective, as much of it as its core's cache holds.
//   - A user's buffer that was not registered has to be copied through the
//     kernel first (Staging bytes a second): to where it is received, and also to where it is added, if the sum goes elsewhere
//     than where it was and is not larger than caches. Of a small message of a pipeline (EagerCopy), at that rate too, and, of
//     a collective that is copied around the caches, of what is added, or received where ranks share cores, its sender makes one plain copy for all
//     who receive it, of what is large when it is asked.
//
// Ops become ready by the schedule's own dependencies and the engine's window.
// So pipelining, full pipes, bubbles and stragglers come out of the schedule;
// none is put in.
//
// What the model leaves out: contention within the network, scheduling of threads
// by the operating system other than first come, first served, and what lies between two GPUs: one that reads
// another's memory does so as fast as its own.
//
// Package collectives/selection predicts by it, from few chunks and few ranks.
package sim
