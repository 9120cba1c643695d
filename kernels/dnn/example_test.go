package dnn_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/scaffe/scaffe/kernels/dnn"
)

func ExampleConv() {
	conv, err := dnn.NewConv(dnn.Shape{
		N: 1, Groups: 1, In: 1, Out: 1, H: 3, W: 3, OutH: 2, OutW: 2,
		KernelH: 2, KernelW: 2, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1,
	})
	if errors.Is(err, dnn.ErrUnsupported) {
		log.Print("computing it another way")
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	x, w, y := []float32{1, 2, 3, 4, 5, 6, 7, 8, 9}, []float32{1, 0, 0, 1}, make([]float32, 4)
	if err := conv.Forward(x, w, nil, y); err != nil {
		log.Fatal(err)
	}
	fmt.Println(y) // [6 8 12 14]
}
