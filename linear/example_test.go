package linear_test

import (
	"fmt"

	"github.com/scaffe/scaffe/linear"
	"github.com/scaffe/scaffe/schedule"
)

// The root takes everyone's contribution in turn.
func ExampleReduce() {
	p := schedule.Params{Rank: 0, Size: 3, Count: 8}
	b := schedule.NewBuilder(p.Rank, p.Size, p.Count)
	linear.Reduce(b, p)
	fmt.Print(b.Schedule())
	// Output:
	// rank 0 of 3 count 8 scratch 0
	// 0: recvreduce out[0:8] in[0:8] from 1 #0
	// 1: recvreduce out[0:8] out[0:8] from 2 #0 after 0
}
