package selection

import (
	"slices"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/schedule"
)

// Candidate is a spec with the time that the model predicts.
type Candidate struct {
	Spec    spec.Spec
	Seconds float64
}

// modelTolerance is how much faster than another a spec must be predicted to be chosen
// in its place: no model is better than that.
const modelTolerance = 1.03

// Candidates returns the specs that are worth a thought for a call: first the
// one to choose, which is the fastest that the model knows or, of those that it
// cannot tell from that, the one that asks the least of the model; then the
// others, the fastest first. There is always one.
func (s *Selector) Candidates(l spec.Layout, q Query) []Candidate {
	specs := shapes(l, q.Collective)
	var all []Candidate
	add := func(sp spec.Spec) {
		all = append(all, Candidate{sp, Predict(q.Collective, q.Bytes, sp, l, s.Model, q.Buffers)})
	}
	if l.Nodes > 1 && q.libraryServes() && q.Bytes <= LibraryBytes {
		add(spec.Spec{Levels: []spec.Level{{Algorithm: spec.Library}}})
	}
	for _, shape := range specs {
		for _, sized := range chunked(shape, l, q.Bytes) {
			add(sized)
		}
	}
	first := preferred(all)
	rest := slices.Delete(slices.Clone(all), first, first+1)
	slices.SortStableFunc(rest, func(a, b Candidate) int {
		switch {
		case a.Seconds < b.Seconds:
			return -1
		case a.Seconds > b.Seconds:
			return 1
		}
		return 0
	})
	return slices.Insert(rest, 0, all[first])
}

// preferred returns the index of the first candidate that is not slower than
// the fastest beyond modelTolerance.
func preferred(all []Candidate) int {
	best := all[0].Seconds
	for _, c := range all {
		best = min(best, c.Seconds)
	}
	return slices.IndexFunc(all, func(c Candidate) bool { return c.Seconds <= times(best, modelTolerance) })
}

// sameShape reports whether two specs differ in chunks alone.
func sameShape(a, b spec.Spec) bool {
	return slices.EqualFunc(a.Levels, b.Levels, func(x, y spec.Level) bool {
		return x.Algorithm == y.Algorithm && x.Size == y.Size
	})
}

// shapes returns the specs that make sense for a layout, without chunks. What
// comes first wins where the model sees no difference.
func shapes(l spec.Layout, v schedule.Collective) []spec.Spec {
	one := func(names ...string) spec.Spec {
		var s spec.Spec
		for i, n := range names {
			level := spec.Level{Algorithm: n}
			if i < len(names)-1 {
				level.Size = spec.Node
			}
			s.Levels = append(s.Levels, level)
		}
		return s
	}
	switch {
	case l.Ranks == 1:
		return []spec.Spec{one("linear")}
	case l.Nodes == 1:
		return []spec.Spec{one("direct"), one("linear"), one("binomial")}
	}
	tops := []string{"chain", "binomial"}
	if v == schedule.Allreduce {
		tops = []string{"ring", "chain", "binomial"}
	}
	if l.Nodes == 2 {
		tops = append(tops, "linear")
	}
	var all []spec.Spec
	for _, top := range tops {
		if l.PPN == 1 {
			all = append(all, one(top))
			continue
		}
		all = append(all, one("direct", top), one("binomial", top))
	}
	if l.Nodes > 8 { // chains of 8, their heads in a tree: S-Caffe's CB-8
		for _, top := range []string{"chain", "binomial"} {
			s := spec.Spec{Levels: []spec.Level{{Algorithm: "chain", Size: 8}, {Algorithm: top}}}
			if l.PPN > 1 {
				s.Levels = slices.Insert(s.Levels, 0, spec.Level{Algorithm: "direct", Size: spec.Node})
			}
			all = append(all, s)
		}
	}
	return all
}

// Chunks that are tried, the usual one first: below 64K a message costs more
// than its bytes, above 1M the pipeline takes too long to fill, but for memory
// that is read in place.
var (
	netChunks  = []int{128 << 10, 64 << 10, 256 << 10, 512 << 10, 1 << 20}
	nodeChunks = []int{1 << 20, 512 << 10, 2 << 20, 256 << 10, 4 << 20, 64 << 10}
)

// minChunk is the smallest of them, maxPart the largest part of a chunk that
// one rank sums: it is to stay in a core's cache.
const (
	minChunk = 64 << 10
	maxPart  = 512 << 10
)

// belowRing is the chunk of the levels below a ring: its segments come from all
// over the buffer, so that small chunks below it would help nothing.
const belowRing = 1 << 20

// chunked returns a spec with its last level's chunk in all sizes that differ
// for the given bytes. The levels below have the same, so that a chunk climbs
// as one, but below a ring.
func chunked(s spec.Spec, l spec.Layout, bytes int) []spec.Spec {
	if bytes <= minChunk {
		return []spec.Spec{s}
	}
	chunks := netChunks
	if len(s.Levels) == 1 && s.Levels[0].Algorithm == "direct" {
		chunks = slices.DeleteFunc(slices.Clone(nodeChunks), func(c int) bool { return c > maxPart*l.Ranks })
	}
	var all []spec.Spec
	whole := false // there is one with a single chunk
	for _, c := range chunks {
		if c >= bytes {
			if whole {
				continue
			}
			whole = true
		}
		sized := spec.Spec{Levels: slices.Clone(s.Levels)}
		top := len(sized.Levels) - 1
		for k := range sized.Levels {
			sized.Levels[k].Chunk = c
			if k < top && sized.Levels[top].Algorithm == "ring" {
				sized.Levels[k].Chunk = max(c, min(belowRing, bytes/8))
			}
		}
		all = append(all, sized)
	}
	return all
}
