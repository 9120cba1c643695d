package omb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/host"
	"github.com/scaffe/scaffe/internal/output"
	"github.com/scaffe/scaffe/internal/version"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/nbc"
)

// Main is the main function of a program: it ends the process, with status 2
// for a mistake in the command line and 1 for other errors.
func Main(name string) {
	launch.Main()
	if mpi.StdoutClosed() {
		output.Stdout.Break(errors.New("it is closed"))
	}
	p, err := Find(name)
	if err == nil {
		err = Run(context.Background(), p, os.Args[1:], output.Stdout, os.Stderr)
	}
	if err == nil {
		err = output.Stdout.Err()
	}
	if err == nil {
		return
	}
	if !errors.Is(err, launch.ErrReported) {
		fmt.Fprintln(os.Stderr, err)
	}
	if usage := (*UsageError)(nil); errors.As(err, &usage) {
		fmt.Fprintf(os.Stderr, "run \"%s -h\" for the options\n", name)
		os.Exit(2)
	}
	os.Exit(1)
}

// Run runs a program on all ranks of this process: rows go to stdout, all else
// to stderr. The error is the one message for people, or launch.ErrReported.
func Run(ctx context.Context, p Program, args []string, stdout, stderr io.Writer) error {
	o, err := Parse(p, args)
	if err == nil && !o.Help && !o.Version {
		return run(ctx, p, o, stdout, stderr)
	}
	// All ranks know, so one of them says it: no rank waits for another.
	switch {
	case mpi.DetectLauncher().Rank > 0:
		return nil
	case err == nil && o.Help:
		fmt.Fprint(stdout, p.help())
	case err == nil:
		fmt.Fprintf(stdout, "%s\n# scaffe %s\n", p.title(), version.String())
	}
	return err
}

func run(ctx context.Context, p Program, o *Options, stdout, stderr io.Writer) error {
	buffers, err := selection.ParseBufferKind(o.Buffers)
	if err != nil {
		return err
	}
	lo := launch.Options{
		Local: o.Local, CUDA: o.CUDA, Log: stderr, Engine: nbc.Options{Deadline: o.Deadline},
		Collectives: collectives.Options{
			Tuned: slices.Contains(o.Algorithms, spec.Tuned), Table: o.Table, Measure: true, Buffers: buffers,
		},
	}
	return launch.Run(ctx, lo, func(ctx context.Context, comm *collectives.Comm) error {
		if comm.Rank() != 0 {
			return rankRun(ctx, comm, p, o, io.Discard, io.Discard)
		}
		return rankRun(ctx, comm, p, o, stdout, stderr)
	})
}

// rankRun is one rank's run.
func rankRun(ctx context.Context, comm *collectives.Comm, p Program, o *Options, stdout, stderr io.Writer) error {
	if err := comm.Agree(ctx, fits(p, o, comm.Size())); err != nil {
		return err
	}
	r, err := newRunner(ctx, comm, p, *o, stdout, stderr)
	if err != nil {
		return err
	}
	err = r.all(ctx)
	if agreed := (*collectives.AgreedError)(nil); err != nil && !errors.As(err, &agreed) {
		return err // on this rank alone, maybe: the others do not come to the end
	}
	return errors.Join(err, r.close(ctx))
}

// fits says what a program cannot do with a number of ranks.
func fits(p Program, o *Options, size int) error {
	switch {
	case size < p.leastRanks():
		return fmt.Errorf("%s: this test needs at least 2 ranks: run it as mpirun -np 2 %s, or pass --local 2", p.Name, p.Name)
	case p.mostRanks() > 0 && size > p.mostRanks():
		return fmt.Errorf("%s: this test needs exactly 2 ranks (got %d)", p.Name, size)
	case o.Root >= size:
		return fmt.Errorf("%s: invalid -k fixed:%d: the root must be less than the number of ranks (%d)", p.Name, o.Root, size)
	}
	return nil
}

// runner is one rank's measuring.
type runner struct {
	program  Program
	opts     Options
	comm     *collectives.Comm
	mpi      *mpiWorld // nil without MPI
	meetsMPI bool      // the barrier before a timed call is MPI's
	subjects []subject
	writer   writer
	send     mem.Buffer
	recv     mem.Buffer
	// What is checked of buffers in a GPU's memory: copies of them.
	sendCopy, recvCopy mem.Buffer
}

func newRunner(ctx context.Context, comm *collectives.Comm, p Program, o Options, stdout, stderr io.Writer) (*runner, error) {
	r := &runner{program: p, opts: o, comm: comm}
	most := o.MemLimit
	if p.multiplies() { // as in OMB, all parts together must not be more
		most /= comm.Size()
	}
	if o.Max > most && !p.is(latency|bandwidth) {
		r.opts.Max = most
		fmt.Fprintf(stderr, "%s: messages are limited to %d bytes; raise the limit with -M\n", p.Name, most)
	}
	m, err := openMPI(comm)
	if err != nil && !errors.Is(err, errNoMPI) {
		return nil, err
	}
	if err == nil {
		r.mpi = m
	}
	r.meetsMPI, err = r.meets()
	if err == nil {
		r.subjects, err = r.newSubjects()
	}
	if err == nil {
		err = r.allocate()
	}
	if err = comm.Agree(ctx, err); err != nil {
		return nil, err
	}
	r.writer = newWriter(r, stdout)
	return r, nil
}

