package omb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
)

// subject is something that is measured: a way to do what the program does.
type subject interface {
	// label is what the command line calls it, ran what serves a case.
	label() string
	ran(c *testCase) string
	// prepare makes ready for a case, release ends that.
	prepare(c *testCase) error
	release()
	// run does it len(out) times, back to back, and times every one. Under w
	// there is a computation in between.
	run(ctx context.Context, c *testCase, iteration int, w *work, out []sample) error
}

// testCase is one size and type of a run, the same for all subjects.
type testCase struct {
	program    Program
	opts       *Options
	typ        Type
	bytes      int // of one message
	count      int // elements
	rank, size int
	send, recv mem.Buffer // bytes each
}

// root returns the root of an iteration.
func (c *testCase) root(iteration int) int {
	if c.opts.Root == Rotate {
		return iteration % c.size
	}
	return c.opts.Root
}

// roots returns all roots that iterations have.
func (c *testCase) roots() []int {
	if c.opts.Root != Rotate || !c.program.is(rooted) {
		return []int{c.root(0)}
	}
	roots := make([]int, c.size)
	for i := range roots {
		roots[i] = i
	}
	return roots
}

// in returns the buffer that a reduction of this rank reads.
func (c *testCase) in() mem.Buffer {
	if c.opts.InPlace {
		return c.recv
	}
	return c.send
}

// sample is one timed execution on one rank, in microseconds. Without a
// computation only total counts.
type sample struct{ total, begin, compute, test, wait float64 }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// specSubject is a collective of package collectives.
type specSubject struct {
	name     string
	spec     spec.Spec // no levels: what the communicator selects
	comm     *collectives.Comm
	buffers  selection.BufferKind
	requests map[int]*nbc.Request // by root, where they are persistent
}

func (s *specSubject) label() string { return s.name }

// ran asks the communicator what it asks itself.
func (s *specSubject) ran(c *testCase) string {
	choice, err := s.comm.Select(selection.Query{
		Collective: c.program.verb, Bytes: c.bytes, Type: c.typ.Datatype, Buffers: s.buffers,
		Blocking: s.verb(c), Library: s.comm.Engine().HasLibrary(),
	}, s.spec)
	if err != nil {
		return err.Error() // the call itself fails for the same reason
	}
	return choice.Spec.String()
}

// verb reports whether a case is a call of the blocking verb.
func (s *specSubject) verb(c *testCase) bool { return c.program.is(blocking) && !c.opts.Persistent }

func (s *specSubject) prepare(c *testCase) error {
	s.requests = map[int]*nbc.Request{}
	if !c.opts.Persistent {
		return nil
	}
	for _, root := range c.roots() {
		r, err := s.create(c, root)
		if err != nil {
			return err
		}
		s.requests[root] = r
	}
	return nil
}

func (s *specSubject) release() {
	for _, r := range s.requests {
		r.Close()
	}
	s.requests = nil
}

// options are those of every call.
func (s *specSubject) options() []collectives.Option {
	return []collectives.Option{collectives.With(s.spec), collectives.Buffers(s.buffers)}
}

// out is where a reduction's result goes: nowhere on ranks but the root.
func out(c *testCase, root int) mem.Buffer {
	if c.rank == root {
		return c.recv
	}
	return mem.Buffer{}
}

// call calls the blocking verb.
func (s *specSubject) call(ctx context.Context, c *testCase, root int) error {
	switch c.program.verb {
	case schedule.Reduce:
		return s.comm.Reduce(ctx, c.in(), out(c, root), c.typ.Datatype, mem.Sum, root, s.options()...)
	case schedule.Bcast:
		return s.comm.Bcast(ctx, c.recv, c.typ.Datatype, root, s.options()...)
	}
	return s.comm.Allreduce(ctx, c.in(), c.recv, c.typ.Datatype, mem.Sum, s.options()...)
}

