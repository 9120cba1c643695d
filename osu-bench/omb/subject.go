package omb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/tune"
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
	send, recv mem.Buffer // bytes each; recv of a gather, send of a scatter and both of an alltoall, of every rank; recv of a reduce-scatter, of this one's part
	counts     []int      // of the parts of a reduce-scatter
	onHost     *testCase  // with copies of the buffers in host memory, where they lie in a GPU's; otherwise nil
}

// all returns the bytes of a collective's whole buffer: those of a message, but where the size is each rank's.
func (c *testCase) all() int {
	if c.program.multiplies() {
		return c.bytes * c.size
	}
	return c.bytes
}

// given returns how many bytes this rank gives.
func (c *testCase) given() int {
	if c.program.exchanges() || c.program.deals() {
		return c.all()
	}
	return c.bytes
}

// result returns where in a collective's whole buffer this rank's result lies, in bytes.
func (c *testCase) result() (off, n int) {
	switch {
	case c.program.deals():
		return c.bytes * c.rank, c.bytes
	case !c.program.scatters():
		return 0, c.all()
	}
	for _, before := range c.counts[:c.rank] {
		off += before
	}
	return c.typ.Bytes(off), c.typ.Bytes(c.counts[c.rank])
}

// scattered returns the parts of a reduce-scatter, as OMB has them: where the ranks do not
// divide the elements, the first ranks have one more.
func scattered(count, size int) []int {
	counts := make([]int, size)
	for r := range counts {
		if counts[r] = count / size; r < count%size {
			counts[r]++
		}
	}
	return counts
}

