package mpi

// StdoutClosed reports whether this process was started without a standard
// output, as by ">&-" in a shell. The Go runtime hides that from Go code; only
// a program that is built with MPI, and so with C, can tell.
func StdoutClosed() bool { return stdoutClosed() }
