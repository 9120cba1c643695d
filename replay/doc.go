// Package replay runs the communication of a training run for real, with the
// computation replaced by timed waits taken from a profile (package workload).
// It shows what a cluster makes of training at a GPU's speed, on machines
// without one.
//
//	p, err := workload.Load("alexnet-k80")
//	...
//	result, err := replay.Run(ctx, comm, replay.Config{Profile: p, Designs: exchange.All(), Iterations: 20})
//	err = result.Write(os.Stdout, report.Text)
//
// Layers are kept in step by one scheme, or each by its own (Config.Asked), chosen as in training.
// Or systems are compared (Config.Systems): designs with schemes of their own, such as those of the
// Poseidon paper. Every rank has packed parameters and gradients of the profile's sizes, laid
// out as a net's are, and an Exchange of package exchange, whose hooks it calls
// when the wait for a layer has ended.
//
// # Waits
//
// A wait leaves the core to others: a kernel timer wakes it about a tenth of a
// millisecond early, and it yields for the rest. All layers between two buckets
// share one wait. Each wait ends at a point of a schedule that starts where the
// rank last waited for communication, so that errors do not add up. Computation
// that ran late because there was no free core is caught up with: on a GPU it
// would not have been late. Updates are waits too, one at a time on each rank
// that updates, in proportion to the bucket.
//
// A layer that goes by the scheme sfb or adam hands over factors. Its backward pass is half as
// long, since it leaves its gradient out, and what rebuilds that from the factors of all P ranks is
// a wait of P halves (Poseidon, section 3.2), on every rank or, by adam, on the layer's
// server. These products take turns with
// computation: one has the processor as soon as the factors are there, and the schedule of
// computation goes on after it.
//
// # What is measured
//
// Designs, or systems, take turns: a few iterations of one, then of another, in an order drawn
// anew for each round and equal on all ranks. A turn starts with a barrier and a
// warm-up iteration, which brings the design into its steady state. An iteration
// lasts from the end of one backward phase (where Finish returns) to the next;
// its time is that of the slowest rank. Medians have 95 % confidence intervals
// (package stats).
//
//   - Compute: forward, backward and update of the profile, on the slowest rank.
//   - Products: how much longer the rank computes that rebuilds the most gradients from factors.
//   - Communication: an iteration of SC-B without any computation.
//   - Exposed: iteration less compute. Hidden: the part of the communication
//     that is not exposed.
//   - Tail: what no overlap can hide. The gradients of the first layers are
//     pushed last, when all computation has ended, and the next forward pass
//     starts with these layers. The tail is the time of that bucket's push and
//     pull with nothing else in flight.
//   - Stall: the part of the iteration in which the profile's computation does not run.
//   - Speed-up: over one rank, which waits for nobody.
//   - Bytes of a node: what the messages of its ranks hold in an iteration, by the engine's count.
//   - Target: 1.08 × max(compute, communication) + tail.
//
// It must not know algorithms, solvers or nets.
package replay
