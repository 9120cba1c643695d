package net_test

import (
	"fmt"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/proto"
)

// A net is built, packed, and run with a hook that sees when each layer's
// gradients are complete.
func Example() {
	f, err := proto.ParseNet("net.prototxt", []byte(`
layer { name: "data" type: "DummyData" top: "data" top: "target" dummy_data_param {
  shape { dim: 8 dim: 3 } shape { dim: 8 dim: 2 } data_filler { type: "gaussian" } data_filler { type: "constant" } } }
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip2" bottom: "target" top: "loss" }`))
	if err != nil {
		fmt.Println(err)
		return
	}
	n, err := net.New(f, net.Options{Phase: proto.Phase_TRAIN, Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer n.Close()
	if _, _, err := n.Pack(nil); err != nil {
		fmt.Println(err)
		return
	}
	layers := n.Layers()
	n.Hooks.AfterBackward = func(i int) error {
		for _, p := range layers[i].Params {
			fmt.Println("ready:", n.Learnable()[p].Name, "at", n.Learnable()[p].Offset)
		}
		return nil
	}
	n.ClearDiffs()
	if _, err := n.ForwardBackward(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// ready: ip2.0 at 32
	// ready: ip2.1 at 48
	// ready: ip1.0 at 0
	// ready: ip1.1 at 16
}
