package exchange

import (
	"fmt"
	"slices"
	"time"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/syncer/sfb"
)

// Range is elements of the packed buffers.
type Range = schedule.Range

// Layer is one layer of a net.
type Layer struct {
	Name string
	// Params are the ranges of the packed buffers that the layer owns: current
	// before its forward, complete after its backward. They ascend from layer to
	// layer.
	Params []Range
	// Shared are the layers before it whose parameters it uses too.
	Shared []int
	// Factors, of a layer whose gradients sufficient factors can stand for, is what
	// the schemes SFB and Adam move; its places are in the packed buffers. Of OneBit they
	// are the matrix. Only a layer with one of these schemes needs it.
	Factors *sfb.Matrix
	// Fixed are those of Params that do not learn, of which the scheme DGC moves nothing.
	Fixed []Range
}

// learning are those of Params that learn.
func (l *Layer) learning() (all []Range) {
	for _, p := range l.Params {
		if p.Len > 0 && !slices.Contains(l.Fixed, p) {
			all = append(all, p)
		}
	}
	return all
}

// Bucket is neighboring layers whose parameters move together.
type Bucket struct {
	Index int
	Name  string // "conv1", "conv1…conv3"
	Range        // in the packed buffers
	// Layers are those that own parameters in it, ascending.
	Layers []int
	// Scheme is that of its layers.
	Scheme Scheme
}

// Sum is a part of a bucket whose gradients have been summed.
type Sum struct {
	Bucket *Bucket
	Range  // in the packed buffers
	// Updates is set where this rank has the sum, and is to update the part by it.
	Updates bool
}

// Bytes is how much memory the bucket's parameters take.
func (b *Bucket) Bytes() int { return mem.Float32.Bytes(b.Len) }

// divide makes buckets of neighboring layers of one scheme. It goes the way of the backward
// pass, last layer first, and closes a bucket as soon as it has its scheme's minBytes, or a layer that goes
// by factors, which are a message of their own anyway. What is left at the front of the
// net, whose gradients come last and whose parameters are needed first, may be less. The gaps
// between parameters belong to the bucket before them, so that together the buckets are all
// count elements.
func divide(layers []Layer, scheme func(layer int) Scheme, count int, minBytes map[Scheme]int) ([]Bucket, error) {
	var reversed []Bucket
	open := false
	end := count
	for i := len(layers) - 1; i >= 0; i-- {
		if err := layers[i].check(end); err != nil {
			return nil, err
		}
		if len(layers[i].Params) == 0 {
			continue
		}
		if s := scheme(i); !open || s != reversed[len(reversed)-1].Scheme {
			reversed = append(reversed, Bucket{Name: layers[i].Name, Range: Range{Off: end}, Scheme: s})
			open = true
		}
		b := &reversed[len(reversed)-1]
		first := layers[i].Params[0].Off
		b.Off, b.Len = first, b.Len+end-first
		b.Layers = append(b.Layers, i)
		end = first
		open = b.Bytes() < minBytes[b.Scheme] && !b.Scheme.FactorsOnly() // factors move layer by layer
	}
	if end > 0 && len(reversed) > 0 {
		b := &reversed[len(reversed)-1]
		b.Off, b.Len = 0, b.Len+b.Off
	}
	buckets := make([]Bucket, 0, len(reversed))
	for i := len(reversed) - 1; i >= 0; i-- {
		b := reversed[i]
		slices.Reverse(b.Layers)
		b.Index = len(buckets)
		if n := len(b.Layers); n > 1 {
			b.Name = layers[b.Layers[0]].Name + "…" + layers[b.Layers[n-1]].Name
		}
		buckets = append(buckets, b)
	}
	return buckets, nil
}

// check makes sure that the layer's parameters ascend and end before those of
// the layers after it.
func (l *Layer) check(end int) error {
	for i := len(l.Params) - 1; i >= 0; i-- {
		r := l.Params[i]
		if r.Off < 0 || r.Len < 0 || r.End() > end {
			return fmt.Errorf("layer %q has parameters at %v, where what comes after them begins at %d", l.Name, r, end)
		}
		end = r.Off
	}
	return nil
}

// Bounds of what AutoBucket chooses.
const (
	minBucket = 64 << 10
	maxBucket = 16 << 20
	// maxOverhead is what a byte in a bucket may take at most, over what it takes in
	// a very large one.
	maxOverhead = 1.15
	largeBucket = 64 << 20
)

