package binomial_test

import (
	"fmt"

	"github.com/scaffe/scaffe/binomial"
	"github.com/scaffe/scaffe/schedule"
)

// Rank 2 of 4 adds what its child 3 sends, and sends the sum to its parent 0.
func ExampleReduce() {
	p := schedule.Params{Rank: 2, Size: 4, Count: 8}
	b := schedule.NewBuilder(p.Rank, p.Size, p.Count)
	binomial.Reduce(b, p)
	fmt.Print(b.Schedule())
	// Output:
	// rank 2 of 4 count 8 scratch 8
	// 0: recvreduce scratch[0:8] in[0:8] from 3 #0
	// 1: send scratch[0:8] to 0 #0 after 0
}
