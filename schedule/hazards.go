package schedule

import "slices"

// hazards remembers, for every element of a buffer, the op that wrote it last
// and the ops that have read it since. Elements with the same history lie
// together in segments, sorted by offset; elements never touched lie in none.
type hazards struct {
	segments []segment
}

type segment struct {
	Range
	writer  int // -1: not written yet
	readers []int
}

// read records that op reads r, and adds to deps what it must wait for:
// the last writers.
func (h *hazards) read(r Range, op int, deps []int) []int {
	first, last := h.cut(r)
	for i := first; i < last; i++ {
		s := &h.segments[i]
		if s.writer >= 0 {
			deps = appendNew(deps, s.writer)
		}
		if n := len(s.readers); n == 0 || s.readers[n-1] != op {
			s.readers = append(s.readers, op)
		}
	}
	return deps
}

// write records that op writes r, and adds to deps what it must wait for:
// the readers since the last write, or else the last writer.
func (h *hazards) write(r Range, op int, deps []int) []int {
	first, last := h.cut(r)
	for i := first; i < last; i++ {
		s := &h.segments[i]
		others := false
		for _, reader := range s.readers {
			if reader != op {
				deps, others = appendNew(deps, reader), true
			}
		}
		if !others && s.writer >= 0 {
			deps = appendNew(deps, s.writer)
		}
		s.writer, s.readers = op, nil
	}
	return deps
}

// cut makes segments begin and end exactly where r does, with none missing in
// between, and returns the index of the first of those that make up r, and that behind the last.
func (h *hazards) cut(r Range) (first, last int) {
	if r.Len == 0 {
		return 0, 0
	}
	first = h.split(r.Off)
	i := first
	for at := r.Off; at < r.End(); i++ {
		switch {
		case i == len(h.segments) || h.segments[i].Off >= r.End():
			h.insert(i, Range{at, r.End() - at})
		case h.segments[i].Off > at:
			h.insert(i, Range{at, h.segments[i].Off - at})
		case h.segments[i].End() > r.End():
			h.split(r.End())
		}
		at = h.segments[i].End()
	}
	return first, i
}

// split cuts the segment that holds offset at in two, and returns the index
// of the first segment that begins at or after it.
func (h *hazards) split(at int) int {
	n := len(h.segments)
	if n == 0 || h.segments[n-1].End() <= at {
		return n // the common case: buffers are walked from front to back
	}
	i, _ := slices.BinarySearchFunc(h.segments, at, func(s segment, at int) int { return s.End() - at - 1 })
	if h.segments[i].Off >= at {
		return i
	}
	tail := h.segments[i]
	tail.Range = Range{at, tail.End() - at}
	tail.readers = slices.Clone(tail.readers)
	h.segments[i].Len = at - h.segments[i].Off
	h.segments = slices.Insert(h.segments, i+1, tail)
	return i + 1
}

func (h *hazards) insert(i int, r Range) {
	h.segments = slices.Insert(h.segments, i, segment{Range: r, writer: -1})
}

// appendNew adds dep to deps, which are in ascending order, unless it is there.
func appendNew(deps []int, dep int) []int {
	if n := len(deps); n == 0 || deps[n-1] < dep {
		return append(deps, dep) // the common case
	}
	i, found := slices.BinarySearch(deps, dep)
	if found {
		return deps
	}
	return slices.Insert(deps, i, dep)
}