// meets decides on the barrier. Ranks that share cores wait better in
// scaffe's, which sleeps, than in one that spins; and after MPI's a loop in C begins its
// call at once, while others still leave the barrier: that is not what is to be compared.
func (r *runner) meets() (bool, error) {
	switch {
	case r.opts.Barrier == "mpi" && r.mpi == nil:
		return false, fmt.Errorf("%s: invalid --barrier mpi: %w", r.program.Name, errNoMPI)
	case r.opts.Barrier == "mpi":
		return true, nil
	case r.opts.Barrier == "scaffe" || r.mpi == nil:
		return false, nil
	}
	return coreEach(r.comm.Nodes(), max(1, int(r.comm.Selector().Model.Hosted)), host.Cores()), nil
}

// coreEach reports whether every rank has a core to itself, where nodes says on which
// node each rank is, hosted how many nodes share a machine's cores, as those of a lab do,
// and cores how many a machine has.
func coreEach(nodes []int, hosted, cores int) bool {
	of := map[int]int{}
	for _, node := range nodes {
		of[node]++
	}
	ranks := slices.Sorted(maps.Values(of))
	shared := ranks[max(0, len(ranks)-hosted):] // the fullest nodes, were they on one machine
	sum := 0
	for _, n := range shared {
		sum += n
	}
	return sum <= cores
}

// allocate makes the two buffers, on pages that are there.
func (r *runner) allocate() (err error) {
	alloc := r.comm.Alloc
	switch {
	case r.opts.CUDA:
		alloc = func(n int) (mem.Buffer, error) { return r.comm.AllocIn(mem.CUDA, n) }
	case r.opts.Buffers == selection.Unregistered.String():
		alloc = mem.TryMalloc // as OMB's
	}
	n := max(r.opts.Max, 1)
	given, got := n, n
	if r.program.exchanges() || r.program.deals() {
		given *= r.comm.Size()
	}
	if r.send, err = alloc(given); err != nil {
		return fmt.Errorf("%s: %d bytes: %w", r.program.Name, given, err)
	}
	if r.program.exchanges() || r.program.gathers() {
		got *= r.comm.Size()
	}
	if r.recv, err = alloc(got); err != nil {
		return fmt.Errorf("%s: %d bytes: %w", r.program.Name, got, err)
	}
	if r.opts.CUDA {
		return r.allocateCopies()
	}
	for _, b := range []mem.Buffer{r.send, r.recv} {
		bytes := mem.Bytes(b)
		for i := range bytes {
			bytes[i] = 1
		}
	}
	return nil
}

// close gives everything back. All ranks call it together.
func (r *runner) close(ctx context.Context) error {
	if err := r.comm.Agree(ctx, nil); err != nil {
		return err // operations may be under way on the buffers
	}
	if r.mpi != nil {
		if err := r.mpi.close(); err != nil {
			return err
		}
	}
	free := r.comm.Free
	if r.opts.Buffers == selection.Unregistered.String() {
		free = mem.Buffer.Free
	}
	free(r.send)
	free(r.recv)
	r.sendCopy.Free()
	r.recvCopy.Free()
	return nil
}

// all measures every type and size.
func (r *runner) all(ctx context.Context) error {
	for _, t := range r.opts.Types {
		cases := r.cases(t)
		ran := make([]servedBy, len(cases))
		for i, c := range cases {
			ran[i] = servedBy{c.bytes, r.subjects[0].ran(c)}
		}
		r.writer.begin(t, ran)
		for _, c := range cases {
			if err := r.one(ctx, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// cases returns the sizes of a type.
func (r *runner) cases(t Type) []*testCase {
	if r.program.is(barrier) {
		return []*testCase{{program: r.program, opts: &r.opts, typ: t, rank: r.comm.Rank(), size: r.comm.Size()}}
	}
	var cases []*testCase
	for bytes := r.opts.Min; bytes <= r.opts.Max; bytes = max(1, r.opts.Factor*bytes) {
		count := bytes / t.Size()
		if count == 0 && !(bytes == 0 && r.program.is(latency)) {
			continue // as OMB does
		}
		c := &testCase{
			program: r.program, opts: &r.opts, typ: t, bytes: t.Bytes(count), count: count,
			rank: r.comm.Rank(), size: r.comm.Size(),
		}
		if r.program.scatters() {
			c.counts = scattered(c.count, c.size)
		}
		_, result := c.result()
		c.send, c.recv = r.send.Slice(0, c.given()), r.recv.Slice(0, result)
		if r.opts.CUDA {
			c.onHost = c.copy(r.sendCopy.Slice(0, c.given()), r.recvCopy.Slice(0, result))
		}
		cases = append(cases, c)
	}
	return cases
}

// one measures a case and writes its rows.
func (r *runner) one(ctx context.Context, c *testCase) error {
	rows, err := r.measure(ctx, c)
	if err != nil {
		return err
	}
	r.writer.rows(rows)
	for _, row := range rows {
		if row.Wrong > 0 {
			r.writer.failed(row)
			return r.comm.Agree(ctx, &errInvalid{r.program.Name, row.Algorithm, row.Size, row.Wrong})
		}
	}
	return nil
}
