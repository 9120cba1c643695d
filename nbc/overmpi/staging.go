package overmpi

import (
	"math/bits"

	"github.com/scaffe/scaffe/mem"
)

// staging keeps memory outside the Go heap for borrowed receives. Sizes are
// powers of two, of which the system provides only the pages that are used;
// memory that was used once is kept for the next message of its size.
type staging struct{ idle [64][]mem.Buffer }

const leastStaging = mem.Alignment

// class is the power of two that holds n bytes.
func class(n int) int { return bits.Len(uint(max(n, leastStaging) - 1)) }

// get returns n bytes.
func (s *staging) get(n int) mem.Buffer {
	if n == 0 {
		return mem.Buffer{}
	}
	k := class(n)
	if idle := s.idle[k]; len(idle) > 0 {
		s.idle[k] = idle[:len(idle)-1]
		return idle[len(idle)-1].Slice(0, n)
	}
	return mem.Alloc(1<<k).Slice(0, n)
}

// put takes memory from get back.
func (s *staging) put(b mem.Buffer) {
	if b.Len() == 0 {
		return
	}
	k := class(b.Len())
	s.idle[k] = append(s.idle[k], mem.At(b.Pointer(), 1<<k, mem.Host))
}

// free gives what is idle back to the system.
func (s *staging) free() {
	for k, idle := range s.idle {
		for _, b := range idle {
			b.Free()
		}
		s.idle[k] = nil
	}
}
