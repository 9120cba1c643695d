package check_test

import (
	"errors"
	"fmt"

	"github.com/scaffe/scaffe/chain"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check"
)

// A chain over three ranks is a reduction; without rank 1's dependency it
// sends its sum before it has it.
func Example() {
	var all []*schedule.Schedule
	for rank := range 3 {
		b := schedule.NewBuilder(rank, 3, 8)
		chain.Reduce(b, schedule.Params{Rank: rank, Size: 3, Count: 8, Chunk: 4})
		all = append(all, b.Schedule())
	}
	steps, _ := check.Steps(all)
	fmt.Println(check.Prove(schedule.Reduce, all, 0), steps)

	all[1].Ops[1].Deps = nil
	err := check.Prove(schedule.Reduce, all, 0)
	fmt.Println(errors.Is(err, check.Race))
	fmt.Println(err)
	// Output:
	// <nil> 3
	// true
	// check: race: rank 1 op 1 (send scratch[0:4] to 0 #0): its read of scratch[0:4] does not wait for op 0 (recvreduce scratch[0:4] in[0:4] from 2 #0), which writes the same memory
}
