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

// Chunks come in the order in which Params.Order touches them, each once; what it
// leaves out comes last.
func TestChunksInOrder(t *testing.T) {
	p := schedule.Params{Size: 1, Count: 10, Chunk: 3, Order: []schedule.Range{{Off: 7, Len: 1}, {Off: 2, Len: 2}, {Off: 5}, {Off: 8, Len: 2}}}
	want := []schedule.Range{{Off: 6, Len: 3}, {Off: 0, Len: 3}, {Off: 3, Len: 3}, {Off: 9, Len: 1}}
	if got := p.Chunks(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	p.Chunk = 0
	if got := p.Chunks(); !slices.Equal(got, []schedule.Range{{Len: 10}}) {
		t.Errorf("in one chunk: %v", got)
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
