package selection_test

import (
	"fmt"
	"testing"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
)

// From 2 ranks to 512, on one large node, on nodes of 8 and on nodes of one rank, what is
// chosen makes sense: few bytes in few steps, many without any rank that handles all
// the others' bytes.
func TestChoicesOfAllSizes(t *testing.T) {
	check := func(nodes, ppn int, v schedule.Collective, bytes int) error {
		l := spec.LayoutOf(spec.NodesOf(nodes, ppn))
		s := &selection.Selector{Model: sim.Default().On(ppn)}
		choice, err := s.Select(l, selection.Query{Collective: v, Bytes: bytes, Type: mem.Float32, Blocking: true}, spec.Spec{})
		if err != nil {
			return err
		}
		took, limit := selection.Predict(v, bytes, choice.Spec, l, s.Model, selection.Registered), selection.Limit(v, bytes, l, s.Model)
		for _, level := range choice.Spec.Levels {
			// How many ranks one after another a message's way may have, or one rank serve.
			members := l.Ranks
			if len(choice.Spec.Levels) > 1 {
				members = max(nodes, ppn)
			}
			one := level.Algorithm == "linear" || level.Algorithm == "chain" && level.Size == 0
			if bytes <= 1<<10 && one && members > 16 && v != schedule.Alltoall && !(v.ByRank() && v.Rooted()) { // which have a message for each
				return fmt.Errorf("%s for %d ranks takes as many steps", choice.Text, l.Ranks)
			}
			if bytes >= 64<<20 && level.Algorithm == "linear" && l.Ranks > 2 && nodes > 1 &&
				!v.ByRank() { // where every rank has to do with all bytes
				return fmt.Errorf("with %s one rank has to do with all bytes", choice.Text)
			}
		}
		if nodes > 1 && took < limit*0.999 {
			return fmt.Errorf("%s is predicted to take %g s, and nothing can take less than %g", choice.Text, took, limit)
		}
		if bytes >= 64<<20 && nodes > 1 && took > 3*limit {
			return fmt.Errorf("%s is predicted to take %g s, far from the limit, %g", choice.Text, took, limit)
		}
		return nil
	}
	for n := 2; n <= 512; n *= 2 {
		for _, l := range [][2]int{{1, n}, {n, 1}, {n / 8, 8}} {
			if l[0] < 1 {
				continue
			}
			for _, v := range schedule.Collectives {
				for _, bytes := range []int{4, 1 << 10, 64 << 20} {
					if err := check(l[0], l[1], v, bytes); err != nil {
						t.Errorf("%d × %d, %v of %s: %v", l[0], l[1], v, units.FormatBytes(bytes), err)
					}
				}
			}
		}
	}
}
