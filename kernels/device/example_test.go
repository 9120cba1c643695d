package device_test

import (
	"fmt"

	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/mem"
)

func ExampleCPU() {
	k, err := kernels.NewCPU()
	if err != nil {
		fmt.Println(err)
		return
	}
	sum := []float32{1, 2}
	done, err := device.CPU(k).Reduce(0, mem.Float32, mem.Sum, mem.Of(sum), mem.Of(sum), mem.Of([]float32{10, 20}))
	fmt.Println(sum, done, err)
	// Output: [11 22] true <nil>
}
