// Package replay runs the communication of a net's iterations for real, with
// computation replaced by timed waits from a profile (package workload): what a
// cluster makes of training at a GPU's speed, on machines without one.
//
//	p, err := workload.Load("alexnet-k80")
//	...
//	result, err := replay.Run(ctx, comm, replay.Config{Profile: p, Designs: exchange.All(), Iterations: 20})
//	err = result.Write(os.Stdout, "text")
//
// Every rank has packed parameters and gradients of the profile's sizes, laid
// out as those of a net, and an Exchange of package exchange, whose hooks it calls
// when the wait for a layer has ended.
//
// # Waits
//
// A wait leaves the core to others: a kernel timer wakes it about a tenth of a
// millisecond early, and it yields for the rest. All layers between two buckets are
// waited for at once. The end of every wait is a point on a schedule that
// begins where the rank last waited for communication, so that errors do not add
// up; computation that ran late, since there was no core, is caught up with,
// as a GPU's would not have been late. Updates are waits too, one at a time on
// each rank that updates, in proportion to the bucket.
//
// # What is measured
//
// Designs take turns: some iterations of one, then of another, in an order drawn
// anew for each round, the same on all ranks. A turn begins with a barrier and
// an iteration that does not count, which brings the design into its steady
// state. An iteration is from the end of one backward phase (where Finish
// returns) to the next; its time is that of the slowest rank. Medians have
// confidence intervals of 95 % (package stats).
//
//   - Compute: forward, backward and update of the profile, of the slowest rank.
//   - Communication: an iteration of SC-B without any computation.
//   - Exposed: iteration less compute. Hidden: the part of the communication
//     that is not exposed.
//   - Tail: what no overlap can hide. The gradients that are pushed last, those of the
//     first layers, begin to move when all computation has ended, and the next
//     forward begins with these layers: it is the time of that bucket's push
//     and pull with nothing else in flight.
//   - Target: 1.08 × max(compute, communication) + tail.
//
// It must not know algorithms, solvers or nets.
package replay
