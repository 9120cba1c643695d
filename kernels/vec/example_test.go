package vec_test

import (
	"fmt"

	"github.com/scaffe/scaffe/kernels/vec"
)

// A solver's momentum step, which clears the gradient in the same pass.
func ExampleUpdate_SGD() {
	w, g, h := []float32{1, 2}, []float32{10, -10}, []float32{0, 1}
	step := vec.Update{Scale: 1, Rate: 0.1, Clear: true}
	step.SGD(0.5, w, g, h)
	fmt.Println(w, g, h)
	// Output: [0 2.5] [0 0] [1 -0.5]
}

func ExampleDot() {
	fmt.Println(vec.Dot([]float32{1, 2, 3}, []float32{4, 5, 6}))
	// Output: 32
}
