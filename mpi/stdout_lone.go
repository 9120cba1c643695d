//go:build !mpi

package mpi

func stdoutClosed() bool { return false }