// write writes what this rank gives to a call of the given root, if Options.Inputs asks for it: its cache lines are then where a
// program's are that has just computed it, and no other core has them.
func (c *testCase) write(root int) {
	if c.opts.Inputs == written {
		mem.Rewrite(arguments(c, root).Given(c.rank))
	}
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

// in returns the buffer that a reduction or a gather of this rank reads.
func (c *testCase) in() mem.Buffer {
	switch {
	case !c.opts.InPlace:
		return c.send
	case c.program.gathers():
		return c.recv.Slice(c.bytes*c.rank, c.bytes)
	}
	return c.recv
}

// parts are those of a collective of parts by the MPI library.
func (c *testCase) parts() mpi.Parts {
	if c.program.scatters() && c.count%c.size == 0 {
		return mpi.PartsOf(mpi.Parts{}, c.count, c.size, nil)
	}
	if c.program.scatters() {
		return mpi.PartsOf(mpi.Parts{}, c.count, c.size, c.counts)
	}
	return mpi.PartsOf(mpi.Parts{}, c.count*c.size, c.size, nil)
}

// sample is one timed execution on one rank, in microseconds. Without a
// computation only total counts.
type sample struct{ total, begin, compute, test, wait float64 }

// clock returns the time since the program started. As the C loop that calls the library does, it reads no date beside:
// time.Now takes twice as long, a tenth of a small call.
func clock() time.Duration { return time.Since(clockStart) }

var clockStart = time.Now()

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// specSubject is a collective of package collectives.
type specSubject struct {
	name     string
	spec     spec.Spec // no levels: what the communicator selects
	comm     *collectives.Comm
	buffers  selection.BufferKind
	meet     func(context.Context) error // before each execution
	requests map[int]*nbc.Request        // by root, where they are persistent
}

func (s *specSubject) label() string { return s.name }

// ran asks the communicator what it asks itself.
func (s *specSubject) ran(c *testCase) string {
	choice, err := s.comm.Select(s.query(c), s.spec)
	if err != nil {
		return err.Error() // the call itself fails for the same reason
	}
	return choice.Spec.String()
}

// query is what the communicator is asked in a case. A barrier is an allreduce of a byte.
func (s *specSubject) query(c *testCase) selection.Query {
	q := selection.Query{
		Collective: c.program.verb, Bytes: c.all(), Type: c.typ.Datatype, Buffers: s.buffers,
		Blocking: s.verb(c), Library: s.comm.HasLibrary(),
		Wraps: selection.Wraps(c.program.verb, c.typ.Datatype, mem.Sum),
	}
	if c.program.is(barrier) {
		q.Bytes, q.Type, q.Wraps = 1, mem.Uint8, false
	}
	return q
}

// predicted is what the cost model says of a case, in microseconds.
func (s *specSubject) predicted(c *testCase) float64 {
	q := s.query(c)
	choice, err := s.comm.Select(q, s.spec)
	if err != nil {
		return 0
	}
	return 1e6 * selection.Predict(q.Collective, q.Bytes, choice.Spec, s.comm.Layout(), s.comm.Selector().Model, q.Buffers)
}

// verb reports whether a case is a call of the blocking verb.
func (s *specSubject) verb(c *testCase) bool {
	return c.program.is(blocking|barrier) && !c.opts.Persistent
}

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

// options are those of every call: none where the communicator selects, as in
// most programs.
func (s *specSubject) options() []collectives.Option {
	if len(s.spec.Levels) == 0 {
		return nil
	}
	return []collectives.Option{collectives.With(s.spec)}
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
	if c.program.is(barrier) {
		return s.comm.Barrier(ctx, s.options()...)
	}
	return s.comm.Do(ctx, arguments(c, root), s.options()...)
}

// begin calls the verb that does not block.
func (s *specSubject) begin(c *testCase, root int) (*nbc.Request, error) {
	return s.comm.Start(arguments(c, root), s.options()...)
}

// create makes a persistent request.
func (s *specSubject) create(c *testCase, root int) (*nbc.Request, error) {
	return s.comm.Init(arguments(c, root), s.options()...)
}

// arguments are those of the collective.
func arguments(c *testCase, root int) collectives.Call {
	k := collectives.Call{Collective: c.program.verb, Send: c.in(), Recv: c.recv, Counts: c.counts, Datatype: c.typ.Datatype, Op: mem.Sum, Root: root}
	if k.Collective == schedule.Reduce {
		k.Recv = out(c, root)
	}
	return k
}

func (s *specSubject) run(ctx context.Context, c *testCase, iteration int, w *work, samples []sample) error {
	for i := range samples {
		c.write(c.root(iteration))
		if err := s.meet(ctx); err != nil {
			return err
		}
		if !s.verb(c) {
			if err := s.request(ctx, c, c.root(iteration), w, &samples[i]); err != nil {
				return err
			}
			continue
		}
		start := clock()
		if err := s.call(ctx, c, c.root(iteration)); err != nil {
			return err
		}
		samples[i].total = micros(clock() - start)
	}
	return nil
}

// request is a request started, or a persistent one, and waited for.
func (s *specSubject) request(ctx context.Context, c *testCase, root int, w *work, o *sample) (err error) {
	start := clock()
	r := s.requests[root]
	switch {
	case r == nil:
		if r, err = s.begin(c, root); err == nil {
			defer r.Close()
		}
	case c.program.is(blocking):
		err = r.Run(ctx)
		o.total = micros(clock() - start)
		return err
	default:
		err = r.Start()
	}
	if err != nil {
		return err
	}
	o.begin = micros(clock() - start)
	if w != nil {
		o.compute, o.test = w.do(func() error { _, err := r.Test(); return err })
	}
	waits := clock()
	err = r.Wait(ctx)
	end := clock()
	o.wait, o.total = micros(end-waits), micros(end-start)
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

// mpiSubject is a collective of the MPI library, executed and timed in C as a
// program in C does it: no other goroutine or engine is between. Under a computation
// the calls are made from Go.
type mpiSubject struct {
	m     *mpiWorld
	meets bool                        // the ranks meet by MPI_Barrier
	meet  func(context.Context) error // otherwise
}

func (s *mpiSubject) label() string             { return spec.Library }
func (s *mpiSubject) ran(*testCase) string      { return spec.Library }
func (s *mpiSubject) prepare(c *testCase) error { return nil }
func (s *mpiSubject) release()                  {}

func (s *mpiSubject) run(ctx context.Context, c *testCase, iteration int, w *work, out []sample) error {
	root := c.root(iteration)
	if s.meets && c.opts.Inputs != written {
		return s.m.engine.Do(ctx, func() error { return s.times(c, root, w, out) })
	}
	for i := range out {
		c.write(root)
		if !s.meets {
			if err := s.meet(ctx); err != nil {
				return err
			}
		}
		if err := s.m.engine.Do(ctx, func() error { return s.times(c, root, w, out[i:i+1]) }); err != nil {
			return err
		}
	}
	return nil
}

// times executes the collective len(out) times, on MPI's thread.
func (s *mpiSubject) times(c *testCase, root int, w *work, out []sample) (err error) {
	if w != nil {
		for i := range out {
			if s.meets {
				err = s.m.comm.Barrier()
			}
			if err == nil {
				err = s.under(c, root, w, &out[i])
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	t := s.m.comm.Time()
	t.Nonblocking, t.Barrier = c.program.is(nonblocking), s.meets
	took := make([]float64, len(out))
	send, recv := c.in().Pointer(), c.recv.Pointer()
	switch {
	case c.program.is(barrier):
		err = t.Meet(took)
	case c.program.verb == schedule.Reduce:
		err = t.Reduce(took, send, recv, c.count, c.typ.Datatype, mem.Sum, root)
	case c.program.verb == schedule.Bcast:
		err = t.Bcast(took, recv, c.count, c.typ.Datatype, root)
	case c.program.verb == schedule.Allgather:
		err = t.Allgather(took, send, recv, c.parts(), c.typ.Datatype)
	case c.program.verb == schedule.Gather:
		err = t.Gather(took, send, recv, c.parts(), c.typ.Datatype, root)
	case c.program.deals():
		err = t.Scatter(took, send, recv, c.parts(), c.typ.Datatype, root)
	case c.program.exchanges():
		err = t.Alltoall(took, send, recv, c.count*c.size, c.typ.Datatype)
	case c.program.scatters():
		err = t.ReduceScatter(took, send, recv, c.parts(), c.typ.Datatype, mem.Sum)
	default:
		err = t.Allreduce(took, send, recv, c.count, c.typ.Datatype, mem.Sum)
	}
	for i := range out {
		out[i].total = took[i]
	}
	return err
}

// under begins, computes with calls of Test in between, and waits.
func (s *mpiSubject) under(c *testCase, root int, w *work, o *sample) (err error) {
	send, recv := c.in().Pointer(), c.recv.Pointer()
	start := clock()
	switch c.program.verb {
	case schedule.Reduce:
		err = s.m.comm.Ireduce(s.m.reqs, 1, send, recv, c.count, c.typ.Datatype, mem.Sum, root)
	case schedule.Bcast:
		err = s.m.comm.Ibcast(s.m.reqs, 1, recv, c.count, c.typ.Datatype, root)
	case schedule.Allgather:
		err = s.m.comm.Iallgather(s.m.reqs, 1, send, recv, c.parts(), c.typ.Datatype)
	case schedule.Gather:
		err = s.m.comm.Igather(s.m.reqs, 1, send, recv, c.parts(), c.typ.Datatype, root)
	case schedule.Scatter:
		err = s.m.comm.Iscatter(s.m.reqs, 1, send, recv, c.parts(), c.typ.Datatype, root)
	case schedule.Alltoall:
		err = s.m.comm.Ialltoall(s.m.reqs, 1, send, recv, c.count*c.size, c.typ.Datatype)
	case schedule.ReduceScatter:
		err = s.m.comm.IreduceScatter(s.m.reqs, 1, send, recv, c.parts(), c.typ.Datatype, mem.Sum)
	default:
		err = s.m.comm.Iallreduce(s.m.reqs, 1, send, recv, c.count, c.typ.Datatype, mem.Sum)
	}
	if err != nil {
		return err
	}
	o.begin = micros(clock() - start)
	left := 1
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
	waits := clock()
	err = s.m.finish(left)
	end := clock()
	o.wait, o.total = micros(end-waits), micros(end-start)
	return err
}

// Candidates as an algorithm stands for every spec that a tuning run would measure for
// a size, but for the MPI library's own.
const Candidates = "candidates"

// newSubjects returns what the command line asks to measure, at every size.
func (r *runner) newSubjects() ([]subject, error) {
	names := r.opts.Algorithms
	if len(names) == 0 {
		names = []string{r.program.usual()}
	}
	var all []subject
	for _, name := range names {
		if name == Candidates && r.program.is(collective) {
			continue
		}
		s, err := r.newSubject(name)
		if err != nil {
			return nil, fmt.Errorf("%s: invalid --algorithm %q: %w", r.program.Name, name, err)
		}
		all = append(all, s)
	}
	switch {
	case len(all) == len(names):
	case len(all) == 0:
		return nil, fmt.Errorf("%s: invalid --algorithm %s: put an algorithm before it that the others are compared with, such as tuned", r.program.Name, Candidates)
	case r.opts.Format == string(report.Text):
		return nil, fmt.Errorf("%s: invalid --algorithm %s: its specs differ from size to size, which only --format csv and json show", r.program.Name, Candidates)
	}
	return all, nil
}

// subjectsOf returns what is measured in a case.
func (r *runner) subjectsOf(c *testCase) ([]subject, error) {
	if !slices.Contains(r.opts.Algorithms, Candidates) {
		return r.subjects, nil
	}
	kind, err := selection.ParseBufferKind(r.opts.Buffers)
	if err != nil {
		return nil, err
	}
	q := (&specSubject{comm: r.comm, buffers: kind}).query(c)
	q.Library = false
	all := slices.Clone(r.subjects)
	for _, sp := range tune.Specs(r.comm.Selector(), r.comm.Layout(), q, false) {
		name := sp.String()
		if !slices.ContainsFunc(all, func(s subject) bool { return s.label() == name }) {
			all = append(all, &specSubject{name: name, spec: sp, comm: r.comm, buffers: kind, meet: r.meet})
		}
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

func (r *runner) newSubject(name string) (subject, error) {
	p := r.program
	if name == spec.Library && r.opts.CUDA {
		return nil, errCUDA
	}
	if name == spec.Library && r.mpi == nil {
		return nil, errNoMPI
	}
	switch {
	case p.is(local):
		return newLocalSubject(name, r.mpi)
	case p.is(latency | bandwidth):
		return newPairSubject(name, r.comm, r.mpi)
	case name == spec.Library:
		return &mpiSubject{r.mpi, r.meetsMPI, r.meet}, nil
	}
	kind, err := selection.ParseBufferKind(r.opts.Buffers)
	if err != nil {
		return nil, err
	}
	s := &specSubject{name: name, comm: r.comm, buffers: kind, meet: r.meet}
	if name != spec.Tuned {
		s.spec, err = spec.Parse(name)
	}
	return s, err
}
