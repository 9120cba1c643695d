package spec_test

import (
	"fmt"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check"
)

// The paper's names and the spec's own text are the same thing.
func ExampleParse() {
	for _, text := range []string{"CB-8", "chain:4,chunk=524288/chain:4/binomial", "chain:4"} {
		fmt.Println(spec.Parse(text))
	}
	// Output:
	// chain:8/binomial <nil>
	// chain:4,chunk=512K/chain:4/binomial <nil>
	//  algorithm spec "chain:4": the last level (chain) takes all ranks that are left and has no size; leave it out, or add a level above it
}

// The schedules of a reduction over 4 nodes of 2 ranks, proved right together.
func ExampleBuild() {
	s, err := spec.Parse("direct/chain")
	if err != nil {
		fmt.Println(err)
		return
	}
	var all []*schedule.Schedule
	for rank := range 8 {
		one, err := spec.Build(spec.Call{
			Collective: schedule.Reduce, Rank: rank, Size: 8, Count: 100, ElemSize: 4, Nodes: spec.NodesOf(4, 2),
		}, s)
		if err != nil {
			fmt.Println(err)
			return
		}
		all = append(all, one)
	}
	fmt.Println(check.Prove(schedule.Reduce, all, 0))
	fmt.Print(all[6]) // the leader of the last node
	// Output:
	// <nil>
	// rank 6 of 8 count 100 scratch 100
	// 0: send in[50:100] to 7 #0
	// 1: recvreduce scratch[0:50] in[0:50] from 7 #0
	// 2: recv scratch[50:100] from 7 #1
	// 3: send scratch[0:100] to 4 #0 after 1 2
}
