package doubling_test

import (
	"fmt"

	"github.com/scaffe/scaffe/doubling"
	"github.com/scaffe/scaffe/schedule"
)

// Rank 0 of 4: an exchange with rank 1, and one with rank 2.
func ExampleAllreduce() {
	p := schedule.Params{Rank: 0, Size: 4, Count: 9}
	b := schedule.NewBuilder(p.Rank, p.Size, p.Count)
	doubling.Allreduce(b, p)
	fmt.Print(b.Schedule())
	// Output:
	// rank 0 of 4 count 9 scratch 18
	// 0: send in[0:9] to 1 #0
	// 1: recvreduce scratch[9:18] in[0:9] from 1 #0
	// 2: send scratch[9:18] to 2 #0 after 1
	// 3: recvreduce out[0:9] scratch[9:18] from 2 #0 after 0 1
}
