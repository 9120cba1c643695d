package proto_test

import (
	"fmt"

	"github.com/scaffe/scaffe/caffe/proto"
)

// A typo is found with its line, and so is what only a later step can see.
func Example() {
	_, err := proto.ParseNet("typo.prototxt", []byte(`
layer {
  name: "conv1"
  type: "Convolution"
  convolution_parm { num_output: 20 }
}`))
	fmt.Println(err)

	net, err := proto.ParseNet("net.prototxt", []byte(`
layer {
  name: "conv1"
  type: "Convolution"
  convolution_param {
    num_output: 20
    kernel_size: 500
  }
}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(net.LayerError(0, []string{"convolution_param", "kernel_size"}, "a kernel of %d does not fit into 28x28", 500))
	// Output:
	// typo.prototxt:5:3: unknown field "convolution_parm" in layer "conv1" (did you mean "convolution_param"?)
	// net.prototxt:7:5: layer "conv1": a kernel of 500 does not fit into 28x28
}
