package mpi_test

import (
	"context"
	"fmt"
	"log"
	"runtime"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
)

// Every rank sends a message to itself. (Not run here: the tests have started MPI,
// which a process can do once.)
func Example() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx := context.Background()
	world, err := mpi.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = world.Finalize(ctx) }()

	const tag = 7
	comm, me := world.Comm(), world.Rank()
	src, dst := mem.Of([]float32{1, 2, 3}), mem.Of(make([]float32, 3))
	reqs := world.NewRequests()
	defer reqs.Free()
	if err := comm.Irecv(reqs, 1, dst.Pointer(), dst.Len(), me, tag); err != nil {
		log.Fatal(err)
	}
	if err := comm.Isend(reqs, 2, src.Pointer(), src.Len(), me, tag); err != nil {
		log.Fatal(err)
	}
	for done := make([]mpi.Done, 2); reqs.Live() > 0; {
		n, err := reqs.Testsome(done)
		if err != nil {
			log.Fatal(err)
		}
		for _, d := range done[:n] {
			if d.Err != nil {
				log.Fatal(d.Err)
			}
		}
	}
	fmt.Println(world.Nodes(), mem.Float32s(dst))
}

func ExampleParseLibrary() {
	l := mpi.ParseLibrary("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4")
	fmt.Println(l, l.Family())
	// Output:
	// Open MPI 4.1.4 openmpi
}
