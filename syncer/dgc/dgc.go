// Package dgc is Deep Gradient Compression (Lin et al., ICLR 2018), with which P3 compares itself
// in section 5.5: of each gradient only the largest values travel, and what stays behind is
// added to what comes later. It is lossy, and for SGD with momentum alone.
//
//	1  u = momentum × u + gradient, v = v + u        (momentum correction)
//	2  the k largest of |v| are selected              (k = ⌈(1 - sparsity) × n⌉, at least 1)
//	3  allgather of their places and values; in u and v they are 0 (momentum factor masking)
//	4  everyone adds up what all ranks have sent, in their order, and updates
//
// The velocity u is that of the rank's own gradients: momentum acts before values are held back,
// since it could not make up for the delay afterwards. So the sums have momentum already, and whoever
// applies them must not add more. The masking takes the momentum of what has been sent with it, so
// with a sparsity of 0 nothing is left to carry any, and the sums are those of plain SGD.
//
//	s, err := dgc.New(comm, bucket, dgc.Config{Momentum: 0.9, Pieces: parameters, Sparse: coordinator.Sparse{Sparsity: 0.999, Warmup: 400}})
//
// Each parameter is a piece that is selected from by itself, so buckets leave no trace. All select and add in a fixed order: replicas have equal bits, and runs repeat bit for bit.
//
// A gradient that is not finite changes neither u nor v; it is sent, so that the sum shows it on all
// ranks. An iteration whose update is left out takes with it what others sent. Whoever keeps the
// state of a run keeps Held with it.
//
// It knows no layers and no solvers.
package dgc

