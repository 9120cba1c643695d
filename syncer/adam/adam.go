// Package adam is the scheme adam, what Microsoft's Adam does with fully connected layers
// (Chilimbi et al. 2014, as Poseidon describes it in section 3.2): the workers send a layer's
// sufficient factors to its one server, which rebuilds the sum of their gradients and updates,
// and sends the parameters back to all.
//
//	push   a gather of the factors to the server
//	pull   a broadcast of the layer's parameters by it
//
// Factors are smaller than gradients, but the parameters come back whole, and all of a
// layer's pass its server's port: for P1 workers that is the largest cost of a node in
// Table 1, P1·MN + P1·K(M+N).
//
//	s, err := adam.New(team, bucket, []adam.Matrix{{Matrix: m, Server: 3}})
//	…                             // an iteration, as with package syncer/sfb
//
// The server multiplies once, its own factors in their place among the others' in the order
// of ranks: the sum does not depend on who was late, and has the bits that sfb has on that
// rank. A server that does not work has no factors of its own, and its gradients are those of one that
// does. Which server a layer has is package coordinator's to say.
package adam

import (
	"context"
	"fmt"
	"slices"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/syncer/ps"
	"github.com/scaffe/scaffe/syncer/sfb"
)

// Matrix is a layer, and the rank of all that serves it. Its factors are those of the workers.
type Matrix struct {
	sfb.Matrix
	Server int
}

// Syncer is that of a bucket whose layers go by adam. Its parts are the matrices, on a rank that
// only serves those that it serves. Put, Push and Pushed are for one goroutine at a time.
type Syncer struct {
	works    bool
	matrices []matrix
	parts    []syncer.Part
	push     *nbc.Set // the last matrix first
	left     int      // pushes that have not been awaited
	payload  nbc.Payload
}

// matrix is a Matrix with the requests that move it.
type matrix struct {
	sfb.Stacked                   // of all workers at the server, of this one elsewhere
	comm        *collectives.Comm // of the workers and the server
	own         int               // this rank's part of them
	serves      bool
	push, pull  *nbc.Request
}

// New returns the syncer of a bucket that holds matrices, ascending, and nothing else. Every
// rank of the team must make the same syncers in the same order, and their parameters must be
// equal at the start.
func New(team *syncer.Team, b syncer.Bucket, matrices []Matrix, opts ...collectives.Option) (*Syncer, error) {
	rank := team.All().Rank()
	s := &Syncer{works: team.Works(rank)}
	var all []sfb.Matrix
	for _, m := range matrices {
		all = append(all, m.Matrix)
	}
	parts := sfb.Parts(all, b.Diff.Len()/mem.Float32.Size(), func(i int) bool { return matrices[i].Server == rank })
	var pushes []*nbc.Request
	for i, m := range matrices {
		comm, server, err := team.Between(m.Server)
		if err == nil && comm == nil { // between others
			continue
		}
		if err == nil && !team.Works(m.Server) { // it has no rows itself
			m.Rows = slices.Insert(slices.Clone(m.Rows), min(server, len(m.Rows)), 0)
		}
		var x matrix
		if err == nil {
			x, err = prepare(comm, server, b, m.Matrix, parts[i], opts)
			s.matrices, s.parts = append(s.matrices, x), append(s.parts, parts[i])
		}
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("bucket %q: layer %q at rank %d: %w", b.Name, m.Name, m.Server, err)
		}
		pushes = append([]*nbc.Request{x.push}, pushes...)
		s.payload = s.payload.Add(x.push.Payload()).Add(x.pull.Payload())
	}
	s.push = nbc.NewSet(pushes...)
	return s, nil
}

// prepare makes what moves one matrix between the workers and the server, a rank of comm. What it has
// made is in the result even where it fails.
func prepare(comm *collectives.Comm, server int, b syncer.Bucket, m sfb.Matrix, part syncer.Part, opts []collectives.Option) (x matrix, err error) {
	x.comm = comm
	rank := comm.Rank()
	rows := m.Rows
	if x.own, x.serves = rank, part.Updates; !x.serves && rank < len(rows) { // it needs nobody else's
		rows, x.own = rows[rank:rank+1], 0
	}
	if x.Stacked, err = sfb.NewStacked(comm, b, m, rows); err != nil {
		return x, err
	}
	counts := make([]int, comm.Size())
	for r := range counts {
		counts[r] = m.Rows[r] * m.Passes * m.Shape.Row()
	}
	opts = opts[:len(opts):len(opts)]
	all := x.Factors
	if !x.serves {
		all = mem.Buffer{}
	}
	if x.push, err = comm.GatherInit(x.Part(x.own), all, counts, mem.Float32, server, append(opts, collectives.With(spec.Spec{Levels: []spec.Level{{Algorithm: "linear"}}}))...); err != nil {
		return x, err
	}
	data := b.Data.Slice(mem.Float32.Bytes(part.Off), mem.Float32.Bytes(part.Len))
	x.pull, err = comm.BcastInit(data, mem.Float32, server, append(slices.Concat(opts, b.Pulls), collectives.With(ps.Spec(comm.Layout())))...)
	return x, err
}

// Put writes this rank's factors of a pass, which ended with the backward of matrix i, to where
// they are sent from. Those of the iteration before have been used by then. A rank that only
// serves has none.
func (s *Syncer) Put(i, pass int) {
	if s.works {
		m := &s.matrices[i]
		m.Put(m.own, pass)
	}
}

// Parts are the matrices.
func (s *Syncer) Parts() []syncer.Part { return s.parts }

// Push sends this rank's factors to the servers, those of the last matrix first.
func (s *Syncer) Push() error {
	s.left = len(s.matrices)
	return s.push.Start()
}

// Pushed waits until one more matrix's factors are at its server, or those of this rank are
// on their way there, and rebuilds its gradients if this rank serves it.
func (s *Syncer) Pushed(ctx context.Context) (int, error) {
	k, err := s.push.Next(ctx)
	if err != nil {
		return 0, err
	}
	s.left--
	i := len(s.matrices) - 1 - k
	if m := &s.matrices[i]; m.serves {
		err = m.Gradients()
	}
	return i, err
}

// Pull starts to bring a matrix's parameters from its server.
func (s *Syncer) Pull(part int) error { return s.matrices[part].pull.Start() }

// Pulled waits for what Pull has started.
func (s *Syncer) Pulled(ctx context.Context) error {
	for i := range s.matrices {
		if err := s.matrices[i].pull.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Payload is that of factors and parameters.
func (s *Syncer) Payload() nbc.Payload { return s.payload }

// Close ends the requests and gives the factors' memory back, unless a push is still under
// way: then a server may be reading it.
func (s *Syncer) Close() {
	for i := range s.matrices {
		m := &s.matrices[i]
		for _, r := range []*nbc.Request{m.push, m.pull} {
			if r != nil {
				r.Close()
			}
		}
		if s.left == 0 {
			m.Free(m.comm)
		}
	}
	s.matrices = nil
}
