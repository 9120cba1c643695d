package schedule_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/scaffe/scaffe/schedule"
)

func TestRangeChunks(t *testing.T) {
	for _, c := range []struct {
		r    schedule.Range
		size int
		want []schedule.Range
	}{
		{schedule.Range{Off: 5, Len: 7}, 3, []schedule.Range{{Off: 5, Len: 3}, {Off: 8, Len: 3}, {Off: 11, Len: 1}}},
		{schedule.Range{Off: 5, Len: 6}, 3, []schedule.Range{{Off: 5, Len: 3}, {Off: 8, Len: 3}}},
		{schedule.Range{Off: 5, Len: 6}, 0, []schedule.Range{{Off: 5, Len: 6}}},
		{schedule.Range{Off: 5, Len: 6}, 99, []schedule.Range{{Off: 5, Len: 6}}},
		{schedule.Range{Off: 5}, 3, nil},
	} {
		if got := c.r.Chunks(c.size); !slices.Equal(got, c.want) {
			t.Errorf("%v in chunks of %d: %v, not %v", c.r, c.size, got, c.want)
		}
	}
}

// CopyAll copies what a view calls In, and nothing onto itself.
func TestCopyAll(t *testing.T) {
	for _, c := range []struct {
		in, out schedule.Ref
		want    string
	}{
		{schedule.In.At(schedule.Range{Off: 2, Len: 4}), schedule.Out.At(schedule.Range{Off: 2, Len: 4}), "0: copy out[2:6] in[2:6]\n"},
		{schedule.Out.At(schedule.Range{Len: 4}), schedule.Out.At(schedule.Range{Len: 4}), ""},
		{schedule.In.At(schedule.Range{Off: 3}), schedule.Out.At(schedule.Range{Off: 3}), ""},
	} {
		b := schedule.NewBuilder(0, 1, 9)
		b.Sub([]int{0}, c.in, c.out).CopyAll()
		if got := fmt.Sprint(b.Schedule()); got != "rank 0 of 1 count 9 scratch 0\n"+c.want {
			t.Errorf("%v to %v: %s", c.in, c.out, got)
		}
	}
}
