// Package syncer keeps the replicas of the parameters in step: one Syncer for
// each bucket of parameters, whatever scheme moves their bytes.
//
// A Syncer has two directions, named as the parameter-server papers name
// them: a worker pushes its gradient and pulls the parameters. Both start
// without waiting and are waited for where the result is needed, so that the
// caller decides what is overlapped with what (S-Caffe section 4.2):
//
//	sync.Push()                      // after the backward of the bucket's last layer
//	…                                // backward of the layers before it
//	for range sync.Parts() {
//		i, err := sync.Pushed(ctx)   // a part's gradients are where it is updated
//		if sync.Parts()[i].Updates { … } // that is here
//		sync.Pull(i)
//	}
//	…                                // forward of the layers before the bucket's first
//	err = sync.Pulled(ctx)           // the parameters are current here
//
// A part is what one worker, or every worker, updates at once. Where a root or
// everybody updates, the whole bucket is one part, or each of its slices is.
//
// It knows buckets of bytes, and no layers, prototxt or solvers. A new scheme
// (parameter server, sufficient factors) is a new implementation of Syncer. When
// a bucket is pushed and pulled is decided by package exchange, whose package
// documentation shows both on one line of time.
package syncer

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
)

// Bucket is a contiguous range of parameters that are synchronized together.
type Bucket struct {
	Name string
	// Data holds the parameters, Diff their gradients: float32, equally long.
	Data, Diff mem.Buffer
	// Cuts are elements at which the bucket is cut into parts that are summed
	// as separate buckets would be; see collectives.Parts.
	Cuts []int
	// Slices, unless nil, are all of the bucket, ascending: each is a part of its own, with Reduce
	// and Allreduce (P3, section 4.2). Cuts are of no matter then.
	Slices []schedule.Range
	// Pulls are more options of what brings parameters back: after those of all its collectives.
	Pulls []collectives.Option
	// Queues, unless nil, say from when on the memory holds what is pushed and pulled, where others still compute it: Data and
	// Diff lie in a GPU's memory. Of Reduce and Allreduce alone.
	Queues Queues
	// Of, unless nil, says what parts are called in errors: all of the part that begins with an element, such
	// as "slice 17 of fc6".
	Of func(element int) string
}

// Queues are what a GPU has been given to do: the passes that compute gradients, and the updates that compute parameters. Each
// method returns an event that passes when all that has been begun of it so far has been done. last is what it has returned
// before, whose point nobody asks for any more, to be used again, or nil. Any goroutine may call them.
type Queues interface {
	Gradients(last nbc.Event) (nbc.Event, error)
	Parameters(last nbc.Event) (nbc.Event, error)
}

// Called returns what is called the bucket's part in errors that begins with an element.
func (b *Bucket) Called(element int) string {
	if b.Of == nil {
		return "the part of " + b.Name + " from element " + strconv.Itoa(element)
	}
	return b.Of(element)
}

// options are those of the bucket's collectives.
func (b *Bucket) options(opts []collectives.Option) []collectives.Option {
	if len(b.Cuts) == 0 {
		return opts
	}
	return append(opts[:len(opts):len(opts)], collectives.Parts(b.Cuts...))
}

// Part is elements of a bucket whose gradients are summed, and whose parameters
// are updated and brought back, at once.
type Part struct {
	schedule.Range // of the bucket's elements
	// Updates is set where this worker applies the update to Data.
	Updates bool
}

// Syncer synchronizes one bucket. Push and the Pulls of all parts alternate; each is
// started and waited for by one goroutine.
type Syncer interface {
	// Parts are ascending, and the same for as long as the syncer lives: all of the
	// bucket, on a rank that only serves what it serves of it.
	Parts() []Part
	// Push starts to move this worker's gradient to where it is summed.
	Push() error
	// Pushed waits until the push of one more part has ended here, and returns its
	// index: after a Push it is called once for each. Where the part's Updates is
	// set, Diff then holds the sum over all workers; elsewhere its contents are
	// undefined.
	Pushed(ctx context.Context) (part int, err error)
	// Pull starts to bring the current parameters of a part here.
	Pull(part int) error
	// Pulled waits for all that Pull has started: Data then holds the current
	// parameters.
	Pulled(ctx context.Context) error
	// Payload is what the messages of this worker hold in a Push and the Pulls of all
	// parts, by the engine's count: see nbc.Payload.
	Payload() nbc.Payload
	// Close gives the syncer's resources back.
	Close()
}

// Reduce returns the syncer of a bucket with the scheme "reduce": gradients are reduced to the
// root, which updates and broadcasts the parameters (S-Caffe section 4.1). Every rank
// of comm must make the same syncers in the same order; opts say how the
// collectives are done.
func Reduce(comm *collectives.Comm, b Bucket, root int, opts ...collectives.Option) (Syncer, error) {
	return b.byParts(comm.Rank() == root, opts, func(data, diff mem.Buffer, opts []collectives.Option) (push, pull *nbc.Request, err error) {
		if push, err = comm.ReduceInit(diff, diff, mem.Float32, mem.Sum, root, opts...); err != nil {
			return nil, nil, err
		}
		pull, err = comm.BcastInit(data, mem.Float32, root, slices.Concat(opts, b.Pulls)...)
		return push, pull, err
	})
}

// Allreduce returns the syncer of a bucket with the scheme "allreduce", under
// the same rule as Reduce: every worker has the sum of the gradients and
// updates its own parameters. There is nothing to pull. The parameters must start out equal on
// all workers, and every worker must apply the same update.
func Allreduce(comm *collectives.Comm, b Bucket, opts ...collectives.Option) (Syncer, error) {
	return b.byParts(true, opts, func(_, diff mem.Buffer, opts []collectives.Option) (push, pull *nbc.Request, err error) {
		push, err = comm.AllreduceInit(diff, diff, mem.Float32, mem.Sum, opts...)
		return push, nil, err
	})
}

// byParts returns the syncer of a bucket of which each part has requests of its own.
func (b *Bucket) byParts(updates bool, opts []collectives.Option, requests func(data, diff mem.Buffer, opts []collectives.Option) (push, pull *nbc.Request, err error)) (Syncer, error) {
	r := Requests{queues: b.Queues}
	parts := b.Slices
	if len(parts) == 0 { // one, cut where Cuts says
		parts, opts = []schedule.Range{{Len: b.Diff.Len() / mem.Float32.Size()}}, b.options(opts)
	}
	for _, s := range parts {
		at, n := mem.Float32.Bytes(s.Off), mem.Float32.Bytes(s.Len)
		how := opts
		if len(b.Slices) > 0 {
			how = append(opts[:len(opts):len(opts)], collectives.About(b.Called(s.Off)))
		}
		push, pull, err := requests(b.Data.Slice(at, n), b.Diff.Slice(at, n), how)
		r.Add(Part{Range: s, Updates: updates}, push, pull)
		if err != nil {
			r.Close()
			return nil, fmt.Errorf("bucket %q: %w", b.Name, err)
		}
	}
	return r.Syncer(nil), nil
}
