package overmpi_test

import (
	"fmt"

	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/overmpi"
)

// An engine over MPI, for a program that mpirun has started. (Package launch
// does this, and sees to it that all ranks end together.)
func Example() {
	cpu, err := kernels.NewCPU()
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := nbc.Start(overmpi.Open(overmpi.Options{}), device.CPU(cpu), nbc.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	fmt.Println(e.Rank(), "of", e.Size())
}
