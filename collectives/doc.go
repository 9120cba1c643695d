// Package collectives holds the public verbs: Reduce, Bcast, Allreduce,
// Barrier, their non-blocking and persistent forms, and the specs that say
// how each is done.
//
//	comm := collectives.World(engine, collectives.Options{})
//	grad, err := comm.Alloc(mem.Float32.Bytes(n))
//	...
//	err = comm.Allreduce(ctx, grad, grad, mem.Float32, mem.Sum)
//
// A call goes down in three steps: select picks a Spec (what the caller asked
// for, or the built-in rule), Build composes the rank's schedule from the
// algorithm packages, one lens a level, and the engine of package nbc
// executes the compiled plan. Plans are kept: the same call costs no second
// building.
//
// The same spec adds in the same order and so gives the same bits on every
// run; another spec, chunk or chain size may give other bits.
package collectives