// create makes the request of a collective.
func (s *specSubject) create(c *testCase, root int) (*nbc.Request, error) {
	switch c.program.verb {
	case schedule.Reduce:
		return s.comm.ReduceInit(c.in(), out(c, root), c.typ.Datatype, mem.Sum, root, s.options()...)
	case schedule.Bcast:
		return s.comm.BcastInit(c.recv, c.typ.Datatype, root, s.options()...)
	}
	return s.comm.AllreduceInit(c.in(), c.recv, c.typ.Datatype, mem.Sum, s.options()...)
}

func (s *specSubject) run(ctx context.Context, c *testCase, iteration int, w *work, samples []sample) error {
	for i := range samples {
		if !s.verb(c) {
			if err := s.request(ctx, c, c.root(iteration), w, &samples[i]); err != nil {
				return err
			}
			continue
		}
		start := time.Now()
		if err := s.call(ctx, c, c.root(iteration)); err != nil {
			return err
		}
		samples[i].total = micros(time.Since(start))
	}
	return nil
}

// request is a request made, started and waited for, or a persistent one
// started and waited for.
func (s *specSubject) request(ctx context.Context, c *testCase, root int, w *work, o *sample) error {
	start := time.Now()
	r, kept := s.requests[root]
	if !kept {
		var err error
		if r, err = s.create(c, root); err != nil {
			return err
		}
		defer r.Close()
	}
	if c.program.is(blocking) {
		err := r.Run(ctx)
		o.total = micros(time.Since(start))
		return err
	}
	if err := r.Start(); err != nil {
		return err
	}
	o.begin = micros(time.Since(start))
	if w != nil {
		o.compute, o.test = w.do(func() error { _, err := r.Test(); return err })
	}
	waits := time.Now()
	err := r.Wait(ctx)
	end := time.Now()
	o.wait, o.total = micros(end.Sub(waits)), micros(end.Sub(start))
	return err
}

// mpiWorld is the MPI library below an engine, for calls that a program of
// its own would make.
type mpiWorld struct {
	engine *nbc.Engine
	comm   *mpi.Comm
	reqs   *mpi.Requests
	info   string
}

// errNoMPI says that there is no MPI library to compare with.
var errNoMPI = errors.New("no MPI library to measure: build with MPI and run under mpirun, without --local")

// openMPI finds the MPI library below comm. All ranks call it together.
func openMPI(comm *collectives.Comm) (*mpiWorld, error) {
	e := comm.Engine()
	w := worldBelow(e.Transport())
	if w == nil {
		return nil, errNoMPI
	}
	m := &mpiWorld{engine: e}
	return m, e.Do(context.Background(), func() (err error) {
		m.info = w.Library().String()
		m.comm, err = w.Comm().Dup()
		m.reqs = w.NewRequests()
		return err
	})
}

// worldBelow returns the MPI world that a transport works over, nil for none.
func worldBelow(t nbc.Transport) *mpi.World {
	switch t := t.(type) {
	case interface{ World() *mpi.World }:
		return t.World()
	case interface{ Inner() nbc.Transport }:
		return worldBelow(t.Inner())
	}
	return nil
}

// close gives the communicator back. All ranks call it together.
func (m *mpiWorld) close() error {
	return m.engine.Do(context.Background(), func() error {
		m.reqs.Free()
		return m.comm.Free()
	})
}