// AutoBucket returns the least size of a bucket, in bytes, at which a collective
// has nearly the bandwidth of a large one: smaller buckets would pay for their
// latency, larger ones begin late. It is less in a net of so few bytes in total that all latencies together
// take less time than a bucket of that size, which nothing hides when it comes last. predict gives the seconds of one bucket of
// so many bytes; one that holds the whole net may be as large as it likes.
func AutoBucket(total int, predict func(bytes int) float64) int {
	slope := predict(largeBucket) / largeBucket
	size := minBucket
	for size < min(maxBucket, total) && predict(size) > maxOverhead*slope*float64(size) {
		size *= 2
	}
	// n buckets have n latencies, and the last takes the bytes of one: the least sum is where both are equal.
	latency := predict(minBucket) - slope*minBucket
	for size > minBucket && slope*float64(size) > latency*float64(total)/float64(size) {
		size /= 2
	}
	return size
}

// bucketSizes are those that AutoBucket asks about in a net of so many bytes, and others that small layers add up to.
func bucketSizes(total int) []int {
	all := []int{largeBucket, minBucket}
	for size := minBucket; size < min(maxBucket, total); size *= 2 {
		all = append(all, size, size+size/2)
	}
	return all
}

// leastBuckets returns the least size of a bucket for each scheme that layers with parameters go by:
// what was asked for, or AutoBucket's for what is selected. Layers that go by
// factors are buckets of their own.
func (x *Exchange) leastBuckets(from *selection.Selector) (map[Scheme]int, error) {
	c, predictions := &x.c, from.Batch()
	least := map[Scheme]int{}
	for i := range c.Layers {
		s := c.schemeOf(i)
		if _, there := least[s]; there || len(c.Layers[i].Params) == 0 {
			continue
		}
		var err error
		least[s], err = leastBucket(c.Bucket, s, bytesOf(c.Layers), func(v schedule.Collective, bytes int) (time.Duration, error) {
			q := x.query(v, bytes)
			choice, err := predictions.Select(x.team.Layout(), q, x.specOf(s))
			if err != nil {
				return 0, err
			}
			return time.Duration(predictions.Predict(x.team.Layout(), q, choice.Spec) * float64(time.Second)), nil
		})
		if err != nil {
			return nil, err
		}
	}
	return least, nil
}

// leastBucket returns the least size of a bucket that goes by s, where asked, unless it is 0, is what was asked
// for, total the bytes of the net, and predict gives the time of one of its collectives.
func leastBucket(asked int, s Scheme, total int, predict func(v schedule.Collective, bytes int) (time.Duration, error)) (int, error) {
	switch {
	case asked > 0:
		return asked, nil
	case s.FactorsOnly(), s == DGC: // whose messages are few bytes in any case
		return minBucket, nil
	}
	var err error
	size := AutoBucket(total, func(bytes int) float64 {
		var sum float64
		for _, v := range collectivesOf(s) {
			t, failed := predict(v, bytes)
			if failed != nil {
				err = failed
				return 1
			}
			sum += t.Seconds()
		}
		return sum
	})
	return size, err
}

// bytesOf returns how many bytes the parameters of layers have.
func bytesOf(layers []Layer) (bytes int) {
	for i := range layers {
		for _, p := range layers[i].Params {
			bytes += 4 * p.Len
		}
	}
	return bytes
}

// query is what the selection of a bucket's collective depends on.
func (x *Exchange) query(v schedule.Collective, bytes int) selection.Query {
	q := selection.Query{Collective: v, Bytes: bytes, Type: mem.Float32, Library: x.team.HasLibrary()}
	if x.c.Diff.Space() == mem.CUDA {
		q.Buffers = selection.CUDA
	}
	return q
}

// collectivesOf are those of a scheme: gradients, or factors, then parameters.
func collectivesOf(s Scheme) []schedule.Collective {
	switch s {
	case Allreduce:
		return []schedule.Collective{schedule.Allreduce}
	case SFB, DGC:
		return []schedule.Collective{schedule.Allgather}
	case Adam:
		return []schedule.Collective{schedule.Gather, schedule.Bcast}
	case OneBit:
		return []schedule.Collective{schedule.Gather, schedule.Allgather}
	}
	return []schedule.Collective{schedule.Reduce, schedule.Bcast}
}
