// Package mpi wraps the MPI library that the program was built against: Open
// MPI, MPICH, MVAPICH2, or another one that has a compiler wrapper.
//
// It owns all MPI cgo: starting and ending MPI, ranks and nodes, communicators,
// requests and collectives on raw memory, and turning return codes into Go
// errors with the library's own text. It must not know what the messages mean.
//
// With the build tag mpi it calls the library. Without it the same functions
// serve a world of one rank in pure Go, and Built returns "".
//
//	runtime.LockOSThread()
//	world, err := mpi.Start()
//	if err != nil {
//		return err
//	}
//	defer world.Finalize(ctx)
//	comm := world.Comm() // a duplicate of MPI_COMM_WORLD whose errors are returned
//	reqs := world.NewRequests()
//	defer reqs.Free()
//	err = comm.Irecv(reqs, 1, dst.Pointer(), dst.Len(), from, tag)
//	...
//	n, err := reqs.Testsome(done)
//
// # Threads
//
// MPI is asked for MPI_THREAD_SERIALIZED: one OS thread at a time makes calls.
// That is the thread that called Start, until another one calls World.Move; the
// caller makes sure that the two do not call at once. A call from any other
// thread does nothing and returns an Error of class WRONG_THREAD. Only Kill may
// be called from any thread, and Finalize is called by the thread that called
// Start. Where the library grants less than MPI_THREAD_SERIALIZED, Move refuses
// and that thread makes all calls.
//
// # A guest of an MPI that runs
//
// Attach makes a world of the ranks of a communicator that a program has made which started MPI by itself.
// All C calls of this package go to PMPI_X, past tools and interposers that count a program's own calls.
//
// # What is left to empi
//
// Starting, ending, rank, size and Barrier use github.com/emer/empi. It has no requests, error handlers or raw pointers, so
// everything that carries data is this package's own code, on communicators of
// its own.
//
// # The wrong mpirun
//
// Ranks find each other through the mpirun that started them. Under another
// library's mpirun each of N processes starts as the only rank of its own world,
// or hangs. Start looks at what mpirun left in the environment before it calls
// the library, and returns a *LauncherError that names the mpirun, the library
// in the program, and two ways to fix it.
//
// Likewise Start compares the library that the dynamic linker found with the
// one whose headers the program was compiled with: a different binary interface
// is an error, a different release with the same interface a line in
// World.Notes.
package mpi
