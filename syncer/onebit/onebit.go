// Package onebit is the scheme onebit (Seide et al., Interspeech 2014, as in CNTK, with which
// Poseidon compares itself in section 5): gradients of inner products travel as one bit for
// each value and two values for each column. It is lossy: what the bits leave out is added to
// the gradient of the next iteration.
//
//	1  each rank quantises its gradient + its residual, column by column
//	2  gather  of each stripe of columns to its owner, which adds them in the order of ranks
//	3  the owner quantises the sum + a residual of its own
//	4  allgather of the stripes: everyone has the codes of the sum, and updates
//
// No parameters travel, and everybody unquantises the same codes: replicas have equal bits,
// whoever is late, on any processors. A bias, which has few values, is added as it is, by an
// allreduce.
//
//	s, err := onebit.New(comm, bucket, []sfb.Matrix{m})
//
// An iteration whose update is left out takes with it what it sent, of residuals too; a
// gradient that is not finite spoils no residual. Whoever keeps the state of a run keeps
// Residuals with it.
//
// It knows no layers and no solvers.
package onebit

import (
	"context"
	"fmt"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/kernels/onebit"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/syncer/sfb"
)

// Syncer is that of a bucket whose layers go by onebit. Its parts are the matrices, and arrive
// in the order of the backward pass, the last first. Push and Pushed are for one goroutine at a
// time.
type Syncer struct {
	comm     *collectives.Comm
	matrices []matrix
	parts    []syncer.Part
	next     int // matrices whose sum Pushed has not made
}

// matrix is a layer's weights on their way.
type matrix struct {
	name     string
	weights  schedule.Range // of the bucket's elements
	codec    *onebit.Matrix
	stripes  []schedule.Range // by rank: the columns that it adds
	gradient []float32
	residual []float32 // of this rank's gradient
	codes    []int32   // of that, stripe by stripe
	at       []int     // where a stripe's codes begin, and where the last ones end

	// Of this rank's stripe:
	adder *onebit.Matrix
	from  []int32   // the codes of all ranks, one after the other
	sum   []float32 // of what they stand for
	left  []float32 // the residual of the sum

	gathers []*nbc.Request // of each stripe to its owner
	summed  []int32        // the codes of all stripes' sums
	gather  *nbc.Request   // of them
	bias    *nbc.Request   // nil without one

	memory [3]mem.Buffer // of codes, from and summed, from the communicator's Alloc
	kept   []mem.Buffer  // of residual, sum and left
}

// New returns the syncer of a bucket that holds matrices, ascending, and nothing else; their
// factors do not count. Every rank of comm must make the same syncers in the same order. The
// parameters must start out equal on all ranks, and all must apply the same update.
func New(comm *collectives.Comm, b syncer.Bucket, matrices []sfb.Matrix, opts ...collectives.Option) (*Syncer, error) {
	s := &Syncer{comm: comm}
	s.parts = sfb.Parts(matrices, b.Diff.Len()/mem.Float32.Size(), func(int) bool { return true })
	for _, m := range matrices {
		x := matrix{name: m.Name, weights: m.Weights}
		err := m.Within(b)
		if err == nil {
			err = x.prepare(comm, b, m, opts)
		}
		s.matrices = append(s.matrices, x)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("bucket %q: layer %q: %w", b.Name, m.Name, err)
		}
	}
	return s, nil
}

// stripeCols is what stripes are cut at multiples of, in columns: a word of bits in each row.
const stripeCols = 32

// Stripes deals columns to ranks: neighboring ones, as many to each as to any other but for 32.
func Stripes(cols, ranks int) []schedule.Range {
	units := (cols + stripeCols - 1) / stripeCols
	all := make([]schedule.Range, ranks)
	for r := range all {
		from, to := min(units*r/ranks*stripeCols, cols), min(units*(r+1)/ranks*stripeCols, cols)
		all[r] = schedule.Range{Off: from, Len: to - from}
	}
	return all
}

