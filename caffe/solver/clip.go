package solver

import (
	"math"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/kernels/vec"
	"github.com/scaffe/scaffe/mem"
)

// NormBlock is how many elements the squares of gradients are summed over before
// the sums are added up. Every parameter begins a block of its own, so that a part of
// the packed buffers that is cut between parameters, or within one at a
// multiple of NormBlock, has whole blocks.
const NormBlock = 1024

// Clips reports whether the update depends on all gradients together
// (clip_gradients); then Clip or ClipBy must come before Apply.
func (s *Solver) Clips() bool { return s.param.GetClipGradients() >= 0 }

// Clip returns u with clip_gradients, from the norm of all gradients.
func (u Update) Clip() Update {
	s := u.s
	if s.squares == nil {
		s.squares = make([]float64, s.NormBlocks())
	}
	s.Squares(0, s.net.PackedCount(), s.squares)
	return u.ClipBy(s.squares)
}

// ClipBy is Clip for gradients whose sums of squares lie in sums, as Squares
// writes them. Workers that hold a part of the gradients each write the sums of
// theirs and zeros elsewhere. Added over the workers, that is every block's sum to
// the last bit, and so the norm has the same bits whatever the parts.
func (u Update) ClipBy(sums []float64) Update {
	u.scale = ClipScale(u.s.param.GetClipGradients(), sums) / float32(u.s.param.GetIterSize())
	return u
}

// NormBlocks returns how many sums Squares writes for all gradients.
func (s *Solver) NormBlocks() int {
	n := 0
	for _, p := range s.net.Learnable() {
		n += blocks(p.Blob.Count())
	}
	return n
}

// blocks is how many blocks n elements of a parameter are.
func blocks(n int) int { return (n + NormBlock - 1) / NormBlock }

// Squares sums the squares of the gradients [lo, hi) of the packed buffer, in
// float64 and in the order of vec.Lanes, and writes the sum of each block to its
// place in sums, which has NormBlocks elements. Of a block that is cut it
// writes the sum of what lies within.
func (s *Solver) Squares(lo, hi int, sums []float64) {
	s.fetchGradients()
	_, buf := s.net.Packed()
	diff := mem.Float32s(buf)
	params := s.net.Learnable()
	first, next := 0, 0 // the block of element 0 of a parameter; the next parameter
	_ = s.each(lo, hi, func(p *net.Param, lo, hi int) error {
		for ; &params[next] != p; next++ {
			first += blocks(params[next].Blob.Count())
		}
		for lo < hi {
			k := (lo - p.Offset) / NormBlock
			end := min(p.Offset+(k+1)*NormBlock, hi)
			sums[first+k] = vec.SumSquares(diff[lo:end])
			lo = end
		}
		return nil
	})
}

// ClipScale returns what a gradient is multiplied with so that its L2 norm
// over all parameters is at most limit: Caffe's ClipGradients. It is 1 for a
// limit below 0 (no clipping). sums are those of the squares, block by block
// (Solver.Squares); they are added in their order.
func ClipScale(limit float32, sums []float64) float32 {
	if limit < 0 {
		return 1
	}
	var total float64
	for _, s := range sums {
		total += s
	}
	if norm := float32(math.Sqrt(total)); norm > limit {
		return limit / norm
	}
	return 1
}
