// Package collectives combines and spreads buffers over ranks: Reduce, Bcast,
// Allreduce, Allgather, Gather, ReduceScatter and Barrier, each blocking, non-blocking (Ireduce) and, but for
// Barrier, persistent (ReduceInit).
//
//	comm := collectives.World(engine, collectives.Options{}) // or the one of launch.Run
//	grad, err := comm.Alloc(mem.Float32.Bytes(n))
//	...
//	err = comm.Allreduce(ctx, grad, grad, mem.Float32, mem.Sum)
//
// How a collective is done is a spec, such as chain:8/binomial (package
// collectives/spec). Which spec serves a call is selected (package
// collectives/selection) as the call, a flag, the environment, a tuning table or at
// last a cost model says; docs/tuning.md tells more. The spec gives this rank's
// schedule, which the engine (package nbc) executes. Compiled schedules are kept, so
// that the same call is planned once.
//
// The same spec adds in the same order and so gives the same bits on every run;
// another spec, chunk or chain size may give other bits.
//
// # Errors
//
// Wrong arguments are refused when a collective is called, before anything is sent.
// What fails later (a rank that is gone, a deadline, different calls on different
// ranks) fails the engine as a whole; package nbc has the errors' types.
//
// # Selecting alike
//
// What is selected is a function of the call, the layout of the ranks and the
// communicator's Selector alone. Configure, a collective, gives all ranks the
// Selector that rank 0's options, environment and files make. Nothing that ranks
// could see differently, such as where in the host's memory a buffer lies, takes part. Blocking and
// non-blocking calls may be served differently: one matches the other only where
// both ask for the same spec.
//
// # Memory of GPUs
//
// Where the engine serves it (nbc.Engine.Serves) the buffers of a call may lie in a GPU's memory (Comm.AllocIn), those of one rank
// and those of all: a rank that differs in that calls another collective, and all learn so. Another kind of buffers is
// selected for then, with larger chunks. The MPI library's own collectives (spec mpi) refuse them.
package collectives
