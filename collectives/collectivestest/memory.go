package collectivestest

import (
	"context"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/mem"
)

// Buffers of cases in other memory than the host's are made and looked at in the host's, and copied there and back.

// memory is a rank's other memory, kept for further cases by its size.
type memory struct {
	c     *collectives.Comm
	spare map[int][]mem.Buffer
}

func newMemory(c *collectives.Comm) *memory { return &memory{c, map[int][]mem.Buffer{}} }

func (m *memory) alloc(s mem.Space, n int) (mem.Buffer, error) {
	const least = 1024
	size := least
	for size < n {
		size *= 2
	}
	if last := len(m.spare[size]) - 1; last >= 0 {
		b := m.spare[size][last]
		m.spare[size] = m.spare[size][:last]
		return b, nil
	}
	return m.c.AllocIn(s, size)
}

func (m *memory) close() {
	for _, all := range m.spare {
		for _, b := range all {
			m.c.Free(b)
		}
	}
}

// placed is a buffer of a case with the memory that it is in.
type placed struct {
	host  []byte
	whole mem.Buffer
}

// place returns the memory of b, without the room around, that the collective works on.
func (r *Running) place(b []byte) (mem.Buffer, error) {
	if r.k.Space == mem.Host {
		return inside(b), nil
	}
	for _, p := range r.copies {
		if &p.host[0] == &b[0] {
			return p.whole.Slice(margin, len(b)-2*margin), nil
		}
	}
	whole, err := r.memory.alloc(r.k.Space, len(b))
	if err != nil {
		return mem.Buffer{}, err
	}
	r.copies = append(r.copies, placed{b, whole})
	host := mem.Alloc(len(b))
	defer host.Free()
	copy(mem.Bytes(host), b)
	return whole.Slice(margin, len(b)-2*margin), r.c.Copy(context.Background(), whole.Slice(0, len(b)), host)
}

// fetch brings what lies in other memory back.
func (r *Running) fetch() error {
	for _, p := range r.copies {
		host := mem.Alloc(len(p.host))
		err := r.c.Copy(context.Background(), host, p.whole.Slice(0, len(p.host)))
		copy(p.host, mem.Bytes(host))
		host.Free()
		if err != nil {
			return err
		}
		r.memory.spare[p.whole.Len()] = append(r.memory.spare[p.whole.Len()], p.whole)
	}
	r.copies = nil
	return nil
}