// prepare makes what moves one matrix. What it has made is in x even where it fails.
func (x *matrix) prepare(comm *collectives.Comm, b syncer.Bucket, m sfb.Matrix, opts []collectives.Option) (err error) {
	rows, cols := m.Shape.Out, m.Shape.In
	if m.Shape.Transposed {
		rows, cols = cols, rows
	}
	if x.codec, err = onebit.New(rows, cols); err != nil {
		return err
	}
	rank, size := comm.Rank(), comm.Size()
	x.gradient = mem.Float32s(b.Diff)[m.Weights.Off:m.Weights.End()]
	if x.residual, err = x.keep(len(x.gradient)); err != nil {
		return err
	}
	x.stripes = Stripes(cols, size)
	x.at = make([]int, size+1)
	counts := make([]int, size)
	for r, s := range x.stripes {
		counts[r] = x.codec.Words(s.Off, s.End())
		x.at[r+1] = x.at[r] + counts[r]
	}
	for i, n := range []int{x.at[size], size * counts[rank], x.at[size]} {
		if x.memory[i], err = comm.Alloc(mem.Int32.Bytes(n)); err != nil {
			return err
		}
	}
	x.codes, x.from, x.summed = mem.View[int32](x.memory[0]), mem.View[int32](x.memory[1]), mem.View[int32](x.memory[2])
	if own := x.stripes[rank]; own.Len > 0 {
		if x.adder, err = onebit.New(rows, own.Len); err != nil {
			return err
		}
		if x.sum, err = x.keep(rows * own.Len); err != nil {
			return err
		}
		if x.left, err = x.keep(rows * own.Len); err != nil {
			return err
		}
	}
	linear := append(opts[:len(opts):len(opts)], collectives.With(spec.Spec{Levels: []spec.Level{{Algorithm: "linear"}}}))
	for r := range size {
		into := mem.Buffer{}
		if r == rank {
			into = x.memory[1]
		}
		equal := make([]int, size)
		for i := range equal {
			equal[i] = counts[r]
		}
		g, err := comm.GatherInit(x.part(0, r), into, equal, mem.Int32, r, linear...)
		if err != nil {
			return err
		}
		x.gathers = append(x.gathers, g)
	}
	if x.gather, err = comm.AllgatherInit(x.part(2, rank), x.memory[2], counts, mem.Int32, linear...); err != nil || m.Bias.Len == 0 {
		return err
	}
	bias := b.Diff.Slice(mem.Float32.Bytes(m.Bias.Off), mem.Float32.Bytes(m.Bias.Len))
	x.bias, err = comm.AllreduceInit(bias, bias, mem.Float32, mem.Sum, linear...)
	return err
}

// keep returns memory of this rank's own, in large pages: all of it is gone through in every iteration.
func (x *matrix) keep(n int) ([]float32, error) {
	b, err := mem.TryAlloc(mem.Float32.Bytes(n))
	x.kept = append(x.kept, b)
	return mem.Float32s(b), err
}

// part is the memory of a rank's stripe among codes (0) or summed (2).
func (x *matrix) part(memory, rank int) mem.Buffer {
	return x.memory[memory].Slice(mem.Int32.Bytes(x.at[rank]), mem.Int32.Bytes(x.at[rank+1]-x.at[rank]))
}

// codesOf returns a rank's stripe among codes.
func (x *matrix) codesOf(codes []int32, rank int) []int32 { return codes[x.at[rank]:x.at[rank+1]] }

// Parts are the matrices.
func (s *Syncer) Parts() []syncer.Part { return s.parts }

// Push does nothing but begin: to quantise takes time, which Pushed takes.
func (s *Syncer) Push() error {
	s.next = len(s.matrices)
	return nil
}

// Pushed brings the sum of one more matrix, as its codes have it.
func (s *Syncer) Pushed(ctx context.Context) (int, error) {
	x := &s.matrices[s.next-1]
	if err := x.add(ctx, s.comm.Rank()); err != nil {
		return 0, err
	}
	s.next--
	return s.next, nil
}

