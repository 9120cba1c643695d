package check

import (
	"fmt"
	"strings"
)

// An event is the start (2n) or the end (2n+1) of op n of a joint.
type event = int32

// before appends the events that e waits for.
func (j *joint) before(e event, to []event) []event {
	n := e / 2
	if e%2 == 1 { // the end: the op itself has started, and so has the other end of its message
		to = append(to, e-1)
		if p := j.peer[n]; p >= 0 {
			to = append(to, 2*p)
		}
		return to
	}
	base := j.base[j.rank[n]]
	for _, d := range j.op(n).Deps {
		to = append(to, 2*(base+int32(d))+1)
	}
	if p := j.prev[n]; p >= 0 {
		to = append(to, 2*p+1)
	}
	return to
}

// order returns all events in an order in which they can happen, or the
// circle in which they wait for each other: a depth-first search.
func (j *joint) order() ([]event, error) {
	type frame struct {
		event event
		from  int // its share of pending begins here
	}
	const (
		unseen = iota
		open
		done
	)
	n := 2 * len(j.rank)
	state := make([]uint8, n)
	order := make([]event, 0, n)
	var stack []frame
	var pending []event // what the frames on the stack have yet to look at
	for first := range event(n) {
		if state[first] != unseen {
			continue
		}
		push := func(e event) {
			state[e] = open
			stack = append(stack, frame{e, len(pending)})
			pending = j.before(e, pending)
		}
		push(first)
		for len(stack) > 0 {
			top := stack[len(stack)-1]
			if len(pending) == top.from {
				state[top.event] = done
				order = append(order, top.event)
				stack = stack[:len(stack)-1]
				continue
			}
			next := pending[len(pending)-1]
			pending = pending[:len(pending)-1]
			switch state[next] {
			case unseen:
				push(next)
			case open:
				var circle []event
				for i := len(stack) - 1; ; i-- {
					circle = append(circle, stack[i].event)
					if stack[i].event == next {
						break
					}
				}
				return nil, j.deadlock(circle)
			}
		}
	}
	return order, nil
}

// deadlock describes a circle of events, each of which the next one waits
// for, by its ops.
func (j *joint) deadlock(circle []event) error {
	var ops []int32 // each waits for the next
	for i := len(circle) - 1; i >= 0; i-- {
		if n := circle[i] / 2; len(ops) == 0 || ops[len(ops)-1] != n {
			ops = append(ops, n)
		}
	}
	if len(ops) > 1 && ops[0] == ops[len(ops)-1] {
		ops = ops[:len(ops)-1]
	}
	var text strings.Builder
	for i := range ops {
		s, op := j.at(ops[(i+1)%len(ops)])
		if i > 0 {
			text.WriteString(", which ")
		}
		fmt.Fprintf(&text, "waits for rank %d op %d (%s)", s.Rank, op, &s.Ops[op])
	}
	s, op := j.at(ops[0])
	return failOp(Deadlock, s, op, "%s", text.String())
}
