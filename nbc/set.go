package nbc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/scaffe/scaffe/nbc/internal/fifo"
)

// Set is requests that are awaited together, in the order in which they end. Their ends
// say which, and signal one channel, so that who waits need not look at them again and again:
// it costs the same for each however many they are. Nobody else may wait for them.
type Set struct {
	requests  []*Request
	lingering []int  // those that were left to their caller to go on with
	returned  []bool // by Next
	left      int    // that Next has not returned
	leftSum   int    // of their indices: the index of the last
	woken     chan struct{}

	mu    sync.Mutex
	ended fifo.Queue[int]
}

// member is a request's place in a set.
type member struct {
	set   *Set
	index int
}

// NewSet returns the set of some requests, none of which is under way.
func NewSet(requests ...*Request) *Set {
	s := &Set{requests: requests, returned: make([]bool, len(requests)), woken: make(chan struct{}, 1)}
	for i, r := range requests {
		r.member = &member{s, i}
		r.wakes.Store(&s.woken)
	}
	return s
}

// Start starts all of them, in their order.
func (s *Set) Start() error { return s.StartAfter(nil) }

// StartAfter is Start of all of them, after an event; see Request.StartAfter.
func (s *Set) StartAfter(event Event) error {
	s.mu.Lock()
	s.ended.Drop(s.ended.Len()) // those that Next did not need to ask for
	s.mu.Unlock()
	clear(s.returned)
	s.left, s.leftSum, s.lingering = 0, 0, s.lingering[:0]
	for i, r := range s.requests {
		if err := r.StartAfter(event); err != nil {
			return err
		}
		s.left++
		s.leftSum += i
		if r.lingers.Load() {
			s.lingering = append(s.lingering, i)
		}
	}
	return nil
}

// Began returns the last of the requests' Began.
func (s *Set) Began() (last time.Time) {
	for _, r := range s.requests {
		if t := r.Began(); t.After(last) {
			last = t
		}
	}
	return last
}

// end says that a request has ended.
func (m *member) end() {
	m.set.mu.Lock()
	m.set.ended.Push(m.index)
	m.set.mu.Unlock()
}

// Next waits until one more of them has ended, and returns its index and how it ended:
// after a Start it is called once for each. Like Wait it ends without that when ctx does.
func (s *Set) Next(ctx context.Context) (int, error) {
	for {
		if s.left == 1 { // which the caller may execute itself
			i := s.leftSum
			err := s.requests[i].Wait(ctx)
			if ended, _ := s.requests[i].ended(); ended {
				s.take(i)
			}
			return i, err
		}
		if s.left == 0 {
			return 0, fmt.Errorf("nbc: all requests of the set have been awaited")
		}
		for i := s.pop(); i >= 0; i = s.pop() {
			if ended, err := s.requests[i].ended(); ended && s.take(i) { // otherwise it is an end before the last Start
				return i, err
			}
		}
		for _, i := range s.lingering {
			if !s.returned[i] && s.requests[i].lingers.Load() {
				if ended, err := s.requests[i].Test(); ended && s.take(i) {
					return i, err
				}
			}
		}
		select {
		case <-s.woken: // perhaps by one that was returned already
		case <-ctx.Done():
			first := 0
			for s.returned[first] {
				first++
			}
			return first, fmt.Errorf("nbc: gave up waiting for %s and %d more: %w", s.requests[first].name(), s.left-1, context.Cause(ctx))
		}
	}
}

// pop returns the next of those that have ended, -1 where there is none.
func (s *Set) pop() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.Len() == 0 {
		return -1
	}
	i := s.ended.All()[0]
	s.ended.Drop(1)
	return i
}

// take notes that Next returns request i, and reports whether it has not before.
func (s *Set) take(i int) bool {
	if s.returned[i] {
		return false
	}
	s.returned[i] = true
	s.left--
	s.leftSum -= i
	return true
}

// Close closes them.
func (s *Set) Close() {
	for _, r := range s.requests {
		r.Close()
	}
}
