package exchange

import (
	"fmt"
	"slices"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/syncer/adam"
	"github.com/scaffe/scaffe/syncer/dgc"
	"github.com/scaffe/scaffe/syncer/onebit"
	"github.com/scaffe/scaffe/syncer/ps"
	"github.com/scaffe/scaffe/syncer/sfb"
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
	sums   [][]Sum // by part of the syncer, bucket by bucket as the net is cut
	policy policy
	layers int // that own parameters in it

	// The computing goroutine's.
	state    state
	left     int // of the layers, how many have not ended their backward
	complete int // the iteration of the gradients in Diff
	iter     int // the iteration of the job

	jobs chan job
	done chan error
	// The bucket's goroutine's, until it is done.
	beganAt  time.Time // when the push began, which may be later than it was asked for
	summedAt time.Time // when the last part's sum arrived
	account  account
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
	x.owner = make([]*bucketState, len(x.c.Layers))
	x.factors = make([]putter, len(x.c.Layers))
	library := x.library()
	for _, m := range x.moving() {
		s, err := x.syncer(m)
		if err != nil {
			return err
		}
		b := &bucketState{
			Bucket: m.Bucket, sync: s, sums: x.sums(m.Bucket, s.Parts()), layers: len(m.Layers),
			policy: designs[x.c.Design].policy(m.Scheme).within(x.c.UpdateAtOnce, library),
			state:  summed, jobs: make(chan job, 1), done: make(chan error, 1),
		}
		if b.Scheme == DGC && x.c.Clip != nil {
			b.policy = b.policy.clipped()
		}
		if b.Scheme != Reduce {
			b.state = current
		}
		for _, part := range b.sums {
			for _, sum := range part {
				if sum.Updates {
					x.own = append(x.own, sum)
				}
			}
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

// moved is what moves as one, and where it is cut.
type moved struct {
	Bucket
	cuts []int // elements of the bucket
}

// moving returns what moves as one: the buckets, or in a packed design all
// neighbors of one scheme, cut where they are.
func (x *Exchange) moving() []moved {
	var all []moved
	packed := designs[x.c.Design].packed
	for _, b := range x.buckets {
		if n := len(all); packed && n > 0 && all[n-1].Scheme == b.Scheme {
			m := &all[n-1]
			m.cuts = append(m.cuts, b.Off-m.Off)
			m.Len = b.End() - m.Off
			m.Layers = append(slices.Clip(m.Layers), b.Layers...)
			m.Name = x.c.Layers[m.Layers[0]].Name + "…" + x.c.Layers[b.Layers[len(b.Layers)-1]].Name
			continue
		}
		b.Index = len(all)
		all = append(all, moved{Bucket: b})
	}
	if len(all) == 1 && len(x.buckets) > 1 {
		all[0].Name = "all parameters"
	}
	return all
}

// sums says what the parts of a syncer are, each cut where the net is.
func (x *Exchange) sums(b Bucket, parts []syncer.Part) [][]Sum {
	sums := make([][]Sum, len(parts))
	for i, p := range parts {
		from, to := b.Off+p.Off, b.Off+p.End()
		for k := range x.buckets {
			cut := &x.buckets[k]
			if lo, hi := max(from, cut.Off), min(to, cut.End()); lo < hi {
				sums[i] = append(sums[i], Sum{Bucket: cut, Range: Range{Off: lo, Len: hi - lo}, Updates: p.Updates})
			}
		}
	}
	return sums
}

// urgency is what a bucket's requests have as Binding.Priority: forward needs the first buckets soonest. Where all are awaited together, or are
// to go as they come, all buckets are equal, but pushes go before pulls: what is pushed has still to come back.
func (x *Exchange) urgency(b *Bucket) (push, pull int) {
	if x.c.FirstCome || designs[x.c.Design].policy(b.Scheme).together() {
		return 0, 1
	}
	return b.Index, b.Index
}

func (x *Exchange) syncer(b moved) (syncer.Syncer, error) {
	bytes := func(n int) int { return mem.Float32.Bytes(n) }
	push, pull := x.urgency(&b.Bucket)
	s := syncer.Bucket{
		Name: b.Name, Cuts: b.cuts, Slices: x.slicesOf(b), Of: x.called(b), Queues: x.c.Queues, Pulls: []collectives.Option{collectives.Priority(pull)},
		Data: x.c.Data.Slice(bytes(b.Off), bytes(b.Len)), Diff: x.c.Diff.Slice(bytes(b.Off), bytes(b.Len)),
	}
	how := []collectives.Option{collectives.With(x.c.Spec), collectives.Priority(push), collectives.Credit(x.c.Slice.CreditBytes(x.c.Credit))}
	workers := x.team.Workers()
	switch {
	case b.Scheme == PS && x.c.Links != nil:
		return x.c.Links.New(s, b.Off, x.pairsOf(b.Range), how...)
	case b.Scheme == PS && x.asking != nil:
		return x.asking.New(s, x.pairsOf(b.Range), how...)
	case b.Scheme == PS:
		return ps.New(x.team, s, x.pairsOf(b.Range), how...)
	case b.Scheme == Adam:
		return x.factored(b, s, how...)
	case workers == nil:
		return syncer.Absent(), nil
	case b.Scheme == Reduce:
		return syncer.Reduce(workers, s, x.c.Root, how...)
	case b.Scheme == Allreduce:
		return syncer.Allreduce(workers, s, how...)
	case b.Scheme == SFB:
		return x.factored(b, s, how...)
	case b.Scheme == DGC:
		c := dgc.Config{Momentum: x.c.Momentum, Sparse: x.c.Sparse.Or()}
		for _, l := range b.Layers {
			for _, p := range x.c.Layers[l].learning() {
				p.Off -= b.Off
				c.Pieces = append(c.Pieces, p)
			}
		}
		return dgc.New(workers, s, c, how...)
	case b.Scheme == OneBit:
		return onebit.New(workers, s, x.matrices(b), how...)
	}
	return nil, fmt.Errorf("exchange: bucket %q: scheme %v cannot be executed", b.Name, b.Scheme)
}

// factored returns the syncer of a bucket whose layers go by SFB or Adam.
func (x *Exchange) factored(b moved, s syncer.Bucket, how ...collectives.Option) (syncer.Syncer, error) {
	matrices := x.matrices(b)
	var y interface {
		syncer.Syncer
		factorTaker
	}
	var err error
	if b.Scheme == Adam {
		var served []adam.Matrix
		for i, p := range x.pairsOf(b.Range) { // one of each layer
			served = append(served, adam.Matrix{Matrix: matrices[i], Server: p.Server})
		}
		y, err = adam.New(x.team, s, served, how...)
	} else {
		y, err = sfb.New(x.team.Workers(), s, matrices, how...)
	}
	if err != nil {
		return nil, err
	}
	for i, l := range b.Layers {
		x.factors[l] = putter{y, i}
	}
	return y, nil
}

// matrices are those of a bucket's layers.
func (x *Exchange) matrices(b moved) (all []sfb.Matrix) {
	for _, l := range b.Layers {
		all = append(all, x.c.Layers[l].Factors.At(b.Off))
	}
	return all
}

// factorTaker takes this rank's factors of a pass, those of one of its matrices.
type factorTaker interface{ Put(matrix, pass int) }

// putter takes the factors of one layer.
type putter struct {
	sync   factorTaker
	matrix int
}

// moves returns how many bytes the collectives of a bucket are about: of its slices each size, the largest first.
func (x *Exchange) moves(b *Bucket) []int {
	if b.Scheme == SFB {
		n := 0
		for _, l := range b.Layers {
			n += x.c.Layers[l].Factors.Bytes()
		}
		return []int{n}
	}
	var sizes []int
	for _, s := range x.slicesOf(moved{Bucket: *b}) {
		if n := mem.Float32.Bytes(s.Len); !slices.Contains(sizes, n) {
			sizes = append(sizes, n)
		}
	}
	if sizes == nil {
		return []int{b.Bytes()}
	}
	slices.SortFunc(sizes, func(a, b int) int { return b - a })
	return sizes
}

// library reports whether the MPI library serves any bucket: its collectives
// must start in one order on all ranks, which the buckets' goroutines do not
// keep.
func (x *Exchange) library() bool {
	for i := range x.buckets {
		b := &x.buckets[i]
		for _, n := range x.moves(b) {
			if slices.ContainsFunc(x.specs(b, n), spec.Spec.IsLibrary) {
				return true
			}
		}
	}
	return false
}

// Specs returns which collectives move a bucket: its gradients, or factors, and then, with
// Reduce, PS and Adam, its parameters. Of one that is cut they are those of its largest slice.
func (x *Exchange) Specs(b *Bucket) []spec.Spec { return x.specs(b, x.moves(b)[0]) }

func (x *Exchange) specs(b *Bucket, bytes int) []spec.Spec {
	var specs []spec.Spec
	for _, v := range collectivesOf(b.Scheme) {
		if v == schedule.Gather { // for which the schemes select nothing
			specs = append(specs, linear)
			continue
		}
		choice, err := x.team.All().Selector().Select(x.team.Layout(), x.query(v, bytes), x.specOf(b.Scheme))
		if err == nil { // otherwise it could not have been made
			specs = append(specs, choice.Spec)
		}
	}
	return specs
}

// do waits for what a job has started, and does what comes after it. It runs on
// the bucket's goroutine.
func (x *Exchange) do(b *bucketState, j job) error {
	if len(b.sums) == 0 { // none of it is this rank's
		return nil
	}
	if !j.push {
		return x.pulled(b, j)
	}
	var pulls time.Time // when the first part's pull began
	for range b.sums {
		part, err := b.sync.Pushed(x.ctx)
		b.summedAt = time.Now()
		if err != nil {
			return err
		}
		if x.c.UpdateAtOnce {
			continue
		}
		if err := x.use(b, j.iter, part); err != nil {
			return err
		}
		if b.policy.pullAt != onSum {
			continue
		}
		if pulls.IsZero() {
			pulls = time.Now()
		}
		if err := b.sync.Pull(part); err != nil {
			return err
		}
	}
	b.beganAt = j.begin
	if s, ok := b.sync.(interface{ Began() time.Time }); ok && s.Began().After(j.begin) { // until then the GPU computed
		b.beganAt, j.begin = s.Began(), s.Began()
	}
	x.tell(trace.Push, b, j, b.summedAt)
	if pulls.IsZero() {
		return nil
	}
	j.begin = pulls
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

// use hands the gradients of a part over, bucket by bucket as the net is cut.
func (x *Exchange) use(b *bucketState, iter, part int) error {
	for _, s := range b.sums[part] {
		if err := x.c.OnSum(iter, s); err != nil {
			return err
		}
	}
	return nil
}

// tell adds that b was in flight from the job's begin until end.
func (x *Exchange) tell(kind trace.Kind, b *bucketState, j job, end time.Time) {
	b.account.add(kind, j.begin, end)
	x.c.Events.Add(trace.Event{Kind: kind, Name: b.Name, Iter: int32(j.iter), Bucket: int32(b.Index), Bytes: int64(b.Bytes()), Begin: j.begin, End: end})
}