import (
	"context"
	"fmt"
	"math"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/kernels/topk"
	"github.com/scaffe/scaffe/kernels/vec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// Config says how gradients are compressed.
type Config struct {
	Momentum float32 // of the solver, in [0, 1)
	coordinator.Sparse
	// Pieces are elements of the bucket, ascending, that are selected from by themselves: its parameters. Nothing of
	// others is sent or held, and their sums are 0.
	Pieces []schedule.Range
}

// Syncer is that of a bucket that goes by dgc: one part, which every rank updates. Push and Pushed
// are for one goroutine at a time.
type Syncer struct {
	comm     *collectives.Comm
	c        Config
	parts    []syncer.Part
	gradient []float32
	held     Held
	selector topk.Selector
	stages   []stage // as in Sparse.Stages
	iter     int     // of the next Push
	scale    float32
	waiting  bool // a push is under way

	memory mem.Buffer // of the messages of all ranks in the longest stage
	kept   []mem.Buffer
}

// stage is the exchange at one sparsity.
type stage struct {
	counts []int // by piece: how many values are sent
	values int   // of all pieces
	// all are the messages of all ranks: of each the places, elements of the bucket, and then the
	// values, as their bits.
	all    []int32
	gather *nbc.Request
}

// Held is what has not been sent yet on this rank.
type Held struct {
	// Velocity (u) and Accumulated (v) are of the bucket's elements.
	Velocity, Accumulated []float32
}

// New returns the syncer of a bucket. Every rank of comm must make the same syncers in the same
// order. The parameters must start out equal on all ranks, and all must apply the same
// update, without momentum.
func New(comm *collectives.Comm, b syncer.Bucket, c Config, opts ...collectives.Option) (*Syncer, error) {
	s := &Syncer{comm: comm, c: c, scale: 1, gradient: mem.Float32s(b.Diff)}
	if err := s.prepare(b, opts); err != nil {
		s.Close()
		return nil, fmt.Errorf("bucket %q: %w", b.Name, err)
	}
	return s, nil
}

// prepare makes the memory and the requests. What it has made is in s even where it fails.
func (s *Syncer) prepare(b syncer.Bucket, opts []collectives.Option) (err error) {
	n, rank, size := len(s.gradient), s.comm.Rank(), s.comm.Size()
	switch {
	case !(s.c.Momentum >= 0 && s.c.Momentum < 1):
		return fmt.Errorf("a momentum of %v: dgc needs one in [0, 1)", s.c.Momentum)
	case n > math.MaxInt32:
		return fmt.Errorf("%d elements: dgc numbers at most %d in a bucket", n, math.MaxInt32)
	}
	if err = s.c.Check(); err != nil {
		return err
	}
	s.parts = []syncer.Part{{Range: schedule.Range{Len: n}, Updates: true}}
	end := 0
	for _, p := range s.c.Pieces {
		if p.Off < end || p.Len < 0 || p.End() > n {
			return fmt.Errorf("a piece of elements %v, where there are %d after element %d", p, n, end)
		}
		end = p.End()
	}
	for _, x := range []*[]float32{&s.held.Velocity, &s.held.Accumulated} {
		kept, err := mem.TryAlloc(mem.Float32.Bytes(n))
		if err != nil {
			return fmt.Errorf("what is held back: %w", err)
		}
		s.kept, *x = append(s.kept, kept), mem.Float32s(kept)
	}
	most := 0
	for _, sparsity := range s.c.Stages() {
		var st stage
		for _, p := range s.c.Pieces {
			k := coordinator.Count(p.Len, sparsity)
			st.counts, st.values = append(st.counts, k), st.values+k
		}
		s.stages, most = append(s.stages, st), max(most, st.values)
	}
	if s.memory, err = s.comm.Alloc(mem.Int32.Bytes(2 * most * size)); err != nil {
		return fmt.Errorf("messages of %d ranks: %w", size, err)
	}
	// Nothing is selected for it: the MPI library's own would have to start in one order.
	linear := append(opts[:len(opts):len(opts)], collectives.With(spec.Spec{Levels: []spec.Level{{Algorithm: "linear"}}}))
	for i := range s.stages {
		st := &s.stages[i]
		message := mem.Int32.Bytes(2 * st.values)
		all := s.memory.Slice(0, size*message)
		st.all = mem.View[int32](all)
		counts := make([]int, size)
		for r := range counts {
			counts[r] = 2 * st.values
		}
		if st.gather, err = s.comm.AllgatherInit(all.Slice(rank*message, message), all, counts, mem.Int32, linear...); err != nil {
			return err
		}
	}
	return nil
}

// Parts are one: the bucket.
func (s *Syncer) Parts() []syncer.Part { return s.parts }

// Scale has the gradient of the next Push, and of no other, multiplied with x: local gradient
// clipping (section 3.2), where the threshold of all ranks, times Fraction, bounds the norm of this rank's gradients.
func (s *Syncer) Scale(x float32) { s.scale = x }

// Fraction is what a threshold for the norm of the sum of all workers' gradients is multiplied with
// to be that of each worker's own: workers^(-1/2) (section 3.2), as if these were independent.
func Fraction(workers int) float64 { return 1 / math.Sqrt(float64(workers)) }

// Iteration says which iteration, counted from 0, the next Push is of; the ones after it follow. At first it is 0.
func (s *Syncer) Iteration(iter int) { s.iter = iter }

// Push does nothing but begin: to select takes time, which Pushed takes.
func (s *Syncer) Push() error {
	s.waiting = true
	return nil
}

// Pushed brings the sum of what all ranks send in this iteration.
func (s *Syncer) Pushed(ctx context.Context) (int, error) {
	st := &s.stages[s.c.Stage(s.iter)]
	rank := s.comm.Rank()
	s.write(st, st.all[2*st.values*rank:][:2*st.values])
	if err := st.gather.Start(); err != nil {
		return 0, err
	}
	if err := st.gather.Wait(ctx); err != nil {
		return 0, err
	}
	clear(s.gradient)
	for at := 0; at < len(st.all); at += 2 * st.values {
		places, values := st.all[at:][:st.values], st.all[at+st.values:][:st.values]
		for i, p := range places {
			s.gradient[p] += math.Float32frombits(uint32(values[i]))
		}
	}
	s.iter, s.scale, s.waiting = s.iter+1, 1, false
	return 0, nil
}

// write writes this rank's message of an iteration.
func (s *Syncer) write(st *stage, message []int32) {
	places, values := message[:st.values], message[st.values:]
	if bad := s.firstNotFinite(); bad >= 0 {
		clear(values)
		for i := range places {
			places[i] = int32(bad)
		}
		values[0] = int32(math.Float32bits(s.gradient[bad]))
		return
	}
	u, v, m, scale := s.held.Velocity, s.held.Accumulated, s.c.Momentum, s.scale
	at := 0
	for i, p := range s.c.Pieces {
		for e := p.Off; e < p.End(); e++ { // float32 keeps the compiler from one rounding less on some processors
			u[e] = float32(m*u[e]) + float32(s.gradient[e]*scale)
			v[e] += u[e]
		}
		s.selector.Largest(places[at:][:st.counts[i]], v[p.Off:p.End()])
		for k := at; k < at+st.counts[i]; k++ {
			e := int(places[k]) + p.Off
			places[k], values[k] = int32(e), int32(math.Float32bits(v[e]))
			u[e], v[e] = 0, 0
		}
		at += st.counts[i]
	}
}

// firstNotFinite returns the first element of the pieces whose gradient is NaN or infinite, below 0 where there is none.
func (s *Syncer) firstNotFinite() int {
	for _, p := range s.c.Pieces {
		if k := vec.FirstNotFinite(s.gradient[p.Off:p.End()]); k >= 0 {
			return p.Off + k
		}
	}
	return -1
}

// Held returns the memory itself, which may be read and written where no push is under way.
func (s *Syncer) Held() Held { return s.held }

// Pull does nothing: every rank has updated.
func (s *Syncer) Pull(int) error { return nil }

// Pulled waits for nothing.
func (s *Syncer) Pulled(context.Context) error { return nil }

// Payload is that of a message at the schedule's last sparsity, which most iterations have.
func (s *Syncer) Payload() nbc.Payload {
	return s.stages[len(s.stages)-1].gather.Payload()
}

// Close ends the requests and gives the memory back, unless a push is still under way: then other
// ranks may be reading it.
func (s *Syncer) Close() {
	for i := range s.stages {
		if g := s.stages[i].gather; g != nil {
			g.Close()
		}
	}
	if !s.waiting && s.memory.Len() > 0 {
		s.comm.Free(s.memory)
	}
	for _, b := range s.kept {
		b.Free()
	}
	s.stages, s.kept, s.memory = nil, nil, mem.Buffer{}
}
