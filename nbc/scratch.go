package nbc

import (
	"math/bits"
	"sync"

	"github.com/scaffe/scaffe/mem"
)

// scratch keeps the scratch memory of closed requests for the next ones, by
// powers of two: fresh memory costs page faults.
type scratch struct {
	mu   sync.Mutex
	free [64][]mem.Buffer
}

func class(n int) int { return bits.Len(uint(n - 1)) }

// get returns at least n bytes with undefined contents, none for n = 0.
func (s *scratch) get(n int) mem.Buffer {
	if n == 0 {
		return mem.Buffer{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := class(n)
	if last := len(s.free[c]) - 1; last >= 0 {
		b := s.free[c][last]
		s.free[c] = s.free[c][:last]
		return b
	}
	return mem.Alloc(1 << c)
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
			b.Free()
		}
		s.free[c] = nil
	}
}
