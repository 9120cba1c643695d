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
//     the same time; a message takes Inter.Latency more on its way.
//   - A rank has one progress thread, as in package nbc. Posting an op, and
//     finishing one, costs it Op of CPU time. A node has Cores cores for its
//     ranks' threads.
//   - Messages between ranks of a node take Intra.Latency and no copy: the
//     receiver reads the sender's memory. Reading and writing goes at
//     Core.Bandwidth a thread and at Memory.Bandwidth a node. What lies in
//     cache (a running sum of at most Cache bytes, small scratch memory) costs
//     nothing beyond the pass that is made anyway.
//   - A user's buffer that was not registered has to be copied through the
//     kernel first (Staging bytes a second).
//
// Ops become ready by the schedule's own dependencies and the engine's window.
// So pipelining, full pipes, bubbles and stragglers come out of the schedule;
// none is put in.
//
// What the model leaves out: contention within the network, the CPU time of a
// network's own copies, and scheduling of threads by the operating system
// other than first come, first served.
//
// Package collectives/selection has closed forms over the same Model, which its selection
// uses on the call path; its tests hold the two together.
package sim
