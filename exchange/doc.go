// Package exchange decides when parameters and gradients move: the designs of
// S-Caffe, sections 4.1 to 4.3, Poseidon's wait-free backpropagation, and TensorFlow's as Poseidon
// describes it.
//
// An Exchange owns the buckets of a net and is told, by calls around every
// layer, how far an iteration has come. A design is a row of a table (designs, in
// policy.go): when a bucket's gradients start to move and are awaited, when its
// parameters start to move and are awaited. With the scheme Reduce:
//
//	             push at         awaited at   pull at       awaited at
//	SC-B         after backward  Finish       Start         before forward   all as one packed buffer
//	SC-OB-naive  after backward  Finish       one ahead     before forward   Figure 4
//	SC-OB        after backward  Finish       Start         before forward   Figure 5
//	SC-OBR       after layers    its sum      its sum       before forward   Figure 6
//	WFBP         after layers    its sum      its sum       Finish           Poseidon, Algorithm 2
//	TF           after layers    Finish       Start         before forward   Poseidon, section 5.1
//
// "After layers" is when the backward pass of the bucket's own layers has ended,
// "one ahead" when the forward pass comes to the bucket before it. WFBP is SC-OBR
// with an end of the iteration at which all parameters are current: Poseidon's vector
// C, which holds a 1 for every layer that has been synchronized, is all ones. TF overlaps
// gradients as WFBP does, and parameters with the forward pass alone. Another paper's design is
// another row. With PS, the parameter server, it is the same: each KV
// pair's server takes the place of the root.
//
// With Allreduce every rank updates and there is nothing to pull. The allreduce
// takes the place of the pull: SC-OB starts all of them after backward, SC-OBR
// each after its layers, SC-OB-naive one ahead, each awaited before forward;
// SC-B, WFBP and TF await it at Finish.
//
// With Adam a gather of factors takes the place of the reduction, to the one server of
// each layer; the rest is as with PS. AfterPass takes a layer's factors after every pass.
//
// With SFB the same holds of an allgather of factors, from which every rank rebuilds the
// sum; AfterPass takes them as with Adam. With OneBit it is gathers of quantised stripes, and
// an allgather of their sums.
//
// Every layer may have a scheme of its own (Config.Schemes): buckets hold layers of
// one scheme, each follows its scheme's policy, and SC-B packs neighbors of one
// scheme.
//
// A Syncer hands its bucket over in parts, each when its sum is there. A part is updated, and
// in SC-OBR and WFBP its pull starts, while others are on their way. With PS these parts are
// the KV pairs, with Reduce and Allreduce the slices (Config.Slice). Parts have their bucket's priority,
// the front of the net the highest, unless all are awaited together at Finish (WFBP); Config.Credit has it hold over all peers of a rank.
//
// # An iteration on a line
//
// What calls what, from top to bottom in time. The solver's hooks and callbacks
// (package caffe/solver) call package train, which calls the exchange, which
// calls the bucket's Syncer (package syncer) and, when the sum is there, back:
//
//	solver                train             Exchange         Syncer           events (trace)
//	OnStart               start             Start            Pull             Iteration …
//	BeforeForward(layer)  beforeForward     BeforeForward    Pulled, (Pull)   Pull, WaitPull
//	                                                                          Input or Forward
//	OnLoss                lossKnown: starts to sum the loss over the ranks
//	BeforeBackward        beforeBackward
//	AfterBackward(layer)  afterBackward     AfterBackward    Push             Backward
//	   on the bucket's goroutine, whenever its sum arrives:  Pushed           Push
//	                      onSum             OnSum                             Update
//	                                                         Pull, Pulled     Pull
//	OnGradientsReady      gradientsReady    Finish           (Pushed)         WaitPush
//	   with UpdateAtOnce: beforeUpdates     BeforeUpdates, OnSum              Update
//	                      waits for the loss                                  Sync
//	OnIteration           what users see
//	Requested             what all ranks agreed on with the loss              … Iteration
//	OnSnapshot            snapshot          Updated          Pushed           Snapshot
//	OnParams              paramsNeeded      Current          Pull, Pulled     Test
//
// # Goroutines
//
// Every bucket has a goroutine that waits for its collectives, has the sum used
// (Config.OnSum), and in SC-OBR starts the pull. So a bucket's parameters come
// back while the layers below it are still in their backward pass, and the
// computing goroutine waits for what the next layer needs and for nothing else.
// The collectives themselves are moved by package nbc.
//
// # The same bits
//
// All designs cut the net at the same places, and the packed buffer of SC-B is
// summed part by part as the buckets are (collectives.Parts). So for one spec and
// one bucket size all give the same bits. The spec mpi is excepted: the MPI
// library decides how it adds a packed buffer.
//
// The package knows layers as numbers with ranges of a packed buffer. It does not
// know solvers, nor what computing a layer means: package train joins it to a
// solver, package replay to timed waits.
package exchange
