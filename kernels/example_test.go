package kernels_test

import (
	"fmt"

	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/mem"
)

func ExampleCPU_Reduce() {
	cpu, err := kernels.NewCPU()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cpu.Close()
	mine, theirs := []float32{1, 2, 3}, []float32{10, 20, 30}
	sum := make([]float32, 3)
	if err := cpu.Reduce(mem.Float32, mem.Sum, mem.Of(sum), mem.Of(mine), mem.Of(theirs)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sum)
	// Output: [11 22 33]
}
