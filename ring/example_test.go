package ring_test

import (
	"fmt"

	"github.com/scaffe/scaffe/ring"
	"github.com/scaffe/scaffe/schedule"
)

// Rank 0 of 3: two steps that reduce a third of the buffer each, and two that pass
// the sums on.
func ExampleAllreduce() {
	p := schedule.Params{Rank: 0, Size: 3, Count: 9}
	b := schedule.NewBuilder(p.Rank, p.Size, p.Count)
	ring.Allreduce(b, p)
	fmt.Print(b.Schedule())
	// Output:
	// rank 0 of 3 count 9 scratch 0
	// 0: send in[0:3] to 1 #0
	// 1: recvreduce out[6:9] in[6:9] from 2 #0
	// 2: send out[6:9] to 1 #1 after 1
	// 3: recvreduce out[3:6] in[3:6] from 2 #1
	// 4: send out[3:6] to 1 #2 after 3
	// 5: recv out[0:3] from 2 #2 after 0
	// 6: send out[0:3] to 1 #3 after 5
	// 7: recv out[6:9] from 2 #3 after 2
}

// Rank 0 of 3, whose parts are of 4, 1 and 2 elements: it sends its own part, passes on
// that of rank 2, and gets that of rank 1.
func ExampleAllgather() {
	p := schedule.Params{Rank: 0, Size: 3, Count: 7, Parts: [][]schedule.Range{{{Off: 0, Len: 4}}, {{Off: 4, Len: 1}}, {{Off: 5, Len: 2}}}}
	b := schedule.NewBuilder(p.Rank, p.Size, p.Count)
	ring.Allgather(b, p)
	fmt.Print(b.Schedule())
	// Output:
	// rank 0 of 3 count 7 scratch 0
	// 0: send in[0:4] to 1 #0
	// 1: recv out[5:7] from 2 #0
	// 2: send out[5:7] to 1 #1 after 1
	// 3: recv out[4:5] from 2 #1
	// 4: copy out[0:4] in[0:4] after 0
}
