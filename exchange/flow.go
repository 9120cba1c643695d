package exchange

import (
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/trace"
)

// flow is what moves as one.
type flow struct {
	Bucket
	sync   syncer.Syncer
	layers int // that own parameters in it

	left     int // of those, how many have not ended their backward
	complete int // the iteration of the gradients in Diff

	jobs chan job
	done chan error
	// What follows is the computing goroutine's.
	busy    bool      // the helper has a job
	pushing bool      // a job that began with Push
	pushed  bool      // the sum has arrived; Use has run, unless Together
	current bool      // Data is the newest
	iter    int       // the iteration of the job
	turned  time.Time // when the sum arrived: the helper's, until it is done
}

// job is what a helper is asked to wait for.
type job struct {
	iter  int
	push  bool // wait for the push, then use it
	pull  bool // wait for the pull; after a push, start it too
	begin time.Time
}

// makeFlows makes the syncers and their helpers.
func (x *Exchange) makeFlows() error {
	moving, cuts := x.moving()
	x.owner = make([]*flow, len(x.c.Layers))
	for _, b := range moving {
		s, err := x.syncer(b, cuts)
		if err != nil {
			return err
		}
		f := &flow{
			Bucket: b, sync: s, layers: len(b.Layers), current: x.c.Scheme == Allreduce,
			jobs: make(chan job, 1), done: make(chan error, 1),
		}
		x.flows = append(x.flows, f)
		for _, l := range b.Layers {
			x.owner[l] = f
		}
		x.helpers.Go(func() { x.help(f) })
	}
	x.uses = make([][]*flow, len(x.c.Layers))
	for i, l := range x.c.Layers {
		for _, owner := range append([]int{i}, l.Shared...) {
			if f := x.owner[owner]; f != nil {
				x.uses[i] = append(x.uses[i], f)
			}
		}
	}
	x.eager = x.c.Design == SCOBR && !x.c.Together && x.c.Scheme == Reduce && !x.library()
	return nil
}

// moving returns what moves as one: the buckets, or with SC-B one that holds
// them all, cut where they are.
func (x *Exchange) moving() (moving []Bucket, cuts []int) {
	n := len(x.buckets)
	if x.c.Design != SCB || n < 2 {
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
// must start in one order on all ranks, which helpers do not keep.
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
	for _, v := range x.c.Scheme.verbs() {
		choice, err := x.comm.Select(query(x.comm, v, b.Bytes()), x.c.Spec)
		if err == nil { // otherwise it could not have been made
			specs = append(specs, choice.Spec)
		}
	}
	return specs
}

// help is f's helper.
func (x *Exchange) help(f *flow) {
	for j := range f.jobs {
		f.done <- x.do(f, j)
	}
}

// do waits for what a job has started, and goes on with what comes after it.
func (x *Exchange) do(f *flow, j job) error {
	if j.push {
		err := f.sync.Pushed(x.ctx)
		now := time.Now()
		x.watch.push.end(now)
		f.turned = now
		if err != nil {
			return err
		}
		x.tell(trace.Push, f, j, now)
		if x.c.Together {
			return nil
		}
		if err := x.use(f, j.iter); err != nil || !j.pull {
			return err
		}
		j.begin = time.Now()
		if err := f.sync.Pull(); err != nil {
			return err
		}
		x.watch.pull.begin(j.begin)
	}
	if !j.pull {
		return nil
	}
	err := f.sync.Pulled(x.ctx)
	now := time.Now()
	x.watch.pull.end(now)
	if err == nil {
		x.tell(trace.Pull, f, j, now)
	}
	return err
}

// use hands f's gradients over, bucket by bucket as the net is cut.
func (x *Exchange) use(f *flow, iter int) error {
	for i := range x.buckets {
		b := &x.buckets[i]
		if b.Off < f.Off || b.End() > f.End() {
			continue
		}
		if err := x.c.Use(iter, b, f.sync.Updates()); err != nil {
			return err
		}
	}
	return nil
}

// tell adds that f was in flight from the job's begin until end.
func (x *Exchange) tell(kind trace.Kind, f *flow, j job, end time.Time) {
	x.c.Trace.Add(trace.Event{Kind: kind, Name: f.Name, Iter: int32(j.iter), Bucket: int32(f.Index), Bytes: int64(f.Bytes()), Begin: j.begin, End: end})
}
