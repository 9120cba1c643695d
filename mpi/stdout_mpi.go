//go:build mpi

package mpi

/*
#include <fcntl.h>

static int scaffe_stdout_closed;

// It runs before the Go runtime, which opens /dev/null in place of a closed
// descriptor.
__attribute__((constructor)) static void scaffe_look_at_stdout(void) {
  scaffe_stdout_closed = fcntl(1, F_GETFD) < 0;
}

static int scaffe_was_stdout_closed(void) { return scaffe_stdout_closed; }
*/
import "C"

func stdoutClosed() bool { return C.scaffe_was_stdout_closed() != 0 }
