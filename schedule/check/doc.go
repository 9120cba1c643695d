// Package check proves that the schedules of all ranks together are a
// collective.
//
// Prove takes one schedule per rank and knows nothing of how they came about. It
// proves, in this order:
//
//  1. Form. Ranks, sizes and counts agree; peers exist; ranges lie within
//     their buffers; In is never written; an op waits for earlier ops only.
//  2. Messages. Every message (sender, receiver, number) has exactly one send
//     and one receive, of the same length; numbers run from 0 without a gap.
//  3. No races. Two ops of a rank that touch the same element, at least one of
//     them writing, are ordered by dependencies. In and Out count as the same
//     memory, since they may be.
//  4. No deadlock, though a send completes only when its receive has started,
//     a receive only when its send has, and though a rank takes the messages
//     of one peer one at a time, in the order of their numbers: the engine
//     posts a bounded number of receives per peer, and one is the least.
//  5. The sum. Run on symbols instead of numbers, with In and Out apart and
//     again with In and Out the same memory, the schedules read nothing that
//     was not written, and add every rank's contribution exactly once, each to
//     its own element. In a broadcast, everyone ends with the root's data, in
//     an allgather with everyone's part in its place. A reduction leaves the other ranks' Out alone: they may have none; a
//     reduce-scatter all of Out but the rank's part of the sum.
//
// Each step relies on those before it. Given 3 and 4, whatever order an
// execution takes gives the same bits, so step 5 needs to run only one.
//
// What is wrong is an *Error, which says where, and wraps its Kind:
//
//	if err := check.Prove(schedule.Reduce, all, root); errors.Is(err, check.Deadlock) { … }
//
// Steps is a measure instead of a proof: how many steps the schedules take in
// the model of S-Caffe section 5; Timeline says which message travels in which.
package check
