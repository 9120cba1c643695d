package tune

import (
	"slices"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/schedule"
)

// What is not measured: specs that the model predicts to take more than pruneFactor
// times as long as the best, by less than which it is wrong. Chain sizes, which are
// swept for their own sake, may be worse than that.
const (
	pruneFactor      = 2.5
	chainPruneFactor = 8
	maxSpecs         = 14 // measured for one size
)

// job is one collective at one size, with what is to be measured.
type job struct {
	collective schedule.Collective
	bytes      int
	specs      []spec.Spec
}

// Specs returns what a sweep measures for a call, likely winners first: the MPI
// library's own where it may serve the call, the model's candidates, and with chains
// the chains of all sizes.
func Specs(s *selection.Selector, l spec.Layout, q selection.Query, chains bool) []spec.Spec {
	own := q
	own.Library = false
	candidates := s.Candidates(l, own)
	best := candidates[0].Seconds
	var out []spec.Spec
	seen := map[string]bool{}
	add := func(spec spec.Spec) {
		if text := spec.String(); !seen[text] {
			seen[text] = true
			out = append(out, spec)
		}
	}
	if q.Library {
		add(parse(spec.Library))
	}
	for _, c := range candidates {
		if c.Seconds <= pruneFactor*best && len(out) < maxSpecs {
			add(c.Spec)
		}
	}
	for _, spec := range levels(l) {
		if spec.Serves(q.Collective) == nil && selection.Predict(q.Collective, q.Bytes, spec, l, s.Model, q.Buffers) <= pruneFactor*best && len(out) < maxSpecs {
			add(spec)
		}
	}
	if chains {
		for _, spec := range chainSizes(l) {
			if spec.Serves(q.Collective) == nil && selection.Predict(q.Collective, q.Bytes, spec, l, s.Model, q.Buffers) <= chainPruneFactor*best {
				add(spec)
			}
		}
	}
	return out
}

// levels returns specs of three levels, where there are nodes enough.
func levels(l spec.Layout) (out []spec.Spec) {
	for _, top := range []string{"chain:2/chain", "chain:4/binomial", "chain:4/chain"} {
		if l.Nodes >= 8 && l.PPN > 1 {
			out = append(out, parse("direct/"+top))
		}
	}
	return out
}

// chainSizes returns the chains of all sizes below a binomial tree and below a
// chain: S-Caffe's CB and CC, section 6.5, figure 11.
func chainSizes(l spec.Layout) (out []spec.Spec) {
	for size := 2; size < l.Ranks && size <= 64; size *= 2 {
		for _, top := range []string{"binomial", "chain"} {
			s := parse(top)
			out = append(out, spec.Spec{Levels: slices.Insert(s.Levels, 0, spec.Level{Algorithm: "chain", Size: size})})
		}
	}
	return out
}

// parse reads a spec that is in this program's text.
func parse(text string) spec.Spec {
	s, err := spec.Parse(text)
	if err != nil {
		panic(err) // TestOwnSpecs
	}
	return s
}

// jobs returns all collectives and sizes, coarse to fine.
func (c Config) jobs(s *selection.Selector, l spec.Layout, library bool) []job {
	sizes := c.sizes()
	var coarse, fine []int
	for i, n := range sizes {
		if i%2 == 0 || i == len(sizes)-1 {
			coarse = append(coarse, n)
		} else {
			fine = append(fine, n)
		}
	}
	// Chain sizes are swept at three sizes from 64K on.
	large := slices.DeleteFunc(slices.Clone(coarse), func(n int) bool { return n < 64<<10 })
	chains := map[int]bool{}
	if n := len(large); n > 0 {
		chains[large[0]], chains[large[n/2]], chains[large[n-1]] = true, true, true
	}
	var all []job
	for _, part := range [][]int{coarse, fine} {
		for _, bytes := range part {
			for _, v := range c.Collectives {
				if v.ByRank() && bytes < l.Ranks*c.Type.Size() {
					continue // parts of nothing
				}
				q := selection.Query{Collective: v, Bytes: bytes, Type: c.Type, Buffers: c.Buffers, Blocking: true, Library: library}
				all = append(all, job{v, bytes, Specs(s, l, q, chains[bytes] && v.Rooted())})
			}
		}
	}
	return all
}

// sizes returns the powers of two from the least to the most size, and both.
func (c Config) sizes() []int {
	out := []int{c.Min}
	for n := 1; n < c.Max; n *= 2 {
		if n > c.Min {
			out = append(out, n)
		}
	}
	if c.Max > c.Min {
		out = append(out, c.Max)
	}
	return out
}
