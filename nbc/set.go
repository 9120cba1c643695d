package nbc

import (
	"context"
	"fmt"
)

// Set is requests that are awaited together, in the order in which they end. Their ends
// signal one channel, so that who waits need not look at them again and again. Nobody
// else may wait for them.
type Set struct {
	requests []*Request
	left     []int // that Next has not returned
	woken    chan struct{}
}

// NewSet returns the set of some requests, none of which is under way.
func NewSet(requests ...*Request) *Set {
	s := &Set{requests: requests, left: make([]int, 0, len(requests)), woken: make(chan struct{}, 1)}
	for _, r := range requests {
		r.wakes.Store(&s.woken)
	}
	return s
}

// Start starts all of them, in their order.
func (s *Set) Start() error {
	s.left = s.left[:0]
	for i, r := range s.requests {
		if err := r.Start(); err != nil {
			return err
		}
		s.left = append(s.left, i)
	}
	return nil
}

// Next waits until one more of them has ended, and returns its index and how it ended:
// after a Start it is called once for each. Like Wait it ends without that when ctx does.
func (s *Set) Next(ctx context.Context) (int, error) {
	for {
		if len(s.left) == 1 { // which the caller may execute itself
			i := s.left[0]
			err := s.requests[i].Wait(ctx)
			if ended, _ := s.requests[i].ended(); ended {
				s.left = s.left[:0]
			}
			return i, err
		}
		for k, i := range s.left {
			ended, err := s.requests[i].ended()
			if !ended && s.requests[i].lingers.Load() { // it is left to its caller to go on with
				ended, err = s.requests[i].Test()
			}
			if ended {
				s.left = append(s.left[:k], s.left[k+1:]...)
				return i, err
			}
		}
		if len(s.left) == 0 {
			return 0, fmt.Errorf("nbc: all requests of the set have been awaited")
		}
		select {
		case <-s.woken: // perhaps by one that was returned already
		case <-ctx.Done():
			return s.left[0], fmt.Errorf("nbc: gave up waiting for %s and %d more: %w", s.requests[s.left[0]].name(), len(s.left)-1, context.Cause(ctx))
		}
	}
}

// Close closes them.
func (s *Set) Close() {
	for _, r := range s.requests {
		r.Close()
	}
}
