// Package collectives holds the public verbs: Reduce, Bcast, Allreduce,
// Barrier, their non-blocking and persistent forms, and the specs that say
// how each is done.
//
//	comm := collectives.World(engine, collectives.Options{})
//	grad, err := comm.Alloc(mem.Float32.Bytes(n))
//	...
//	err = comm.Allreduce(ctx, grad, grad, mem.Float32, mem.Sum)
//
// A call goes down in three steps: Select picks a Spec (as the call, a flag, the
// environment, a tuning table or at last the cost model says; docs/tuning.md),
// Build composes the rank's schedule from the
// algorithm packages, one lens a level, and the engine of package nbc
// executes the compiled plan. Plans are kept: the same call costs no second
// building.
//
// The same spec adds in the same order and so gives the same bits on every
// run; another spec, chunk or chain size may give other bits.
//
// # Selecting alike
//
// What is selected is a function of the call, the layout of the ranks and the
// communicator's Selector alone. Configure, a collective, gives all ranks the
// Selector that rank 0's options, environment and files make. Nothing that ranks
// could see differently, such as where a buffer lies, takes part; blocking and
// non-blocking calls may be served differently, so that one does not meet the
// other unless both ask for the same spec.
package collectives
