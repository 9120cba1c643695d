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

// Error returns what was attempted, the library's text, the class and the code.
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
	// ErrStarted is returned by Start if MPI was started before: a process can
	// start it once, even after Finalize.
	ErrStarted = errors.New("mpi: MPI was already started in this process, which is possible only once")
	// ErrCancelled is the Err of a Done whose request was ended by Cancel.
	ErrCancelled = errors.New("mpi: the request was canceled")
	// ErrPeersGone is returned by Finalize if the other ranks did not call it in
	// time: MPI_Finalize, which would wait for them forever, was not called.
	ErrPeersGone = errors.New("mpi: not every rank reached the end in time, so MPI was not finalized: exit with a non-zero status, or call Kill, and mpirun ends the other ranks")
)
