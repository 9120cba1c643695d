package workload_test

import (
	"fmt"

	"github.com/scaffe/scaffe/replay/workload"
)

func ExampleParse() {
	p, err := workload.Parse("mine.profile", `# scaffe profile
net "two layers"
source made up
batch 32
update_ms 0.5
layer conv1 Convolution 2 4 432 16
layer ip1 InnerProduct 1 2 4096000 1000
`)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Bytes(), p.Compute())
	// Output: 16389792 9.5ms
}

func ExampleLoad() {
	p, err := workload.Load("alexnet-k80")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Net, p.Bytes()/4, "parameters")
	// Output: AlexNet 60965224 parameters
}
