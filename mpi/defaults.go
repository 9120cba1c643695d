package mpi

import (
	"fmt"
	"os"
)

// defaults are variables that the libraries read when they start.
var defaults = []struct{ name, value string }{
	// MPI_Init, which empi calls, has no argument for the level of threads.
	{"OMPI_MPI_THREAD_LEVEL", "2"}, // MPI_THREAD_SERIALIZED
	{"MPIR_CVAR_DEFAULT_THREAD_LEVEL", "MPI_THREAD_SERIALIZED"},
	// Open MPI's TCP writes a large message in one piece once its receiver has asked for it (put). Both ways at
	// once between two ranks, each one's request then waits behind the other's message, and the link is
	// half idle. Sent in pieces of 128 KiB, messages let requests through (docs/lab.md, Measured).
	{"OMPI_MCA_btl_tcp_flags", "send,inplace"},
}

// setDefaults sets them in the environment, but for those that are set: mpirun has its own
// parameters there too.
func setDefaults() error {
	for _, d := range defaults {
		if _, set := os.LookupEnv(d.name); set {
			continue
		}
		if err := os.Setenv(d.name, d.value); err != nil {
			return fmt.Errorf("mpi: %w", err)
		}
	}
	return nil
}
