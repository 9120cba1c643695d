package shm_test

import (
	"fmt"

	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/overmpi"
	"github.com/scaffe/scaffe/nbc/shm"
)

// An engine whose messages within a node move through shared memory, and all
// others through MPI.
func Example() {
	cpu, err := kernels.NewCPU()
	if err != nil {
		fmt.Println(err)
		return
	}
	open := shm.Over(overmpi.Open(overmpi.Options{}), shm.Options{})
	e, err := nbc.Start(open, device.CPU(cpu), nbc.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	fmt.Println(e.Rank(), "of", e.Size())
}
