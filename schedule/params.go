package schedule

import (
	"fmt"
	"slices"
)

// Params are what an algorithm is a function of.
type Params struct {
	// Rank in [0, Size) and the Root of the collective.
	Rank, Size, Root int
	// Count is the number of elements of the buffer, Chunk that of the
	// pipeline's unit; 0 means the whole buffer in one chunk.
	Count, Chunk int
	// Order lists ranges of the buffer, what is wanted first at the front; nil:
	// from the buffer's front to its back.
	Order []Range
	// Parts lists for every rank where its part of a collective of parts lies in the buffer;
	// together they are all of it. nil: equal parts, in the order of ranks (see Split).
	Parts [][]Range
	// Lowest is, of every rank, the lowest of those whose contributions it brings to a
	// reduction: where it leads others, it brings their sum. nil: itself.
	Lowest []int
}

// Validate reports what is wrong with p.
func (p Params) Validate() error {
	switch {
	case p.Size < 1:
		return fmt.Errorf("schedule: size %d: a collective has at least one rank", p.Size)
	case p.Rank < 0 || p.Rank >= p.Size:
		return fmt.Errorf("schedule: rank %d is not in [0,%d)", p.Rank, p.Size)
	case p.Root < 0 || p.Root >= p.Size:
		return fmt.Errorf("schedule: root %d is not in [0,%d)", p.Root, p.Size)
	case p.Count < 0:
		return fmt.Errorf("schedule: negative count %d", p.Count)
	case p.Chunk < 0:
		return fmt.Errorf("schedule: negative chunk %d", p.Chunk)
	case p.Parts != nil && len(p.Parts) != p.Size:
		return fmt.Errorf("schedule: the parts of %d ranks where there are %d", len(p.Parts), p.Size)
	}
	return nil
}

// Relative returns the rank counted from the root: (rank-root+size)%size. The
// root has relative rank 0, so that algorithms need not know who it is.
func (p Params) Relative() int { return (p.Rank - p.Root + p.Size) % p.Size }

// Absolute returns the rank whose relative rank is rel.
func (p Params) Absolute(rel int) int { return (rel + p.Root) % p.Size }

// Ascending returns all ranks in the order of the contributions that they bring, whoever
// the root is and the leaders are (Lowest).
func (p Params) Ascending() []int {
	all := p.everyone()
	if p.Lowest != nil {
		slices.SortStableFunc(all, func(a, b int) int { return p.Lowest[a] - p.Lowest[b] })
	}
	return all
}

// Chunks cuts [0, Count) into ranges of Chunk elements, the last one shorter
// where Chunk does not divide Count, in the order in which Order's ranges touch
// them. There are none where Count is 0.
func (p Params) Chunks() []Range {
	chunks := Range{Len: p.Count}.Chunks(p.Chunk)
	if len(p.Order) == 0 || len(chunks) == 0 {
		return chunks
	}
	ordered := make([]Range, 0, len(chunks))
	taken := make([]bool, len(chunks))
	take := func(from, to int) {
		for i := from; i < to; i++ {
			if !taken[i] {
				taken[i] = true
				ordered = append(ordered, chunks[i])
			}
		}
	}
	size := p.Longest()
	for _, r := range p.Order {
		if r.Len > 0 {
			take(max(0, r.Off/size), min(len(chunks), (r.End()+size-1)/size))
		}
	}
	take(0, len(chunks)) // what Order leaves out
	return ordered
}

// Longest returns how many elements the longest chunk has.
func (p Params) Longest() int {
	if p.Chunk <= 0 {
		return p.Count
	}
	return min(p.Chunk, p.Count)
}

// PartsOf returns where the parts of n ranks lie, from rank first on and after the last
// rank from 0 on: ranges that adjoin each other are one.
func (p Params) PartsOf(first, n int) []Range {
	var all []Range
	for k := first; k < first+n; k++ {
		k := (k%p.Size + p.Size) % p.Size
		if p.Parts != nil {
			all = append(all, p.Parts[k]...)
			continue
		}
		all = append(all, Range{Len: p.Count}.Part(k, p.Size))
	}
	return Join(all)
}

// Block returns the block of an Alltoall's buffers that is for a rank, or comes from it.
func (p Params) Block(rank int) Range {
	n := p.Count / p.Size
	return Range{Off: n * rank, Len: n}
}

// everyone returns all ranks.
func (p Params) everyone() []int {
	all := make([]int, p.Size)
	for i := range all {
		all[i] = i
	}
	return all
}

// PartChunks returns the part of one rank, counted modulo the ranks, in chunks.
func (p Params) PartChunks(rank int) []Range { return p.PartsChunks(rank, 1) }

// PartsChunks returns PartsOf in chunks.
func (p Params) PartsChunks(first, n int) (chunks []Range) {
	for _, r := range p.PartsOf(first, n) {
		chunks = append(chunks, r.Chunks(p.Chunk)...)
	}
	return chunks
}

// Split returns one range after the other of counts elements: the parts of a
// collective that has them.
func Split(counts []int) []Range {
	parts := make([]Range, len(counts))
	off := 0
	for i, n := range counts {
		parts[i] = Range{Off: off, Len: n}
		off += n
	}
	return parts
}

// Join returns the ranges in the order of their offsets, those that adjoin each other
// as one, and none that are empty.
func Join(ranges []Range) []Range {
	sorted := slices.DeleteFunc(slices.Clone(ranges), func(r Range) bool { return r.Len == 0 })
	slices.SortFunc(sorted, func(a, b Range) int { return a.Off - b.Off })
	joined := sorted[:0]
	for _, r := range sorted {
		if n := len(joined); n > 0 && joined[n-1].End() == r.Off {
			joined[n-1].Len += r.Len
		} else {
			joined = append(joined, r)
		}
	}
	return joined
}

// InTurn calls out and in with their ranges, one of each in turn: what a rank sends in a step, and what it receives.
func InTurn(outs, ins []Range, out, in func(Range)) {
	for i := range max(len(outs), len(ins)) {
		if i < len(outs) {
			out(outs[i])
		}
		if i < len(ins) {
			in(ins[i])
		}
	}
}
