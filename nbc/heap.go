package nbc

import "time"

// pending is a request, or an op of it, that waits for its turn. It has what decides when that
// comes, since a request may start again while a heap still knows of its last execution.
type pending struct {
	priority int    // Binding.Priority
	order    uint64 // of the request's admission
	seq      uint64 // of the push: what belongs to one request stays in order
	r        *Request
	op       int32
	at       time.Duration // when it began to wait; see linkQueue
}

// before reports whether p has its turn before o.
func (p *pending) before(o *pending) bool {
	switch {
	case p.priority != o.priority:
		return p.priority < o.priority
	case p.order != o.order:
		return p.order < o.order
	}
	return p.seq < o.seq
}

// sooner reports whether r has its turn before o, which is under way as r is.
func (r *Request) sooner(o *Request) bool {
	a, b := r.bind.Priority, o.bind.Priority
	return a < b || a == b && r.order < o.order
}

// heap hands out what waits, the most urgent first: in a time that grows with the logarithm
// of how much waits, and without memory of its own for each. The zero value is empty.
type heap struct {
	items  []pending
	pushed uint64
	steps  int // comparisons, ever: what tests count
}

func (h *heap) empty() bool { return len(h.items) == 0 }

// top returns what has its turn next. There is something.
func (h *heap) top() *pending { return &h.items[0] }

// push lets op of r wait.
func (h *heap) push(r *Request, op int32) {
	h.pushed++
	h.insert(pending{r.bind.Priority, r.order, h.pushed, r, op, 0})
}

// insert lets p wait.
func (h *heap) insert(p pending) {
	h.items = append(h.items, p)
	h.up(len(h.items) - 1)
}

// pop takes what has its turn.
func (h *heap) pop() pending {
	p := h.items[0]
	last := len(h.items) - 1
	h.items[0] = h.items[last]
	h.items[last] = pending{}
	h.items = h.items[:last]
	h.down(0)
	return p
}

// retain drops what keep does not report.
func (h *heap) retain(keep func(*pending) bool) {
	kept := h.items[:0]
	for i := range h.items {
		if keep(&h.items[i]) {
			kept = append(kept, h.items[i])
		}
	}
	clear(h.items[len(kept):])
	h.items = kept
	for i := len(kept)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h *heap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if h.steps++; !h.items[i].before(&h.items[parent]) {
			return
		}
		h.items[i], h.items[parent] = h.items[parent], h.items[i]
		i = parent
	}
}

func (h *heap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			return
		}
		if right := child + 1; right < len(h.items) {
			if h.steps++; h.items[right].before(&h.items[child]) {
				child = right
			}
		}
		if h.steps++; !h.items[child].before(&h.items[i]) {
			return
		}
		h.items[i], h.items[child] = h.items[child], h.items[i]
		i = child
	}
}

// turns hands out requests that are under way, the most urgent first. One alone, as with a
// small collective that is waited for, needs no heap.
type turns struct {
	one  *Request // nil: they are in rest
	rest heap
}

// push lets r wait.
func (t *turns) push(r *Request) {
	switch {
	case t.one != nil:
		t.rest.push(t.one, 0)
		t.one = nil
	case t.rest.empty():
		t.one = r
		return
	}
	t.rest.push(r, 0)
}

// top returns what has its turn next; nil where nothing waits.
func (t *turns) top() *Request {
	if t.one != nil || t.rest.empty() {
		return t.one
	}
	return t.rest.top().r
}

// pop takes what has its turn.
func (t *turns) pop() {
	if t.one != nil {
		t.one = nil
		return
	}
	t.rest.pop()
}
