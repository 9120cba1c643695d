package nn_test

import (
	"fmt"

	"github.com/scaffe/scaffe/kernels/nn"
)

func ExampleMaxPool() {
	halves := []nn.Span{{Lo: 0, Hi: 2}, {Lo: 2, Hi: 4}}
	p := nn.NewMaxPool(halves, halves, 4, 4) // 2×2 windows, 2 apart
	maxima, positions := make([]float32, 4), make([]int32, 4)
	p.Plane(maxima, positions, []float32{
		1, 2, 0, 0,
		3, 4, 0, 7,
		0, 0, 5, 5,
		9, 0, 5, 5,
	})
	fmt.Println(maxima, positions)
	// Output: [4 7 9 5] [5 7 12 10]
}
