// Package sfb is Poseidon's sufficient factor broadcasting (section 3.2; the
// scheme is that of Xie et al.): workers send each other the factors of a fully
// connected layer's gradient, and everyone rebuilds the sum and updates the
// parameters itself. No gradient and no parameters travel.
//
// A Matrix describes the layer; package caffe/net has its factors:
//
//	s, err := sfb.New(comm, bucket, []sfb.Matrix{m})
//	…                             // an iteration, after the layer's backward of every pass:
//	s.Put(0, pass)                // this rank's factors, to their place
//	err = s.Push()                // after the last one: to all others, and theirs here
//	…
//	part, err := s.Pushed(ctx)    // the gradients of weights and bias are in Diff
//
// The factors lie in one buffer for each matrix, those of rank 0 first, and this
// rank writes its own to the place that they have in it (factors.Stack): an Allgather
// in place brings the others'. The sum is one product of all of them in the order of
// ranks, this rank's among them, so that it does not depend on who was late, and all
// replicas have equal bits where their products do. Compare says whether they do.
//
// It knows no layers and no solvers.
package sfb

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/kernels/factors"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/syncer"
)

// Matrix is a layer whose gradients are rebuilt from its factors.
type Matrix struct {
	Name  string
	Shape factors.Shape
	// Rows is how many rows the factors of each rank have in a pass; Passes is how many
	// passes an iteration has (iter_size).
	Rows   []int
	Passes int
	// Weights and Bias are elements of the bucket. Without a bias that learns, Bias
	// has none.
	Weights, Bias schedule.Range
	// Put writes this rank's factors of the last backward pass to their place, as
	// those of a part and pass.
	Put func(s *factors.Stack, stacked []float32, part, pass int)
	// Rebuild, unless nil, is called in place of s.Rebuild when the factors of all ranks are
	// here, by one goroutine at a time: for a replay, which waits for as long as that takes.
	Rebuild func(s *factors.Stack, stacked, weights, bias []float32) error
}

// At returns the matrix for a bucket that begins at off.
func (m *Matrix) At(off int) Matrix {
	moved := *m
	moved.Weights.Off -= off
	moved.Bias.Off -= off
	return moved
}

// Within says what is wrong with where the gradients lie in a bucket.
func (m *Matrix) Within(b syncer.Bucket) error {
	count := b.Diff.Len() / mem.Float32.Size()
	switch {
	case m.Weights.Off < 0 || m.Weights.Len != m.Shape.Out*m.Shape.In || m.Weights.End() > count:
		return fmt.Errorf("weights at %v of %d elements are not of %d×%d", m.Weights, count, m.Shape.Out, m.Shape.In)
	case m.Bias.Len != 0 && (m.Bias.Len != m.Shape.Out || m.Bias.Off < m.Weights.End() || m.Bias.End() > count):
		return fmt.Errorf("a bias at %v of %d elements is not of %d outputs", m.Bias, count, m.Shape.Out)
	}
	return nil
}

// Bytes is how much the factors of all ranks are.
func (m *Matrix) Bytes() int {
	rows := 0
	for _, n := range m.Rows {
		rows += n * m.Passes
	}
	return mem.Float32.Bytes(rows * m.Shape.Row())
}

// Syncer is that of a bucket whose layers go by sfb. Its parts are the matrices,
// and arrive in the order of the backward pass, the last first. Put, Push and
// Pushed are for one goroutine at a time.
type Syncer struct {
	rank     int
	matrices []matrix
	parts    []syncer.Part
	next     int // matrices whose factors Pushed has not waited for
	comm     *collectives.Comm
}

// matrix is a Matrix whose factors travel.
type matrix struct {
	Stacked
	gather *nbc.Request
}

// Stacked is a Matrix with memory for factors of some ranks, and where the gradients go that
// they amount to.
type Stacked struct {
	Matrix
	Stack   *factors.Stack
	Factors mem.Buffer // as Stack lays them out, from the communicator's Alloc

	stacked       []float32
	weights, bias []float32
}

// NewStacked checks that m is a matrix of b, and returns it with memory for factors of which
// each part has the given rows in a pass.
func NewStacked(comm *collectives.Comm, b syncer.Bucket, m Matrix, rows []int) (x Stacked, err error) {
	if len(m.Rows) != comm.Size() {
		return x, fmt.Errorf("rows of the factors of %d ranks, where there are %d", len(m.Rows), comm.Size())
	}
	if err := m.Within(b); err != nil {
		return x, err
	}
	x.Matrix = m
	diff := mem.Float32s(b.Diff)
	x.weights = diff[m.Weights.Off:m.Weights.End()]
	if m.Bias.Len > 0 {
		x.bias = diff[m.Bias.Off:m.Bias.End()]
	}
	if x.Stack, err = factors.NewStack(m.Shape, slices.Clone(rows), m.Passes); err != nil {
		return x, err
	}
	if x.Factors, err = comm.Alloc(mem.Float32.Bytes(x.Stack.Len())); err != nil {
		return x, fmt.Errorf("factors: %w", err)
	}
	x.stacked = mem.Float32s(x.Factors)
	if x.Rebuild == nil {
		x.Rebuild = (*factors.Stack).Rebuild
	}
	return x, nil
}

// Part returns the memory of a part's factors.
func (x *Stacked) Part(i int) mem.Buffer {
	off, n := x.Stack.Part(i)
	return x.Factors.Slice(mem.Float32.Bytes(off), mem.Float32.Bytes(n))
}

// Put writes the factors of the backward pass that has just ended to a part's place.
func (x *Stacked) Put(part, pass int) { x.Matrix.Put(x.Stack, x.stacked, part, pass) }

