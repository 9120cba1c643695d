// Package mpitest runs the tests of a package on every rank that mpirun starts of its
// test program, all ranks in one order, and on one rank under go test:
//
//	func TestMain(m *testing.M) { mpitest.Main(m) }
//
//	func TestRank(t *testing.T) {
//		mpitest.On(t, func() error { …mpitest.World()… })
//	}
package mpitest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/scaffe/scaffe/mpi"
)

// within bounds the end, so that a rank whose peer has failed ends too.
const within = 10 * time.Minute

var (
	world *mpi.World
	calls = make(chan func()) // of MPI's thread
)

// World is the world of all ranks.
func World() *mpi.World { return world }

// Main is TestMain: it starts MPI, runs the tests, ends MPI, and exits.
func Main(m *testing.M) {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		var err error
		world, err = mpi.Start()
		failed <- err
		for f := range calls {
			f()
		}
	}()
	if err := <-failed; err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	code := m.Run()
	err := call(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		return world.Finalize(ctx)
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "rank %d: %v\n", world.Rank(), err)
		code = 1
	}
	os.Exit(code)
}

// call runs f on MPI's thread.
func call(f func() error) error {
	done := make(chan error)
	calls <- func() { done <- f() }
	return <-done
}

// On runs f on MPI's thread.
func On(t *testing.T, f func() error) {
	t.Helper()
	if err := call(f); err != nil {
		t.Errorf("rank %d of %d: %v", world.Rank(), world.Size(), err)
	}
}
