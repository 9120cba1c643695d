package nbc

import (
	"fmt"
	"testing"

	"github.com/scaffe/scaffe/binomial"
	"github.com/scaffe/scaffe/chain"
	"github.com/scaffe/scaffe/direct"
	"github.com/scaffe/scaffe/doubling"
	"github.com/scaffe/scaffe/halving"
	"github.com/scaffe/scaffe/linear"
	"github.com/scaffe/scaffe/ring"
	"github.com/scaffe/scaffe/schedule"
)

// TestSequence: ranks that do one op after another, waiting for each message and
// never for room, all come to the end; and no rank waits for a message before an op
// that it could have done.
func TestSequence(t *testing.T) {
	families := map[string]schedule.Algorithm{
		"linear": {Reduce: linear.Reduce, Bcast: linear.Bcast, Allgather: linear.Allgather}, "chain": {Reduce: chain.Reduce, Bcast: chain.Bcast},
		"binomial": {Reduce: binomial.Reduce, Bcast: binomial.Bcast},
		"direct":   {Reduce: direct.Reduce, Bcast: direct.Bcast, Allreduce: direct.Allreduce, Allgather: direct.Allgather},
		"ring":     {Allreduce: ring.Allreduce, Allgather: ring.Allgather},
		"doubling": {Allreduce: doubling.Allreduce, Allgather: doubling.Allgather},
		"halving":  {Allreduce: halving.Allreduce},
	}
	for name, a := range families {
		for _, c := range a.Collectives() {
			for size := 1; size <= 9; size++ {
				t.Run(fmt.Sprintf("%s %v %d", name, c, size), func(t *testing.T) {
					sequenceEnds(t, a.Build(c, schedule.Params{Size: size, Root: size / 2, Count: 19, Chunk: 7}))
				})
			}
		}
	}
}

func sequenceEnds(t *testing.T, all []*schedule.Schedule) {
	type message struct{ from, to, number int }
	sent := map[message]bool{}
	plans, at := make([]*Plan, len(all)), make([]int, len(all))
	left := 0
	for r, s := range all {
		p, err := Compile(s)
		if err != nil {
			t.Fatal(err)
		}
		plans[r] = p
		left += len(s.Ops)
		checkOrder(t, p)
	}
	for moved := true; moved; {
		moved = false
		for r, s := range all {
			for at[r] < len(plans[r].sequence) {
				op := &s.Ops[plans[r].sequence[at[r]]]
				if op.Receives() && !sent[message{op.Peer, r, op.Msg}] {
					break
				}
				if op.Kind == schedule.Send {
					sent[message{r, op.Peer, op.Msg}] = true
				}
				at[r]++
				left--
				moved = true
			}
		}
	}
	if left > 0 {
		t.Errorf("%d ops are never done", left)
	}
}

// checkOrder: every op is there once, after all that it depends on, and where a
// receive is next no other kind of op was ready.
func checkOrder(t *testing.T, p *Plan) {
	waits := append([]int32(nil), p.graph.Waits()...)
	for _, i := range p.sequence {
		if waits[i] != 0 {
			t.Fatalf("op %d comes too early, or twice", i)
		}
		if p.schedule.Ops[i].Receives() {
			for j, w := range waits {
				if w == 0 && !p.schedule.Ops[j].Receives() {
					t.Fatalf("receive %d comes before op %d, which is ready", i, j)
				}
			}
		}
		waits[i] = opDone
		for _, j := range p.graph.Waiting(i) {
			waits[j]--
		}
	}
	if len(p.sequence) != len(waits) {
		t.Fatalf("%d ops of %d", len(p.sequence), len(waits))
	}
}
