package coordinator

import (
	"fmt"
	"math"
)

// Sparse says how sparse gradients are in each iteration of the scheme DGC: what part of the values is held back
// (Lin et al. 2018).
type Sparse struct {
	// Sparsity is that of all iterations after the warm-up, in [0, 1).
	Sparsity float64
	// Warmup is of how many iterations the sparsity rises, in steps of equal length.
	Warmup int
}

// DefaultSparse is the sparsity of the paper, without a warm-up.
var DefaultSparse = Sparse{Sparsity: 0.999}

// Or returns what s points to, and where that is nil DefaultSparse.
func (s *Sparse) Or() Sparse {
	if s != nil {
		return *s
	}
	return DefaultSparse
}

// rising are the sparsities of the warm-up (section 3.3): a quarter of the values, then a quarter of
// these, and so on. The fifth step, 99.9 %, is the paper's sparsity after it.
var rising = []float64{1 - 1./4, 1 - 1./16, 1 - 1./64, 1 - 1./256}

// Check says what is wrong with s.
func (s Sparse) Check() error {
	switch {
	case !(s.Sparsity >= 0 && s.Sparsity < 1):
		return fmt.Errorf("a sparsity of %v: want a part of the values that is held back, from 0 to less than 1, such as 0.999", s.Sparsity)
	case s.Warmup < 0:
		return fmt.Errorf("a warm-up of %d iterations: want 0 or more", s.Warmup)
	}
	return nil
}

// Stages returns the sparsities that there are, as they come: those of the warm-up that are less than
// Sparsity, and Sparsity.
func (s Sparse) Stages() (all []float64) {
	for _, x := range rising {
		if s.Warmup > 0 && x < s.Sparsity {
			all = append(all, x)
		}
	}
	return append(all, s.Sparsity)
}

// Stage returns which of Stages holds in an iteration, counted from 0.
func (s Sparse) Stage(iter int) int {
	last := 0 // without a warm-up, the only one
	if s.Warmup > 0 {
		for last < len(rising) && rising[last] < s.Sparsity {
			last++
		}
	}
	if iter >= s.Warmup {
		return last
	}
	return min(last, int(int64(len(rising))*int64(iter)/int64(s.Warmup)))
}

// Count returns how many of n values are sent at a sparsity: ⌈(1 - sparsity) × n⌉, at least one, as
// far as there are any.
func Count(n int, sparsity float64) int {
	// 1 - 0.999 is a little more than 0.001: what is within rounding of a whole number is that number.
	const rounding = 1e-9
	return min(n, max(1, int(math.Ceil((1-sparsity)*float64(n)*(1-rounding)))))
}
