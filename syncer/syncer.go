// Package syncer keeps the replicas of the parameters in step: one Syncer for
// each bucket of parameters, whatever scheme moves their bytes.
//
// A Syncer has two directions, named as the parameter-server papers name
// them: a worker pushes its gradient and pulls the parameters. Both start
// without waiting and are waited for where the result is needed, so that the
// caller decides what is overlapped with what (S-Caffe section 4.2):
//
//	sync.Push()              // after the backward of the bucket's last layer
//	…                        // backward of the layers before it
//	err = sync.Pushed(ctx)   // the gradients are where the update happens
//	if sync.Updates() { … }  // that is here
//	sync.Pull()
//	…                        // forward of the layers before the bucket's first
//	err = sync.Pulled(ctx)   // the parameters are current here
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

// Syncer synchronizes one bucket. Push and Pull alternate; each is started
// and waited for by one goroutine.
type Syncer interface {
	// Push starts to move this worker's gradient to where it is summed.
	Push() error
	// Pushed waits for it. Where Updates is true, Diff then holds the sum over all
	// workers; elsewhere its contents are undefined.
	Pushed(ctx context.Context) error
	// Updates reports whether this worker applies the update to Data.
	Updates() bool
	// Pull starts to bring the current parameters here.
	Pull() error
	// Pulled waits for it: Data then holds the current parameters.
	Pulled(ctx context.Context) error
	// Close gives the syncer's resources back.
	Close()
}

// tree is the scheme "reduce": gradients are reduced to the root, which
// updates and broadcasts the parameters (S-Caffe section 4.1).
type tree struct {
	push, pull *nbc.Request
	updates    bool
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
	return &tree{push: push, pull: pull, updates: comm.Rank() == root}, nil
}

func (t *tree) Push() error                      { return t.push.Start() }
func (t *tree) Pushed(ctx context.Context) error { return t.push.Wait(ctx) }
func (t *tree) Updates() bool                    { return t.updates }
func (t *tree) Pull() error                      { return t.pull.Start() }
func (t *tree) Pulled(ctx context.Context) error { return t.pull.Wait(ctx) }

func (t *tree) Close() {
	t.push.Close()
	t.pull.Close()
}

// all is the scheme "allreduce": every worker has the sum of the gradients and
// updates its own parameters. There is nothing to pull.
type all struct{ push *nbc.Request }

// Allreduce returns the syncer of a bucket with the scheme "allreduce", under
// the same rule as Reduce. The parameters must start out equal on all workers,
// and every worker must apply the same update.
func Allreduce(comm *collectives.Comm, b Bucket, opts ...collectives.Option) (Syncer, error) {
	push, err := comm.AllreduceInit(b.Diff, b.Diff, mem.Float32, mem.Sum, b.options(opts)...)
	if err != nil {
		return nil, fmt.Errorf("bucket %q: %w", b.Name, err)
	}
	return &all{push: push}, nil
}

func (a *all) Push() error                      { return a.push.Start() }
func (a *all) Pushed(ctx context.Context) error { return a.push.Wait(ctx) }
func (a *all) Updates() bool                    { return true }
func (a *all) Pull() error                      { return nil }
func (a *all) Pulled(context.Context) error     { return nil }
func (a *all) Close()                           { a.push.Close() }
