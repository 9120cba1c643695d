package schedule

import "fmt"

// Params are what an algorithm is a function of.
type Params struct {
	// Rank in [0, Size) and the Root of the collective.
	Rank, Size, Root int
	// Count is the number of elements of the buffer, Chunk that of the
	// pipeline's unit; 0 means the whole buffer in one chunk.
	Count, Chunk int
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
	}
	return nil
}

// Relative returns the rank counted from the root: (rank-root+size)%size. The
// root has relative rank 0, so that algorithms need not know who it is.
func (p Params) Relative() int { return (p.Rank - p.Root + p.Size) % p.Size }

// Absolute returns the rank whose relative rank is rel.
func (p Params) Absolute(rel int) int { return (rel + p.Root) % p.Size }

// Chunks cuts [0, Count) into ranges of Chunk elements, the last one shorter
// where Chunk does not divide Count. There are none where Count is 0.
func (p Params) Chunks() []Range { return Range{Len: p.Count}.Chunks(p.Chunk) }
