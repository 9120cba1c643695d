package check_test

import (
	"fmt"
	"testing"

	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check"
)

// Every message travels once, after what its ends wait for, and a rank sends
// and receives one a step at most.
func TestTimeline(t *testing.T) {
	for name, a := range map[string]schedule.Algorithm{"chain": chains, "binomial": binomials, "linear": linears} {
		for _, v := range a.Collectives() {
			for _, size := range []int{1, 2, 5, 8} {
				all := a.Build(v, schedule.Params{Size: size, Root: size / 2, Count: 6, Chunk: 2})
				if err := timeline(all); err != nil {
					t.Errorf("%s %s over %d ranks: %v", name, v, size, err)
				}
			}
		}
	}
}

func timeline(all []*schedule.Schedule) error {
	transfers, err := check.Timeline(all)
	if err != nil {
		return err
	}
	type op struct{ rank, i int }
	type port struct {
		rank, step int
		sends      bool
	}
	ended := map[op]int{} // the step after which an op has completed
	busy := map[port]bool{}
	for _, x := range transfers {
		for _, end := range []struct {
			op
			sends bool
		}{{op{x.From, x.Send}, true}, {op{x.To, x.Recv}, false}} {
			o := &all[end.rank].Ops[end.i]
			if _, twice := ended[end.op]; twice || (o.Kind == schedule.Send) != end.sends {
				return fmt.Errorf("%+v: op %v of rank %d travels twice or the other way", x, o, end.rank)
			}
			p := port{end.rank, x.Step, end.sends}
			if busy[p] {
				return fmt.Errorf("%+v: rank %d has two messages in one direction", x, end.rank)
			}
			busy[p], ended[end.op] = true, x.Step
			for _, d := range o.Deps {
				if at, ok := ended[op{end.rank, d}]; !all[end.rank].Ops[d].Local() && (!ok || at >= x.Step) {
					return fmt.Errorf("%+v: op %v of rank %d has not waited for op %d", x, o, end.rank, d)
				}
			}
		}
	}
	for r, s := range all {
		for i := range s.Ops {
			if _, ok := ended[op{r, i}]; !ok && !s.Ops[i].Local() {
				return fmt.Errorf("op %d of rank %d never travels", i, r)
			}
		}
	}
	return nil
}