// Gradients writes the gradients that the factors amount to.
func (x *Stacked) Gradients() error {
	if err := x.Rebuild(x.Stack, x.stacked, x.weights, x.bias); err != nil {
		return fmt.Errorf("layer %q: %w", x.Name, err)
	}
	return nil
}

// Free gives the factors' memory back.
func (x *Stacked) Free(comm *collectives.Comm) {
	if x.stacked != nil {
		comm.Free(x.Factors)
	}
}

// Parts are those of a bucket of so many elements which holds matrices, ascending, and nothing
// else: one for each. updates says whether this rank updates it.
func Parts(matrices []Matrix, elements int, updates func(matrix int) bool) []syncer.Part {
	parts := make([]syncer.Part, len(matrices))
	for i, m := range matrices {
		from, to := m.Weights.Off, elements
		if i == 0 {
			from = 0
		}
		if i+1 < len(matrices) {
			to = matrices[i+1].Weights.Off
		}
		parts[i] = syncer.Part{Range: schedule.Range{Off: from, Len: to - from}, Updates: updates(i)}
	}
	return parts
}

// New returns the syncer of a bucket that holds matrices, ascending, and nothing
// else. Every rank of comm must make the same syncers in the same order. The parameters
// must start out equal on all ranks, and all must apply the same update.
func New(comm *collectives.Comm, b syncer.Bucket, matrices []Matrix, opts ...collectives.Option) (*Syncer, error) {
	s := &Syncer{rank: comm.Rank(), comm: comm, matrices: make([]matrix, 0, len(matrices))}
	s.parts = Parts(matrices, b.Diff.Len()/mem.Float32.Size(), func(int) bool { return true })
	for _, m := range matrices {
		x, err := s.prepare(b, m, opts)
		s.matrices = append(s.matrices, x)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("bucket %q: layer %q: %w", b.Name, m.Name, err)
		}
	}
	return s, nil
}

// prepare makes what moves one matrix. What it has made is in the result even where
// it fails.
func (s *Syncer) prepare(b syncer.Bucket, m Matrix, opts []collectives.Option) (x matrix, err error) {
	if x.Stacked, err = NewStacked(s.comm, b, m, m.Rows); err != nil {
		return x, err
	}
	counts := make([]int, s.comm.Size())
	for r := range counts {
		_, counts[r] = x.Stack.Part(r)
	}
	x.gather, err = s.comm.AllgatherInit(x.Part(s.rank), x.Factors, counts, mem.Float32, opts...)
	return x, err
}

// Put writes this rank's factors of a pass, which ended with the backward of matrix i,
// to where they are sent from. Those of the iteration before have been used by then.
func (s *Syncer) Put(i, pass int) {
	s.matrices[i].Put(s.rank, pass)
}

// Parts are the matrices.
func (s *Syncer) Parts() []syncer.Part { return s.parts }

// Push sends this rank's factors to the others, those of the last matrix first.
func (s *Syncer) Push() error {
	s.next = len(s.matrices)
	for i := range s.matrices {
		if err := s.matrices[len(s.matrices)-1-i].gather.Start(); err != nil {
			return err
		}
	}
	return nil
}

// Pushed waits for the factors of one more matrix and rebuilds its gradients.
func (s *Syncer) Pushed(ctx context.Context) (int, error) {
	m := &s.matrices[s.next-1]
	if err := m.gather.Wait(ctx); err != nil {
		return 0, err
	}
	s.next--
	return s.next, m.Gradients()
}

// Pull does nothing: every rank has updated.
func (s *Syncer) Pull(int) error { return nil }

// Pulled waits for nothing.
func (s *Syncer) Pulled(context.Context) error { return nil }

// Payload is that of the factors.
func (s *Syncer) Payload() (p nbc.Payload) {
	for i := range s.matrices {
		p = p.Add(s.matrices[i].gather.Payload())
	}
	return p
}

// Close ends the requests and gives the factors' memory back, unless a push is still
// under way: then other ranks may be reading it.
func (s *Syncer) Close() {
	for i := range s.matrices {
		m := &s.matrices[i]
		if m.gather != nil {
			m.gather.Close()
		}
		if s.next == 0 {
			m.Free(s.comm)
		}
	}
	s.matrices = nil
}

// Compare is a collective in which the ranks see whether they compute equal
// products, as replicas must that rebuild gradients for themselves: processors, or
// libraries, may add in other orders. It returns, alike on all ranks, an error for each of
// matrices, nil where all products are equal and otherwise one that names the ranks.
func Compare(ctx context.Context, comm *collectives.Comm, matrices []Matrix) ([]error, error) {
	digests := make([]uint64, 0, len(matrices))
	var failed error
	seen := map[string]uint64{} // of layers with factors alike
	for _, m := range matrices {
		key := fmt.Sprint(m.Shape, m.Rows, m.Passes)
		if _, found := seen[key]; !found {
			s, err := factors.NewStack(m.Shape, m.Rows, m.Passes)
			if err == nil {
				seen[key], err = s.Digest()
			}
			failed = errors.Join(failed, err)
		}
		digests = append(digests, seen[key])
	}
	if err := comm.Agree(ctx, failed); err != nil {
		return nil, err
	}
	who, err := comm.Compare(ctx, digests)
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(matrices))
	for i, m := range matrices {
		if who[i] != "" {
			errs[i] = fmt.Errorf("the ranks compute products of %d×%d with other bits: %s (do all nodes have the same processors and libraries?)", m.Shape.Out, m.Shape.In, who[i])
		}
	}
	return errs, nil
}
