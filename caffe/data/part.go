package data

import (
	"fmt"
	"time"
)

// Part says which part of each global batch a reader reads. The zero Part is
// the whole batch.
type Part struct {
	// Index is this part, in [0, Of).
	Index int
	// Of is the number of parts; 0 means 1.
	Of int
	// Weak gives every part a whole batch_size of its own, so that the global
	// batch grows with the parts (weak scaling). Otherwise batch_size is the
	// global batch and the parts divide it (strong scaling).
	Weak bool
}

// whole returns the part with 1 for an Of of 0.
func (p Part) whole() Part {
	if p.Of == 0 {
		p.Of = 1
	}
	return p
}

// Check reports what is wrong with the part for a layer's batch_size. A part
// without samples is an error. So that all parts agree, every part of such a
// division reports it.
func (p Part) Check(batchSize int) error {
	p = p.whole()
	switch {
	case p.Of < 0 || p.Index < 0 || p.Index >= p.Of:
		return fmt.Errorf("part %d of %d does not exist", p.Index, p.Of)
	case batchSize <= 0:
		return fmt.Errorf("batch_size must be at least 1 (got %d)", batchSize)
	case !p.Weak && batchSize < p.Of:
		return fmt.Errorf("batch_size %d cannot be divided among %d workers: some would have no samples; use a batch_size of at least %d, fewer workers, or weak scaling", batchSize, p.Of, p.Of)
	}
	return nil
}

// Global returns the size of the global batch: batchSize, times the number of
// parts under weak scaling.
func (p Part) Global(batchSize int) int {
	if p = p.whole(); p.Weak {
		return batchSize * p.Of
	}
	return batchSize
}

// Range returns the samples [lo, hi) of each global batch that the part
// reads. Parts of a batch that does not divide evenly differ by one sample.
func (p Part) Range(batchSize int) (lo, hi int) {
	if p = p.whole(); p.Weak {
		return batchSize * p.Index, batchSize * (p.Index + 1)
	}
	return batchSize * p.Index / p.Of, batchSize * (p.Index + 1) / p.Of
}

// Local returns the number of samples of each global batch that the part
// reads.
func (p Part) Local(batchSize int) int {
	lo, hi := p.Range(batchSize)
	return hi - lo
}

// Options are what a reader is told by its surroundings, not by the net.
type Options struct {
	// Part is the part of each global batch to read.
	Part Part
	// Seed seeds every random choice (rand_skip, shuffle, mirror, crop). The
	// choices for a sample depend on it and on the sample's global counter
	// alone, so that parts with the same Seed make up one global batch.
	Seed uint64
	// Prefetch is how many batches are decoded ahead. 0 means what the net
	// says (data_param.prefetch, 4 by default).
	Prefetch int
	// Workers is how many goroutines of each loader read and decode. 0 means
	// one for raw values, and for encoded images as many as there are
	// processors, at most four. More help if the files are on a slow file
	// system: their reads overlap.
	Workers int
	// OnBatch, unless nil, is called for each decoded batch before Next delivers
	// it, with the times at which its first sample was begun and its last one
	// finished. It is called by the decoding goroutines, possibly for several
	// batches at once, and by all loaders that have these Options.
	OnBatch func(batch int64, begin, end time.Time)
}
