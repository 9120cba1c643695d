// Package fifo has queues that are kept in one slice: what it costs to take something out of
// one does not grow with what waits behind it.
//
// It must not know what waits.
package fifo

// Queue holds values in the order in which they came. The zero value is empty; it allocates
// nothing once it has grown to its largest. It has no lock of its own.
type Queue[T any] struct {
	items []T
	first int // items[first:] wait
	moved int // values moved, ever: what tests count
}

// Push appends v.
func (q *Queue[T]) Push(v T) { q.items = append(q.items, v) }

// Len returns how many values wait.
func (q *Queue[T]) Len() int { return len(q.items) - q.first }

// All returns those that wait, the oldest first: until the next Push or Drop.
func (q *Queue[T]) All() []T { return q.items[q.first:] }

// Drop takes the n oldest out.
func (q *Queue[T]) Drop(n int) {
	if n == 0 {
		return
	}
	clear(q.items[q.first : q.first+n]) // it keeps nothing alive
	q.first += n
	if left := q.Len(); left <= q.first { // each value moves once for one that was taken
		copy(q.items, q.items[q.first:])
		clear(q.items[q.first:])
		q.items, q.first = q.items[:left], 0
		q.moved += left
	}
}
