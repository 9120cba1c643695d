package direct_test

import (
	"fmt"

	"github.com/scaffe/scaffe/direct"
	"github.com/scaffe/scaffe/schedule"
)

// Rank 1 of 3 lends the others its contributions to their parts, sums its own part
// over all ranks, and puts the sum into the root's Out.
func ExampleReduce() {
	p := schedule.Params{Rank: 1, Size: 3, Count: 9}
	b := schedule.NewBuilder(p.Rank, p.Size, p.Count)
	direct.Reduce(b, p)
	fmt.Print(b.Schedule())
	// Output:
	// rank 1 of 3 count 9 scratch 4
	// 0: send in[0:3] to 0 #0
	// 1: send in[6:9] to 2 #0
	// 2: recvreduce scratch[0:3] in[3:6] from 2 #0
	// 3: recvreduce scratch[0:3] scratch[0:3] from 0 #0 after 2
	// 4: send scratch[0:3] to 0 #1 after 3
}
