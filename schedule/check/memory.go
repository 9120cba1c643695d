package check

import (
	"slices"
	"sort"
)

// memory is one buffer, cut into cells: the largest ranges of elements about
// which the same is known, sorted by offset. What was never touched lies in
// no cell.
type memory[T any] struct{ cells []cell[T] }

type cell[T any] struct {
	off, end int
	is       T
}

// carve makes cells begin and end where [off,end) does and returns which
// ones, [i:j), lie within. There may be holes between them.
func (m *memory[T]) carve(off, end int) (i, j int) {
	i = m.cut(off)
	for j = i; j < len(m.cells) && m.cells[j].end <= end; j++ {
	}
	if j < len(m.cells) && m.cells[j].off < end {
		m.cut(end)
		j++
	}
	return i, j
}

// cut makes a cell begin at off, if one spans it, and returns the first one
// that begins there or later.
func (m *memory[T]) cut(off int) int {
	i := sort.Search(len(m.cells), func(i int) bool { return m.cells[i].end > off })
	if i == len(m.cells) || m.cells[i].off >= off {
		return i
	}
	tail := m.cells[i]
	tail.off = off
	m.cells[i].end = off
	m.cells = slices.Insert(m.cells, i+1, tail)
	return i + 1
}

// fill is carve with the holes filled with fresh cells.
func (m *memory[T]) fill(off, end int, fresh T) []cell[T] {
	i, j := m.carve(off, end)
	from := i
	for at := off; at < end; i++ {
		if i == j || m.cells[i].off > at {
			to := end
			if i < j {
				to = m.cells[i].off
			}
			m.cells = slices.Insert(m.cells, i, cell[T]{at, to, fresh})
			j++
		}
		at = m.cells[i].end
	}
	return m.cells[from:j]
}
