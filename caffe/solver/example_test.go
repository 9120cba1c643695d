package solver_test

import (
	"context"
	"fmt"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/caffe/solver"
)

// A net learns that its target is 0, whatever its inputs.
func Example() {
	f, err := proto.ParseSolver("solver.prototxt", []byte(`
net_param {
  layer { name: "data" type: "DummyData" top: "data" top: "target" dummy_data_param {
    shape { dim: 8 dim: 3 } shape { dim: 8 dim: 1 } data_filler { type: "gaussian" } data_filler { type: "constant" } } }
  layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 1 weight_filler { type: "xavier" } } }
  layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "target" top: "loss" }
}
base_lr: 0.1 lr_policy: "fixed" momentum: 0.5 max_iter: 100 display: 100`))
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := solver.New(f, solver.Options{NoSnapshots: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	s.Events.OnDisplay = func(d solver.Display) {
		fmt.Printf("iteration %d, learning rate %g, loss below 0.001: %v\n", d.Iter, d.Rate, d.Loss < 0.001)
	}
	if err := s.Solve(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// iteration 0, learning rate 0.1, loss below 0.001: false
	// iteration 100, learning rate 0.1, loss below 0.001: true
}
