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

// order returns all events in an order in which they can happen, or the circle in
// which they wait for each other, as an error.
func (j *joint) order() ([]event, error) {
	n := 2 * len(j.rank)
	s := &search{joint: j, state: make([]progress, n), order: make([]event, 0, n)}
	for e := range event(n) {
		if s.state[e] != unseen {
			continue
		}
		s.enter(e)
		if err := s.run(); err != nil {
			return nil, err
		}
	}
	return s.order, nil
}

// search is a depth-first search over the events, in which each comes after those
// that it waits for. Its stack is its own, since a chain of waiting can have as many
// events as there are.
type search struct {
	*joint
	state   []progress // of every event
	stack   []frame    // events on the way, each of which waits for the next
	pending []event    // what the frames have yet to look at, one's share after the other
	order   []event    // what has been left
}

type frame struct {
	event event
	from  int // its share of pending begins here
}

// progress is how far the search has come with an event.
type progress uint8

const (
	unseen  progress = iota
	entered          // it is on the stack
	left
)

func (s *search) enter(e event) {
	s.state[e] = entered
	s.stack = append(s.stack, frame{e, len(s.pending)})
	s.pending = s.before(e, s.pending)
}

// leave takes the top of the stack off it: all that it waits for has been left.
func (s *search) leave() {
	top := s.stack[len(s.stack)-1]
	s.stack = s.stack[:len(s.stack)-1]
	s.state[top.event] = left
	s.order = append(s.order, top.event)
}

// run goes on until the stack is empty.
func (s *search) run() error {
	for len(s.stack) > 0 {
		last := len(s.pending) - 1
		if last < s.stack[len(s.stack)-1].from {
			s.leave()
			continue
		}
		next := s.pending[last]
		s.pending = s.pending[:last]
		switch s.state[next] {
		case unseen:
			s.enter(next)
		case entered:
			return s.deadlock(s.circle(next))
		}
	}
	return nil
}

// circle returns the events of the stack from its top down to e, for which the top
// waits.
func (s *search) circle(e event) (circle []event) {
	for i := len(s.stack) - 1; ; i-- {
		circle = append(circle, s.stack[i].event)
		if s.stack[i].event == e {
			return circle
		}
	}
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
