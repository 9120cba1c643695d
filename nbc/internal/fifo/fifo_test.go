package fifo

import (
	"slices"
	"testing"
)

// TestQueue: what comes out is what went in, in order, and it is moved at most once for each
// that is taken, however much waits.
func TestQueue(t *testing.T) {
	const most = 10_000
	var q Queue[*int]
	next, taken := 0, 0
	push := func(n int) {
		for range n {
			v := next
			q.Push(&v)
			next++
		}
	}
	push(most)
	for taken < 5*most {
		n := min(1+taken%7, q.Len())
		for i, v := range q.All()[:n] {
			if *v != taken+i {
				t.Fatalf("value %d is %d", taken+i, *v)
			}
		}
		q.Drop(n)
		taken += n
		push(min(n, 6))
		if q.Len() != next-taken {
			t.Fatalf("%d wait, not %d", q.Len(), next-taken)
		}
	}
	if q.moved > taken {
		t.Errorf("%d values were moved where %d were taken", q.moved, taken)
	}
	q.Drop(q.Len())
	if rest := q.items[:cap(q.items)]; slices.ContainsFunc(rest, func(v *int) bool { return v != nil }) {
		t.Error("an empty queue keeps values alive")
	}
	if n := testing.AllocsPerRun(100, func() {
		for range 100 {
			q.Push(nil)
		}
		q.Drop(60)
		q.Drop(40)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
