package exchange

import (
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/trace"
)

// state is how far a bucket has come, as the computing goroutine knows it:
//
//	stale → pushing → summed → pulling → current
//
// A bucket becomes stale again when the backward pass of its layers has ended.
// Where there is nothing to pull, it is current once its sum has been used, and
// where the bucket's goroutine starts the pull, once that has arrived.
type state uint8

const (
	stale   state = iota // its gradients are complete and not in the parameters
	pushing              // its gradients are on their way
	summed               // the sum is where it is used: the parameters are to be pulled
	pulling              // its parameters are on their way
	current              // its parameters are the newest
)

// bucketState is what moves as one: a bucket, or all of them packed.
type bucketState struct {
	Bucket
	sync   syncer.Syncer
	layers int // that own parameters in it

	// The computing goroutine's.
	state    state
	left     int // of the layers, how many have not ended their backward
	complete int // the iteration of the gradients in Diff
	iter     int // the iteration of the job

	jobs     chan job
	done     chan error
	summedAt time.Time // when the sum arrived: the bucket's goroutine's, until it is done
}

// busy reports whether the bucket's goroutine has a job.
func (b *bucketState) busy() bool { return b.state == pushing || b.state == pulling }

// job is what a bucket's goroutine is asked to wait for.
type job struct {
	iter  int
	push  bool // wait for the push, then use the sum; otherwise wait for the pull
	begin time.Time
}

// makeBuckets makes the syncers and the buckets' goroutines.
func (x *Exchange) makeBuckets() error {
	moving, cuts := x.moving()
	x.owner = make([]*bucketState, len(x.c.Layers))
	for _, m := range moving {
		s, err := x.syncer(m, cuts)
		if err != nil {
			return err
		}
		b := &bucketState{Bucket: m, sync: s, layers: len(m.Layers), state: summed, jobs: make(chan job, 1), done: make(chan error, 1)}
		if x.c.Scheme == Allreduce {
			b.state = current
		}
		x.moved = append(x.moved, b)
		for _, l := range m.Layers {
			x.owner[l] = b
		}
		x.goroutines.Go(func() {
			for j := range b.jobs {
				b.done <- x.do(b, j)
			}
		})
	}
	x.uses = make([][]*bucketState, len(x.c.Layers))
	for i, l := range x.c.Layers {
		for _, owner := range append([]int{i}, l.Shared...) {
			if b := x.owner[owner]; b != nil {
				x.uses[i] = append(x.uses[i], b)
			}
		}
	}
	return nil
}

// moving returns what moves as one: the buckets, or in a packed design one that
// holds them all, cut where they are.
func (x *Exchange) moving() (moving []Bucket, cuts []int) {
	n := len(x.buckets)
	if !designs[x.c.Design].packed || n < 2 {
		return x.buckets, nil
	}
	all := Bucket{Name: "all parameters", Range: Range{Len: x.buckets[n-1].End()}}
	for i, b := range x.buckets {
		if i > 0 {
			cuts = append(cuts, b.Off)
		}
		all.Layers = append(all.Layers, b.Layers...)
	}
	return []Bucket{all}, cuts
}

func (x *Exchange) syncer(b Bucket, cuts []int) (syncer.Syncer, error) {
	bytes := func(n int) int { return mem.Float32.Bytes(n) }
	s := syncer.Bucket{
		Name: b.Name, Cuts: cuts,
		Data: x.c.Data.Slice(bytes(b.Off), bytes(b.Len)), Diff: x.c.Diff.Slice(bytes(b.Off), bytes(b.Len)),
	}
	how := []collectives.Option{collectives.With(x.c.Spec), collectives.Priority(b.Index)} // forward needs the first buckets soonest
	if x.c.Scheme == Allreduce {
		return syncer.Allreduce(x.comm, s, how...)
	}
	return syncer.Reduce(x.comm, s, x.c.Root, how...)
}

// library reports whether the MPI library serves any bucket: its collectives
// must start in one order on all ranks, which the buckets' goroutines do not
// keep.
func (x *Exchange) library() bool {
	for i := range x.buckets {
		for _, s := range x.Specs(&x.buckets[i]) {
			if s.IsLibrary() {
				return true
			}
		}
	}
	return false
}

// Specs returns which collectives move a bucket: its gradients and then, with the
// scheme Reduce, its parameters.
func (x *Exchange) Specs(b *Bucket) []spec.Spec {
	var specs []spec.Spec
	for _, v := range x.c.Scheme.collectives() {
		choice, err := x.comm.Select(query(x.comm, v, b.Bytes()), x.c.Spec)
		if err == nil { // otherwise it could not have been made
			specs = append(specs, choice.Spec)
		}
	}
	return specs
}

// do waits for what a job has started, and does what comes after it. It runs on
// the bucket's goroutine.
func (x *Exchange) do(b *bucketState, j job) error {
	if !j.push {
		return x.pulled(b, j)
	}
	err := b.sync.Pushed(x.ctx)
	b.summedAt = time.Now()
	if err != nil {
		return err
	}
	x.tell(trace.Push, b, j, b.summedAt)
	if x.c.UpdateAtOnce {
		return nil
	}
	if err := x.use(b, j.iter); err != nil || x.policy.pullAt != onSum {
		return err
	}
	j.begin = time.Now()
	if err := b.sync.Pull(); err != nil {
		return err
	}
	return x.pulled(b, j)
}

// pulled waits for the pull of a job.
func (x *Exchange) pulled(b *bucketState, j job) error {
	err := b.sync.Pulled(x.ctx)
	if err == nil {
		x.tell(trace.Pull, b, j, time.Now())
	}
	return err
}

// use hands b's gradients over, bucket by bucket as the net is cut.
func (x *Exchange) use(b *bucketState, iter int) error {
	for i := range x.buckets {
		part := &x.buckets[i]
		if part.Off < b.Off || part.End() > b.End() {
			continue
		}
		if err := x.c.OnSum(iter, part, b.sync.Updates()); err != nil {
			return err
		}
	}
	return nil
}

// tell adds that b was in flight from the job's begin until end.
func (x *Exchange) tell(kind trace.Kind, b *bucketState, j job, end time.Time) {
	x.c.Events.Add(trace.Event{Kind: kind, Name: b.Name, Iter: int32(j.iter), Bucket: int32(b.Index), Bytes: int64(b.Bytes()), Begin: j.begin, End: end})
}
