package nbc

import (
	"math/bits"
	"sync"

	"github.com/scaffe/scaffe/mem"
)

// scratch keeps the scratch memory of closed requests for the next ones, by
// powers of two: fresh memory costs page faults.
type scratch struct {
	alloc func(n int) (mem.Buffer, error)
	give  func(mem.Buffer)

	mu   sync.Mutex
	free [64][]mem.Buffer
}

func class(n int) int { return bits.Len(uint(n - 1)) }

// get returns at least n bytes with undefined contents, none for n = 0.
func (s *scratch) get(n int) (mem.Buffer, error) {
	if n == 0 {
		return mem.Buffer{}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := class(n)
	if last := len(s.free[c]) - 1; last >= 0 {
		b := s.free[c][last]
		s.free[c] = s.free[c][:last]
		return b, nil
	}
	return s.alloc(1 << c)
}

// put takes b, which get returned, back.
func (s *scratch) put(b mem.Buffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := class(b.Len())
	s.free[c] = append(s.free[c], b)
}

// close gives the memory back to the system.
func (s *scratch) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, free := range s.free {
		for _, b := range free {
			s.give(b)
		}
		s.free[c] = nil
	}
}
