package nbc

import (
	"fmt"
	"slices"
	"testing"

	"github.com/scaffe/scaffe/binomial"
	"github.com/scaffe/scaffe/chain"
	"github.com/scaffe/scaffe/direct"
	"github.com/scaffe/scaffe/doubling"
	"github.com/scaffe/scaffe/halving"
	"github.com/scaffe/scaffe/linear"
	"github.com/scaffe/scaffe/ring"
	"github.com/scaffe/scaffe/scatter"
	"github.com/scaffe/scaffe/schedule"
)

// TestSequence: ranks that do one op after another, waiting for each message and never for
// room, all come to the end, also where an op that waits for a message of its own waits until
// that has been received; and no rank waits before an op that it could have done.
func TestSequence(t *testing.T) {
	families := map[string]schedule.Algorithm{
		"linear": {Reduce: linear.Reduce, Bcast: linear.Bcast, Allgather: linear.Allgather}, "chain": {Reduce: chain.Reduce, Bcast: chain.Bcast},
		"binomial": {Reduce: binomial.Reduce, Bcast: binomial.Bcast},
		"direct":   {Reduce: direct.Reduce, Bcast: direct.Bcast, Allreduce: direct.Allreduce, Allgather: direct.Allgather, ReduceScatter: direct.ReduceScatter, Alltoall: direct.Alltoall},
		"ring":     {Allreduce: ring.Allreduce, Allgather: ring.Allgather, ReduceScatter: ring.ReduceScatter},
		"doubling": {Allreduce: doubling.Allreduce, Allgather: doubling.Allgather},
		"halving":  {Allreduce: halving.Allreduce},
		"scatter":  {Bcast: scatter.Bcast},
	}
	for name, a := range families {
		for _, c := range a.Collectives() {
			for size := 1; size <= 9; size++ {
				t.Run(fmt.Sprintf("%s %v %d", name, c, size), func(t *testing.T) {
					for _, chunk := range []int{7, 19} {
						all := a.Build(c, schedule.Params{Size: size, Root: size / 2, Count: 19, Chunk: chunk})
						sequenceEnds(t, all, false)
						if lendable(all) {
							sequenceEnds(t, all, true)
						}
					}
				})
			}
		}
	}
}

// lendable reports whether all messages may be lent: see loneLent.
func lendable(all []*schedule.Schedule) bool {
	for _, s := range all {
		sends := map[int]int{}
		for i := range s.Ops {
			if s.Ops[i].Kind == schedule.Send {
				if sends[s.Ops[i].Peer]++; sends[s.Ops[i].Peer] > loneLent {
					return false
				}
			}
		}
	}
	return true
}

func sequenceEnds(t *testing.T, all []*schedule.Schedule, lends bool) {
	type message struct{ from, to, number int }
	sent, read := map[message]bool{}, map[message]bool{}
	plans, orders, at := make([]*Plan, len(all)), make([][]int32, len(all)), make([]int, len(all))
	left := 0
	for r, s := range all {
		p, err := Compile(s)
		if err != nil {
			t.Fatal(err)
		}
		plans[r], orders[r] = p, p.sequence
		if lends {
			orders[r] = p.lending
		}
		left += len(s.Ops)
		checkOrder(t, p, orders[r], lends)
	}
	may := func(r int, i int32) bool {
		op := &all[r].Ops[i]
		if op.Receives() && !sent[message{op.Peer, r, op.Msg}] {
			return false
		}
		for j := range all[r].Ops {
			if m := &all[r].Ops[j]; lends && m.Kind == schedule.Send && !read[message{r, m.Peer, m.Msg}] && slices.Contains(plans[r].graph.Waiting(int32(j)), i) {
				return false
			}
		}
		return true
	}
	for moved := true; moved; {
		moved = false
		for r, order := range orders {
			for at[r] < len(order) && may(r, order[at[r]]) {
				op := &all[r].Ops[order[at[r]]]
				switch {
				case op.Kind == schedule.Send:
					sent[message{r, op.Peer, op.Msg}] = true
				case op.Receives():
					read[message{op.Peer, r, op.Msg}] = true
				}
				at[r]++
				left--
				moved = true
			}
		}
	}
	if left > 0 {
		t.Errorf("%d ops are never done (messages are lent: %v)", left, lends)
	}
}

// checkOrder: every op is there once, after all that it depends on, and where a receive is
// next no other op was ready, but for those that wait for lent messages.
func checkOrder(t *testing.T, p *Plan, order []int32, lends bool) {
	waits, behind := append([]int32(nil), p.graph.Waits()...), make([]bool, len(order))
	for i := range p.schedule.Ops {
		if lends && p.schedule.Ops[i].Kind == schedule.Send {
			for _, j := range p.graph.Waiting(int32(i)) {
				behind[j] = true
			}
		}
	}
	for _, i := range order {
		if waits[i] != 0 {
			t.Fatalf("op %d comes too early, or twice", i)
		}
		for j, w := range waits {
			if w != 0 || int32(j) == i || behind[j] {
				continue
			}
			if p.schedule.Ops[i].Receives() && !p.schedule.Ops[j].Receives() || behind[i] {
				t.Fatalf("op %d comes before op %d, which is ready", i, j)
			}
		}
		waits[i] = opDone
		for _, j := range p.graph.Waiting(i) {
			waits[j]--
		}
	}
	if len(order) != len(waits) {
		t.Fatalf("%d ops of %d", len(order), len(waits))
	}
}
