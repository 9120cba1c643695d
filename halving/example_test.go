package halving_test

import (
	"fmt"

	"github.com/scaffe/scaffe/halving"
	"github.com/scaffe/scaffe/schedule"
)

// Rank 0 of 4: half of the buffer is exchanged with rank 2, a quarter with rank 1, and then both back.
func ExampleAllreduce() {
	p := schedule.Params{Rank: 0, Size: 4, Count: 8}
	b := schedule.NewBuilder(p.Rank, p.Size, p.Count)
	halving.Allreduce(b, p)
	fmt.Print(b.Schedule())
	// Output:
	// rank 0 of 4 count 8 scratch 0
	// 0: send in[4:8] to 2 #0
	// 1: recvreduce out[0:4] in[0:4] from 2 #0
	// 2: send out[2:4] to 1 #0 after 1
	// 3: recvreduce out[0:2] out[0:2] from 1 #0 after 1
	// 4: send out[0:2] to 1 #1 after 3
	// 5: recv out[2:4] from 1 #1 after 2
	// 6: send out[0:4] to 2 #1 after 3 5
	// 7: recv out[4:8] from 2 #1 after 0
}