// finish waits until all requests under way have ended, as MPI_Waitall does:
// without a pause.
func (m *mpiWorld) finish(n int) error {
	var done [64]mpi.Done
	for n > 0 {
		k, err := m.reqs.Testsome(done[:])
		for _, d := range done[:k] {
			if d.Err != nil {
				return d.Err
			}
		}
		if err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// mpiSubject is a collective of the MPI library, called on MPI's thread as a
// program in C calls it: no other goroutine or engine is between.
type mpiSubject struct {
	m     *mpiWorld
	meets bool // the ranks meet by MPI_Barrier first
}

func (s *mpiSubject) label() string             { return spec.Library }
func (s *mpiSubject) ran(*testCase) string      { return spec.Library }
func (s *mpiSubject) prepare(c *testCase) error { return nil }
func (s *mpiSubject) release()                  {}

func (s *mpiSubject) run(ctx context.Context, c *testCase, iteration int, w *work, out []sample) error {
	return s.m.engine.Do(ctx, func() error {
		for i := range out {
			if s.meets {
				if err := s.m.comm.Barrier(); err != nil {
					return err
				}
			}
			call := s.blocking
			if c.program.is(nonblocking) {
				call = s.nonblocking
			}
			if err := call(c, c.root(iteration), w, &out[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *mpiSubject) blocking(c *testCase, root int, _ *work, o *sample) (err error) {
	send, recv := c.in().Pointer(), c.recv.Pointer()
	start := time.Now()
	switch c.program.verb {
	case schedule.Reduce:
		err = s.m.comm.Reduce(send, recv, c.count, c.typ.Datatype, mem.Sum, root)
	case schedule.Bcast:
		err = s.m.comm.Bcast(recv, c.count, c.typ.Datatype, root)
	default:
		err = s.m.comm.Allreduce(send, recv, c.count, c.typ.Datatype, mem.Sum)
	}
	o.total = micros(time.Since(start))
	return err
}

// nonblocking begins, computes with calls of Test in between, and waits.
func (s *mpiSubject) nonblocking(c *testCase, root int, w *work, o *sample) (err error) {
	send, recv := c.in().Pointer(), c.recv.Pointer()
	start := time.Now()
	switch c.program.verb {
	case schedule.Reduce:
		err = s.m.comm.Ireduce(s.m.reqs, 1, send, recv, c.count, c.typ.Datatype, mem.Sum, root)
	case schedule.Bcast:
		err = s.m.comm.Ibcast(s.m.reqs, 1, recv, c.count, c.typ.Datatype, root)
	default:
		err = s.m.comm.Iallreduce(s.m.reqs, 1, send, recv, c.count, c.typ.Datatype, mem.Sum)
	}
	if err != nil {
		return err
	}
	o.begin = micros(time.Since(start))
	left := 1
	if w != nil {
		o.compute, o.test = w.do(func() error {
			if left == 0 {
				return nil
			}
			var done [1]mpi.Done
			n, err := s.m.reqs.Testsome(done[:])
			left -= n
			return errors.Join(err, done[0].Err)
		})
		if w.err != nil {
			return w.err
		}
	}
	waits := time.Now()
	err = s.m.finish(left)
	end := time.Now()
	o.wait, o.total = micros(end.Sub(waits)), micros(end.Sub(start))
	return err
}

// subjects returns what the command line asks to measure. m may be nil.
func subjects(p Program, o *Options, comm *collectives.Comm, m *mpiWorld, meets bool) ([]subject, error) {
	names := o.Algorithms
	if len(names) == 0 {
		names = []string{p.usual()}
	}
	var all []subject
	for _, name := range names {
		s, err := newSubject(p, o, name, comm, m, meets)
		if err != nil {
			return nil, fmt.Errorf("%s: invalid --algorithm %q: %w", p.Name, name, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// usual is what a program measures where it is not told.
func (p Program) usual() string {
	switch {
	case p.is(latency | bandwidth):
		return "scaffe"
	case p.is(local):
		return "best"
	}
	return spec.Tuned
}

func newSubject(p Program, o *Options, name string, comm *collectives.Comm, m *mpiWorld, meets bool) (subject, error) {
	if name == spec.Library && m == nil {
		return nil, errNoMPI
	}
	kind, err := selection.ParseBufferKind(o.Buffers)
	if err != nil {
		return nil, err
	}
	switch {
	case p.is(local):
		return newLocalSubject(name, m)
	case p.is(latency | bandwidth):
		return newPairSubject(name, comm, m)
	case name == spec.Library:
		return &mpiSubject{m, meets}, nil
	case name == spec.Tuned:
		return &specSubject{name: name, comm: comm, buffers: kind}, nil
	}
	spec, err := spec.Parse(name)
	if err != nil {
		return nil, err
	}
	return &specSubject{name: name, spec: spec, comm: comm, buffers: kind}, nil
}
