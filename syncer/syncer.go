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
// everybody updates, the whole bucket is one part.
//
// It knows buckets of bytes, and no layers, prototxt or solvers. A new scheme
// (parameter server, sufficient factors) is a new implementation of Syncer. When
// a bucket is pushed and pulled is decided by package exchange, whose package
// documentation shows both on one line of time.
package syncer

import (
	"context"
	"errors"
	"fmt"

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
}

// options are those of the bucket's collectives.
func (b *Bucket) options(opts []collectives.Option) []collectives.Option {
	if len(b.Cuts) == 0 {
		return opts
	}
	return append(opts[:len(opts):len(opts)], collectives.Parts(b.Cuts...))
}

// whole is all of the bucket as one part.
func (b *Bucket) whole(updates bool) [1]Part {
	return [1]Part{{Range: schedule.Range{Len: b.Diff.Len() / mem.Float32.Size()}, Updates: updates}}
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

// tree is the scheme "reduce": gradients are reduced to the root, which
// updates and broadcasts the parameters (S-Caffe section 4.1).
type tree struct {
	push, pull *nbc.Request
	parts      [1]Part
}

// Reduce returns the syncer of a bucket with the scheme "reduce". Every rank
// of comm must make the same syncers in the same order; opts say how the
// collectives are done.
func Reduce(comm *collectives.Comm, b Bucket, root int, opts ...collectives.Option) (Syncer, error) {
	opts = b.options(opts)
	push, err := comm.ReduceInit(b.Diff, b.Diff, mem.Float32, mem.Sum, root, opts...)
	pull, err2 := comm.BcastInit(b.Data, mem.Float32, root, opts...)
	if err := errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("bucket %q: %w", b.Name, err)
	}
	return &tree{push: push, pull: pull, parts: b.whole(comm.Rank() == root)}, nil
}

func (t *tree) Parts() []Part                           { return t.parts[:] }
func (t *tree) Push() error                             { return t.push.Start() }
func (t *tree) Pushed(ctx context.Context) (int, error) { return 0, t.push.Wait(ctx) }
func (t *tree) Pull(int) error                          { return t.pull.Start() }
func (t *tree) Pulled(ctx context.Context) error        { return t.pull.Wait(ctx) }
func (t *tree) Payload() nbc.Payload                    { return t.push.Payload().Add(t.pull.Payload()) }

func (t *tree) Close() {
	t.push.Close()
	t.pull.Close()
}

// all is the scheme "allreduce": every worker has the sum of the gradients and
// updates its own parameters. There is nothing to pull.
type all struct {
	push  *nbc.Request
	parts [1]Part
}

// Allreduce returns the syncer of a bucket with the scheme "allreduce", under
// the same rule as Reduce. The parameters must start out equal on all workers,
// and every worker must apply the same update.
func Allreduce(comm *collectives.Comm, b Bucket, opts ...collectives.Option) (Syncer, error) {
	push, err := comm.AllreduceInit(b.Diff, b.Diff, mem.Float32, mem.Sum, b.options(opts)...)
	if err != nil {
		return nil, fmt.Errorf("bucket %q: %w", b.Name, err)
	}
	return &all{push: push, parts: b.whole(true)}, nil
}

func (a *all) Parts() []Part                           { return a.parts[:] }
func (a *all) Push() error                             { return a.push.Start() }
func (a *all) Pushed(ctx context.Context) (int, error) { return 0, a.push.Wait(ctx) }
func (a *all) Pull(int) error                          { return nil }
func (a *all) Pulled(context.Context) error            { return nil }
func (a *all) Payload() nbc.Payload                    { return a.push.Payload() }
func (a *all) Close()                                  { a.push.Close() }
