// Package exchange decides when parameters and gradients move: the designs of
// S-Caffe, sections 4.1 to 4.3.
//
// An Exchange owns the buckets of a net and is told, by hooks around every
// layer, how far an iteration has come. The designs differ in nothing but when
// a bucket's two collectives start and who waits for them:
//
//	             gradients (push)            parameters (pull)
//	SC-B         one packed buffer after     one packed buffer before
//	             backward, awaited           forward, awaited
//	SC-OB-naive  after backward, awaited     bucket i+1 under the forward of
//	                                         bucket i (Figure 4)
//	SC-OB        after backward, awaited     all at the start, each awaited
//	                                         before its layer (Figure 5)
//	SC-OBR       each as soon as its layers' as soon as the bucket is updated,
//	             backward ends (Figure 6)    each awaited before its layer
//
// With the scheme allreduce there is no second collective: every rank updates.
// Then the allreduce itself takes the place of the pull: SC-OB starts all of
// them after backward and SC-OB-naive one ahead of the layer that needs it, each
// awaited before its layer in the next iteration; SC-B awaits it after backward.
//
// # Helpers
//
// Every bucket has a helper, a goroutine that waits for its collectives, has the
// sum used (Config.Update), and in SC-OBR starts the pull. So a bucket's
// parameters come back while the layers below it are still in their backward
// pass, and the computing goroutine waits for what the next layer needs and for
// nothing else. The collectives themselves are moved by package nbc.
//
// # The same bits
//
// All designs cut the net at the same places, and the packed buffer of SC-B is
// summed part by part as the buckets are (collectives.Parts). So for one spec and
// one bucket size all give the same bits. The spec mpi is excepted: what the MPI
// library does with a packed buffer is its own affair.
//
// The package knows layers as numbers with ranges of a packed buffer. Solvers,
// and what computing a layer means, are none of its business: package train
// joins it to a solver, package replay to timed waits.
package exchange
