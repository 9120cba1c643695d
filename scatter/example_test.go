package scatter_test

import (
	"fmt"

	"github.com/scaffe/scaffe/scatter"
	"github.com/scaffe/scaffe/schedule"
)

// Rank 1 of 3 receives the first half of the buffer from the root, and exchanges halves with rank 2.
func ExampleBcast() {
	p := schedule.Params{Rank: 1, Size: 3, Count: 8}
	b := schedule.NewBuilder(p.Rank, p.Size, p.Count)
	scatter.Bcast(b, p)
	fmt.Print(b.Schedule())
	// Output:
	// rank 1 of 3 count 8 scratch 0
	// 0: recv out[0:4] from 0 #0
	// 1: send out[0:4] to 2 #0 after 0
	// 2: recv out[4:8] from 2 #0
}
