package layers

import "github.com/scaffe/scaffe/caffe/data"

// DataOptions is what the data layers need to know of the world: which part
// of each global batch they read, and the seed of their random choices.
type DataOptions = data.Options

// Batcher is implemented by every data layer, so that a trainer can weigh
// this part's gradients by its share of the global batch. Both are known
// after Setup.
type Batcher interface {
	// GlobalBatch returns the number of samples in the batches of all parts.
	GlobalBatch() int
	// LocalBatch returns the number of samples in this part's batch.
	LocalBatch() int
}

// Seeker is implemented by data layers that can be positioned: after
// SeekBatch(k) the next Forward gives the k-th global batch, counted from 0, as if
// the k batches before it had been read. A resumed run continues exactly
// where it stopped.
type Seeker interface {
	SeekBatch(k int64) error
}
