package layers_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/layers"
	"github.com/scaffe/scaffe/caffe/proto"
)

// A layer is made from its message, set up for its bottoms, shaped, and run. A net
// does this for every layer.
func Example() {
	n, err := proto.ParseNet("net.prototxt", []byte(`
layer { name: "ip" type: "InnerProduct" inner_product_param { num_output: 2
  weight_filler { type: "constant" value: 0.5 } bias_filler { type: "constant" value: 1 } } }`))
	if err != nil {
		fmt.Println(err)
		return
	}
	ip, err := layers.New(n.Net.GetLayer()[0], layers.Env{Phase: proto.Phase_TRAIN, Rand: rand.New(rand.NewPCG(1, 2))})
	if err != nil {
		fmt.Println(err)
		return
	}
	x, y := blob.New(1, 3), blob.New()
	copy(x.Data(), []float32{1, 2, 3})
	bottom, top := []*blob.Blob{x}, []*blob.Blob{y}
	for _, step := range []func(bottom, top []*blob.Blob) error{ip.Setup, ip.Reshape, ip.Forward} {
		if err := step(bottom, top); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(y.Data())

	copy(y.Diff(), []float32{1, -1})
	if err := ip.Backward(top, []bool{true}, bottom); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(x.Diff(), ip.Params()[0].Diff())
	// Output:
	// [4 4]
	// [0 0 0] [1 2 3 -1 -2 -3]
}
