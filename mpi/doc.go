// Package mpi wraps the MPI library that the program was built against: Open
// MPI, MPICH, MVAPICH2 or another that comes with a compiler wrapper.
//
// It owns all MPI cgo: starting and ending, ranks and nodes, communicators,
// requests and collectives on raw memory, and turning return codes into Go
// errors with the library's own text. It must not know what the messages mean.
//
// With the build tag mpi it is real; without it the same functions serve a
// world of one rank, in Go alone, and Built returns "".
//
// # One thread
//
// MPI is asked for no more than MPI_THREAD_SERIALIZED: one OS thread makes all
// calls, first the one that called Start, then any that calls World.Move. A
// call from another thread does nothing and returns an Error of class
// WRONG_THREAD. Kill alone may come from anywhere, and the first thread calls
// Finalize.
//
//	runtime.LockOSThread()
//	world, err := mpi.Start()
//	if err != nil {
//		return err
//	}
//	defer world.Finalize(ctx)
//	comm := world.Comm() // a duplicate of MPI_COMM_WORLD, errors return
//	reqs := world.NewRequests()
//	defer reqs.Free()
//	err = comm.Irecv(reqs, 1, dst.Pointer(), dst.Len(), from, tag)
//	...
//	n, err := reqs.Testsome(done)
//
// # Two ways to lifecycle
//
// Starting, ending, rank, size, Barrier and the small gathers of the set-up go
// through github.com/emer/empi. It has no requests, error handlers or raw
// pointers, so everything that carries data is this package's own code on a
// communicator of its own.
//
// # The wrong mpirun
//
// Ranks find each other through the mpirun that started them. Under the mpirun
// of another library each of N processes comes up as the only rank of its own
// world, or hangs. Start looks at what mpirun left in the environment before
// it touches the library, and answers with a *LauncherError that names the
// mpirun used, the library in the program, and the two ways out.
//
// Likewise the library that the dynamic linker found is compared with the one
// whose headers the program was compiled with: another binary interface is an
// error, another release of the same interface a line in World.Notes.
package mpi
