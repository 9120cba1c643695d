package ring_test

import (
	"slices"
	"testing"

	"github.com/scaffe/scaffe/ring"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check/checktest"
)

var family = schedule.Algorithm{Allreduce: ring.Allreduce, Allgather: ring.Allgather, ReduceScatter: ring.ReduceScatter}

func TestConformance(t *testing.T) { checktest.Run(t, family) }

func TestGolden(t *testing.T) { checktest.Golden(t, "testdata", family) }

// Order says in which order Allreduce reads In, and in which it last writes Out.
func TestOrderIsThatOfAllreduce(t *testing.T) {
	for size := 2; size <= 7; size++ {
		for rank := range size {
			p := schedule.Params{Rank: rank, Size: size, Count: 41, Chunk: 3}
			wants, has := ring.Order(p)
			b := schedule.NewBuilder(rank, size, p.Count)
			ring.Allreduce(b, p)
			var read, written []int
			for _, op := range b.Schedule().Ops {
				if op.Reads() && op.Src.Buf == schedule.In {
					read = append(read, elements(op.Src.Range)...)
				}
				if op.Writes() {
					written = append(written, elements(op.Dst.Range)...)
				}
			}
			if got := elements(wants...); !slices.Equal(got, read) {
				t.Errorf("rank %d of %d wants %v and reads %v", rank, size, got, read)
			}
			last := written[len(written)-p.Count:]
			if got := elements(has...); !slices.Equal(got, last) {
				t.Errorf("rank %d of %d has %v and writes %v", rank, size, got, last)
			}
		}
	}
}

func elements(ranges ...schedule.Range) (all []int) {
	for _, r := range ranges {
		for i := r.Off; i < r.End(); i++ {
			all = append(all, i)
		}
	}
	return all
}
