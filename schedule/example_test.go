package schedule_test

import (
	"fmt"

	"github.com/scaffe/scaffe/schedule"
)

// An inner rank of a chain receives each chunk, adds its own, and passes it on.
// That it has to receive before it sends follows from the ranges.
func Example() {
	p := schedule.Params{Rank: 1, Size: 3, Count: 10, Chunk: 5}
	b := schedule.NewBuilder(p.Rank, p.Size, p.Count)
	sums := b.SlotRing(2, p.Chunk, len(p.Chunks()))
	for i, c := range p.Chunks() {
		sum := sums.Slot(i, c.Len)
		b.RecvReduce(2, schedule.In.At(c), sum)
		b.Send(0, sum)
	}
	fmt.Print(b.Schedule())
	// Output:
	// rank 1 of 3 count 10 scratch 10
	// 0: recvreduce scratch[0:5] in[0:5] from 2 #0
	// 1: send scratch[0:5] to 0 #0 after 0
	// 2: recvreduce scratch[5:10] in[5:10] from 2 #1
	// 3: send scratch[5:10] to 0 #1 after 2
}
