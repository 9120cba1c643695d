package linear_test

import (
	"testing"

	"github.com/scaffe/scaffe/linear"
	"github.com/scaffe/scaffe/schedule"
)

// A root that is none of the first two ranks expects Slots chunks at once: so many may one rank send before another has sent any.
func TestTheRootExpectsWhatOneRankSendsAhead(t *testing.T) {
	p := schedule.Params{Rank: 3, Size: 4, Root: 3, Count: linear.Slots + 2, Chunk: 1}
	b := schedule.NewBuilder(p.Rank, p.Size, p.Count)
	linear.Reduce(b, p)
	expected := 0
	for _, op := range b.Schedule().Ops {
		if op.Kind == schedule.Recv && len(op.Deps) == 0 {
			expected++
		}
	}
	if expected != linear.Slots {
		t.Errorf("the root expects %d chunks, want %d", expected, linear.Slots)
	}
}
