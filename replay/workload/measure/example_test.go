package measure_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/scaffe/scaffe/replay/workload/measure"
)

// What a net computes, counted without running it.
func ExampleWork() {
	dir, err := os.MkdirTemp("", "measure")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "net.prototxt")
	err = os.WriteFile(path, []byte(`name: "small"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 3 dim: 8 dim: 8 } } }
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" inner_product_param { num_output: 10 } }
`), 0o644)
	if err != nil {
		fmt.Println(err)
		return
	}
	n, err := measure.Open(path, measure.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	work, err := measure.Work(n, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, l := range work.Layers {
		if l.MACs > 0 {
			fmt.Println(l.Name, l.Params, l.MACs, "multiply-adds a sample")
		}
	}
	// Output:
	// ip1 [1920 10] 1920 multiply-adds a sample
}
