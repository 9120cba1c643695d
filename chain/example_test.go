package chain_test

import (
	"fmt"

	"github.com/scaffe/scaffe/chain"
	"github.com/scaffe/scaffe/schedule"
)

// Three ranks, two chunks: rank 1 stands in the middle and passes each chunk on
// while the next one arrives.
func ExampleReduce() {
	p := schedule.Params{Rank: 1, Size: 3, Count: 8, Chunk: 4}
	b := schedule.NewBuilder(p.Rank, p.Size, p.Count)
	chain.Reduce(b, p)
	fmt.Print(b.Schedule())
	// Output:
	// rank 1 of 3 count 8 scratch 8
	// 0: recvreduce scratch[0:4] in[0:4] from 2 #0
	// 1: send scratch[0:4] to 0 #0 after 0
	// 2: recvreduce scratch[4:8] in[4:8] from 2 #1
	// 3: send scratch[4:8] to 0 #1 after 2
}
