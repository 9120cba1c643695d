package factors_test

import (
	"fmt"

	"github.com/scaffe/scaffe/kernels/factors"
)

// Two workers with a sample each: the gradient of a layer of two outputs and
// three inputs.
func Example() {
	s, err := factors.NewStack(factors.Shape{Out: 2, In: 3}, []int{1, 1}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	stacked := make([]float32, s.Len())
	s.Put(stacked, 1, 0, []float32{0, 1}, []float32{7, 8, 9}) // in any order
	s.Put(stacked, 0, 0, []float32{1, 2}, []float32{1, 2, 3})
	weights, bias := make([]float32, 6), make([]float32, 2)
	err = s.Rebuild(stacked, weights, bias)
	fmt.Println(weights, bias, err)
	// Output: [1 2 3 9 12 15] [1 3] <nil>
}
