package overmpi

import (
	"math/bits"

	"github.com/scaffe/scaffe/mem"
)

// staging keeps memory outside the Go heap: for borrowed receives, envelopes,
// and messages that nobody expects yet. Sizes are powers of two, of which the
// system provides only the pages that are used; memory that was used once is
// kept for the next message of its size. What is smaller than a page is a part
// of a slab.
type staging struct {
	idle  [64][]mem.Buffer
	slabs []mem.Buffer
}

const (
	minStaging = 64 // a cache line
	slabSize   = 64 << 10
)

// class is the power of two that holds n bytes.
func class(n int) int { return bits.Len(uint(max(n, minStaging) - 1)) }

// get returns n bytes.
func (s *staging) get(n int) mem.Buffer {
	if n == 0 {
		return mem.Buffer{}
	}
	k := class(n)
	if len(s.idle[k]) == 0 {
		if 1<<k >= mem.Alignment {
			return mem.Alloc(1<<k).Slice(0, n)
		}
		s.cut(k)
	}
	last := len(s.idle[k]) - 1
	b := s.idle[k][last]
	s.idle[k] = s.idle[k][:last]
	return b.Slice(0, n)
}

// cut makes pieces of class k of a new slab.
func (s *staging) cut(k int) {
	slab := mem.Alloc(slabSize)
	s.slabs = append(s.slabs, slab)
	for at := slabSize - 1<<k; at >= 0; at -= 1 << k {
		s.idle[k] = append(s.idle[k], slab.Slice(at, 1<<k))
	}
}

// put takes memory from get back.
func (s *staging) put(b mem.Buffer) {
	if b.Len() == 0 {
		return
	}
	k := class(b.Len())
	s.idle[k] = append(s.idle[k], mem.At(b.Pointer(), 1<<k, mem.Host))
}

// free gives what is idle, and all slabs, back to the system.
func (s *staging) free() {
	for k, idle := range s.idle {
		for _, b := range idle {
			if 1<<k >= mem.Alignment {
				b.Free()
			}
		}
		s.idle[k] = nil
	}
	for _, slab := range s.slabs {
		slab.Free()
	}
	s.slabs = nil
}
