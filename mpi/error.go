package mpi

import (
	"errors"
	"fmt"
)

// Error is an MPI call that failed.
type Error struct {
	Op    string // what was attempted: "MPI_Isend of 64 bytes to rank 3, tag 7"
	Class string // the error class without its prefix: TRUNCATE, RANK, PROC_FAILED
	Code  int    // the library's own number
	Text  string // MPI_Error_string
}

// Error returns the attempt, the class and the library's text.
func (e *Error) Error() string {
	return fmt.Sprintf("mpi: %s failed: %s (%s, code %d)", e.Op, e.Text, e.Class, e.Code)
}

// Truncated reports whether err says that a message was longer than the
// memory it was to be received into (MPI_ERR_TRUNCATE).
func Truncated(err error) bool {
	if err == nil {
		return false // without the allocation that errors.As costs
	}
	var e *Error
	return errors.As(err, &e) && e.Class == "TRUNCATE"
}

var (
	// ErrStarted is returned by Start where MPI was started before: it starts
	// once in the life of a process, even after Finalize.
	ErrStarted = errors.New("mpi: MPI was started before in this process; it starts once")
	// ErrCancelled is the Err of a Done whose request Cancel ended.
	ErrCancelled = errors.New("mpi: the request was cancelled")
	// ErrPeersGone is returned by Finalize where the other ranks did not reach
	// it in time: MPI_Finalize would wait for them for ever and was left out.
	ErrPeersGone = errors.New("mpi: not every rank reached the end in time, so MPI was not finalised; end the process with a non-zero status or Kill and mpirun ends the others")
)
