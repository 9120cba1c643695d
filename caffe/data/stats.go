package data

import (
	"sync/atomic"
	"time"
)

// Stats shows how well reading kept up. Every field is a sum, over a loader's
// batches and, after Add, over loaders: Depth and Workers are those of
// all loaders together.
type Stats struct {
	Loaders int64 // 1 for one loader
	Batches int64 // given by Next
	Waits   int64 // how many of them were not decoded in time
	// Starved is how long Next waited for them: the time in which its caller
	// had nothing to compute on.
	Starved time.Duration
	Queued  int64 // batches decoded and waiting now
	// Found is the queue's length as Next found it, summed over the batches.
	Found   int64
	Depth   int64 // how many batches may wait
	Workers int64 // goroutines that decode
	Decoded int64 // batches decoded, given or not
	// Decode is the time spent on reading and decoding them, summed over the
	// goroutines.
	Decode time.Duration
	// Bytes is what was read for them, as it is stored: image files and Datum
	// messages.
	Bytes int64
}

// Add adds the counts of another loader, or of another rank's.
func (s *Stats) Add(o Stats) {
	s.Loaders += o.Loaders
	s.Batches += o.Batches
	s.Waits += o.Waits
	s.Starved += o.Starved
	s.Queued += o.Queued
	s.Found += o.Found
	s.Depth += o.Depth
	s.Workers += o.Workers
	s.Decoded += o.Decoded
	s.Decode += o.Decode
	s.Bytes += o.Bytes
}

// MeanQueued returns how many decoded batches Next found in a loader's queue, on
// average. Near Depth/Loaders, reading is ahead; near 0, training waits for
// reading.
func (s Stats) MeanQueued() float64 { return ratio(s.Found, s.Batches) }

// MeanDepth returns the average depth of a loader's queue.
func (s Stats) MeanDepth() float64 { return ratio(s.Depth, s.Loaders) }

// DecodeTime returns the time that one goroutine takes for a batch, on average.
func (s Stats) DecodeTime() time.Duration {
	return time.Duration(ratio(int64(s.Decode), s.Decoded))
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// counters are what Stats is made of while a loader runs.
type counters struct {
	batches, waits, starved, queued, found, decoded, decode, bytes atomic.Int64
}

// Stats returns the loader's counts so far.
func (l *Loader) Stats() Stats {
	n := &l.counters
	return Stats{
		Loaders: 1,
		Batches: n.batches.Load(),
		Waits:   n.waits.Load(),
		Starved: time.Duration(n.starved.Load()),
		Queued:  n.queued.Load(),
		Found:   n.found.Load(),
		Depth:   int64(l.depth()),
		Workers: int64(len(l.workers)),
		Decoded: n.decoded.Load(),
		Decode:  time.Duration(n.decode.Load()),
		Bytes:   n.bytes.Load(),
	}
}