// add is an iteration of a matrix.
func (x *matrix) add(ctx context.Context, rank int) error {
	if x.bias != nil {
		if err := x.bias.Start(); err != nil {
			return err
		}
	}
	for i := range x.gathers { // not all to the same owner at once
		r := (rank + 1 + i) % len(x.gathers)
		x.codec.Quantise(x.codesOf(x.codes, r), x.stripes[r].Off, x.stripes[r].End(), x.gradient, x.residual)
		if err := x.gathers[r].Start(); err != nil {
			return err
		}
	}
	if err := x.gathers[rank].Wait(ctx); err != nil {
		return err
	}
	if x.adder != nil {
		x.addStripe(x.codesOf(x.summed, rank))
	}
	if err := x.gather.Start(); err != nil {
		return err
	}
	if err := x.gather.Wait(ctx); err != nil {
		return err
	}
	for r, s := range x.stripes {
		x.codec.Unquantise(x.gradient, s.Off, s.End(), x.codesOf(x.summed, r))
		if r == rank {
			continue
		}
		if err := x.gathers[r].Wait(ctx); err != nil {
			return err
		}
	}
	if x.bias == nil {
		return nil
	}
	return x.bias.Wait(ctx)
}

// addStripe adds what all ranks have sent of this rank's stripe, in their order, and
// quantises the sum.
func (x *matrix) addStripe(codes []int32) {
	cols := x.adder.Cols
	x.adder.Unquantise(x.sum, 0, cols, x.from[:len(codes)])
	for at := len(codes); at < len(x.from); at += len(codes) {
		x.adder.Add(x.sum, 0, cols, x.from[at:at+len(codes)])
	}
	x.adder.Quantise(codes, 0, cols, x.sum, x.left)
}

// Residual is what quantising has left out of one matrix so far, on this rank.
type Residual struct {
	schedule.Range                // of the matrix, which lies row by row, in the bucket's elements
	Rows, Cols     int            // its extents
	Gradient       []float32      // of what this rank sends: of all of the matrix
	Columns        schedule.Range // those whose sums this rank quantises
	Sum            []float32      // of these: Rows × Columns.Len, row by row
}

// Residuals are those of the matrices, ascending: the memory itself, which may be read and
// written where no push is under way.
func (s *Syncer) Residuals() []Residual {
	all := make([]Residual, len(s.matrices))
	for i := range s.matrices {
		x := &s.matrices[i]
		all[i] = Residual{
			Range: x.weights, Rows: x.codec.Rows, Cols: x.codec.Cols,
			Gradient: x.residual, Columns: x.stripes[s.comm.Rank()], Sum: x.left,
		}
	}
	return all
}

// Pull does nothing: every rank has updated.
func (s *Syncer) Pull(int) error { return nil }

// Pulled waits for nothing.
func (s *Syncer) Pulled(context.Context) error { return nil }

// Payload is that of the codes and the biases.
func (s *Syncer) Payload() (p nbc.Payload) {
	for i := range s.matrices {
		for _, r := range s.matrices[i].requests() {
			p = p.Add(r.Payload())
		}
	}
	return p
}

// Close ends the requests and gives the codes' memory back, unless a push is still under way:
// then other ranks may be reading it.
func (s *Syncer) Close() {
	for i := range s.matrices {
		for _, r := range s.matrices[i].requests() {
			r.Close()
		}
		for _, b := range s.matrices[i].memory {
			if s.next == 0 && b.Len() > 0 {
				s.comm.Free(b)
			}
		}
		for _, b := range s.matrices[i].kept {
			b.Free()
		}
	}
	s.matrices = nil
}

// requests are all of a matrix.
func (x *matrix) requests() []*nbc.Request {
	all := append([]*nbc.Request(nil), x.gathers...)
	for _, r := range []*nbc.Request{x.gather, x.bias} {
		if r != nil {
			all = append(all, r)
		}
	}
	return all
}
