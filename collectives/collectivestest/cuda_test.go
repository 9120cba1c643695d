//go:build cuda && cgo && linux && (amd64 || arm64)

package collectivestest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scaffe/scaffe/collectives"
	ct "github.com/scaffe/scaffe/collectives/collectivestest"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/ranktest"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/faulty"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/nbc/lending"
	"github.com/scaffe/scaffe/nbc/staging"
	"github.com/scaffe/scaffe/schedule"
)

// library is the stand-in for the driver that the tests load.
var library string

func TestMain(m *testing.M) {
	ranktest.Rank(rank)
	os.Exit(cudatest.Main(m, &library, usual))
}

// rank is one of several processes that share a GPU.
func rank(p ranktest.Process) {
	err := launch.Run(context.Background(), launch.Options{CUDA: true, Engine: patient}, func(_ context.Context, c *collectives.Comm) error {
		host, err := large()
		if err == nil {
			err = ct.Run(c, append(some(c.Size(), 23), host...))
		}
		p.Report(c.Rank(), fmt.Sprintf("%v, %v", launch.PathsOf(c).Lines(), err))
		return err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// large are collectives on memory of the host that the ranks of a node share, whose sums, and messages that are passed on, are stored at several places.
func large() (cases []ct.Case, err error) {
	for _, text := range []string{"direct,chunk=4M", "scatter,chunk=4M", "linear,chunk=1M"} {
		s, e := spec.Parse(text)
		err = errors.Join(err, e)
		for _, v := range []schedule.Collective{schedule.Reduce, schedule.Bcast, schedule.Allreduce} {
			for _, count := range []int{20_000, 2_500_000} {
				if s.Serves(v) == nil {
					cases = append(cases, ct.Case{Spec: s, Collective: v, Datatype: mem.Float32, Op: mem.Sum, Count: count, Space: mem.Host})
				}
			}
		}
	}
	return cases, err
}

// Processes of a node read each other's memory of the GPU, with the results of the suite.
func TestCUDAProcesses(t *testing.T) {
	for _, path := range []string{"ipc", "staging"} {
		t.Setenv(launch.EnvCUDAPath, path)
		run := ranktest.Run(t, 3, path)
		for r, said := range run.Reports {
			if said != "[ranks 0-2: "+path+"], <nil>" {
				t.Errorf("%s, rank %d: %q\n%s", path, r, said, run.Printed)
			}
		}
	}
}

const usual = "delay=10 seed=1 fail=none broken=0 queues=0 hold=none"

// tell changes what the stand-in is like, until the test ends.
func tell(t *testing.T, text string) {
	t.Helper()
	d, err := cuda.Open(0) // loads the stand-in
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	cudatest.Change(t, library, text, usual)
}

// spoil makes something else of a rank's accelerator: that of its copies, or that of its sums.
type spoil func(a nbc.Accelerator, copies bool) nbc.Accelerator

func accelerator(d *cuda.Device) (nbc.Accelerator, error) {
	k, err := kernels.NewCPU()
	if err != nil {
		return nil, err
	}
	return device.CUDA(d, device.CPU(k))
}

// run runs f on n ranks of this process that share the GPU, over a transport with the faults of a plan; messages are staged.
func run(t *testing.T, n int, plan faulty.Plan, o nbc.Options, s spoil, f func(c *collectives.Comm) error) []error {
	t.Helper()
	return runBy(t, lending.Staging, n, plan, o, s, f)
}

// runBy is run with messages that go by a path.
func runBy(t *testing.T, path lending.Path, n int, plan faulty.Plan, o nbc.Options, s spoil, f func(c *collectives.Comm) error) []error {
	t.Helper()
	w := inproc.NewWorld(n, inproc.Options{Seed: plan.Seed})
	d, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	errs := ct.WorldWith(n, func(r int) (nbc.Transport, nbc.Device, error) {
		sums, err1 := accelerator(d)
		copies, err2 := accelerator(d)
		inner, err3 := w.Open(r)()
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, nil, err
		}
		if s != nil {
			sums, copies = s(sums, false), s(copies, true)
		}
		staged := staging.New(faulty.Wrap(inner, plan), copies, staging.Options{Ring: 64 << 10, Piece: 8 << 10})
		if path == lending.Staging {
			return staged, sums, nil
		}
		reads, err := accelerator(d)
		if err != nil {
			return nil, nil, err
		}
		if s != nil {
			reads = s(reads, true)
		}
		tr := lending.New(staged, reads)
		paths := lending.NewPaths(n)
		for i := range paths {
			for j := range paths[i] {
				paths[i][j] = path
			}
		}
		return tr, sums, tr.(interface{ SetPaths(lending.Paths) error }).SetPaths(paths)
	}, o, func(c *collectives.Comm, _ *nbc.Engine) error { return f(c) })
	if err := cudatest.Tell(library, usual); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	return errs
}

// some returns every nth case of the suite, in device memory.
func some(size, nth int) (cases []ct.Case) {
	for i, k := range ct.Some(size) {
		if i%nth == 0 {
			k.Space = mem.CUDA
			cases = append(cases, k)
		}
	}
	return cases
}

var patient = nbc.Options{Deadline: 10 * time.Minute}

// Collectives on device memory have the results of the suite: every algorithm, collective, type and op, in place and
// not, on ranks that share a GPU, over a transport that delays and reorders, and where all streams share one work queue. So do those on host
// memory of the same engines.
func TestCUDA(t *testing.T) {
	for _, c := range []struct {
		ranks, nth, queues int
		plan               faulty.Plan
	}{
		{1, 3, 0, faulty.Plan{}},
		{2, 5, 0, faulty.Plan{}},
		{3, 9, 0, faulty.Plan{Seed: 1, Delay: 3, Reorder: true}},
		{3, 40, 1, faulty.Plan{Seed: 3, Delay: 3, Reorder: true}},
		{5, 31, 0, faulty.Plan{Seed: 2, Delay: 2}},
	} {
		for _, path := range []lending.Path{lending.Staging, lending.Pointer} {
			cases := some(c.ranks, c.nth)
			for i := range cases {
				if i%10 == 9 {
					cases[i].Space = mem.Host
				}
			}
			t.Run(fmt.Sprintf("%v, %d ranks, %d cases, queues=%d", path, c.ranks, len(cases), c.queues), func(t *testing.T) {
				if c.queues > 0 {
					tell(t, fmt.Sprintf("queues=%d", c.queues))
				}
				if err := errors.Join(runBy(t, path, c.ranks, c.plan, patient, nil, func(c *collectives.Comm) error { return ct.Run(c, cases) })...); err != nil {
					t.Errorf("%v: %v", c.plan, err)
				}
			})
		}
	}
}

// Buffers of some megabytes, whose chunks fill the ring and are cut.
func TestCUDALarge(t *testing.T) {
	var cases []ct.Case
	for _, text := range []string{"chain,chunk=64K", "binomial,chunk=256K", "ring,chunk=64K", "direct,chunk=1M"} {
		s, err := spec.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range ct.Collectives(s) {
			if !v.Parts() && v != schedule.Alltoall {
				cases = append(cases, ct.Case{Spec: s, Collective: v, Datatype: mem.Float32, Op: mem.Sum, Count: 1<<18 + 5, Space: mem.CUDA})
			}
		}
	}
	if err := errors.Join(run(t, 3, faulty.Plan{}, patient, nil, func(c *collectives.Comm) error { return ct.Run(c, cases) })...); err != nil {
		t.Error(err)
	}
}

// hasty says that copies out of the GPU's memory, or additions, have been made when they have only begun.
type hasty struct {
	nbc.Accelerator
	copies bool
	said   map[nbc.Token]int // how often of each
}

func (h hasty) Copy(tok nbc.Token, dst, src mem.Buffer) (bool, error) {
	done, err := h.Accelerator.Copy(tok, dst, src)
	return done || h.copies && src.Space() == mem.CUDA && h.say(tok, err), err
}

func (h hasty) Reduce(tok nbc.Token, dt mem.Datatype, op mem.Op, dst, a, b mem.Buffer) (bool, error) {
	done, err := h.Accelerator.Reduce(tok, dt, op, dst, a, b)
	return done || !h.copies && h.say(tok, err), err
}

func (h hasty) say(tok nbc.Token, err error) bool {
	if err == nil {
		h.said[tok]++
	}
	return err == nil
}

// Poll reports what has not been said.
func (h hasty) Poll(done []nbc.Completion) (int, error) {
	n, err := h.Accelerator.Poll(done)
	kept := done[:0]
	for _, c := range done[:n] {
		if h.said[c.Token] > 0 {
			h.said[c.Token]--
			continue
		}
		kept = append(kept, c)
	}
	return len(kept), err
}

// Missing waits give other sums, which the suite sees, or leave the GPU at work on memory that has been freed, which the stand-in does.
func TestCUDAMissingWaitsAreSeen(t *testing.T) {
	for _, c := range []struct {
		copies bool
		path   lending.Path
	}{{true, lending.Staging}, {false, lending.Staging}, {true, lending.Pointer}, {false, lending.Pointer}} {
		copies := c.copies
		t.Run(fmt.Sprintf("%v, copies %v", c.path, copies), func(t *testing.T) {
			tell(t, "delay=300")
			errs := runBy(t, c.path, 3, faulty.Plan{}, nbc.Options{Deadline: 10 * time.Second}, func(a nbc.Accelerator, ofCopies bool) nbc.Accelerator {
				if ofCopies != copies {
					return a
				}
				return hasty{a, copies, map[nbc.Token]int{}}
			}, func(c *collectives.Comm) error {
				err := ct.Run(c, some(3, 61))
				return errors.Join(err, c.Barrier(context.Background()))
			})
			err := errors.Join(errs...)
			if !regexp.MustCompile("has the bytes|outside of it was written|an illegal memory access").MatchString(fmt.Sprint(err)) {
				t.Errorf("nothing is seen of the missing wait: %v", err)
			}
		})
	}
}

// counting notes how many buffers each addition has.
type counting struct {
	nbc.Accelerator
	*operands
}

type operands struct {
	mu  sync.Mutex
	all []int
}

func (c counting) ReduceAll(tok nbc.Token, dt mem.Datatype, op mem.Op, dst mem.Buffer, from []mem.Buffer) (bool, error) {
	c.mu.Lock()
	c.all = append(c.all, len(from))
	c.mu.Unlock()
	return c.Accelerator.(nbc.Folder).ReduceAll(tok, dt, op, dst, from)
}

func (o *operands) seen() []int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.all)
}

// await waits until so many buffers, or more, are added at once.
func (o *operands) await(n int) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if all := o.seen(); len(all) > 0 && slices.Max(all) >= n {
			return
		}
	}
}

// While the GPU adds something, what has come of the next chunk waits for the rest of it, and one kernel adds all.
func TestCUDAAddsAllAtOnceBehindAnotherKernel(t *testing.T) {
	const ranks, chunk, chunks = 4, 4 << 10, 2
	linear, err := spec.Parse("linear,chunk=4K")
	if err != nil {
		t.Fatal(err)
	}
	tell(t, "hold=reduce_f32_sum")
	var given operands
	first := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(first) })
	errs := runBy(t, lending.Pointer, ranks, faulty.Plan{}, nbc.Options{}, func(a nbc.Accelerator, copies bool) nbc.Accelerator {
		if copies {
			return a
		}
		return counting{a, &given}
	}, func(c *collectives.Comm) error {
		defer goOn() // whoever fails
		b, err := c.AllocIn(mem.CUDA, chunk*chunks)
		if err != nil {
			return err
		}
		if c.Rank() > 1 { // after the message of rank 1 has been added, for which none of them is waited for long
			<-first
		}
		r, err := c.Ireduce(b, b, mem.Float32, mem.Sum, 0, collectives.With(linear))
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			given.await(2)
			time.Sleep(50 * time.Millisecond) // in which the other chunk of rank 1 has come
			if all := given.seen(); !slices.Equal(all, []int{2}) {
				err = fmt.Errorf("kernels of %v operands were begun", all)
			}
			goOn()
			given.await(ranks)
			err = errors.Join(err, cudatest.Tell(library, "hold=none"))
		}
		return errors.Join(err, r.Wait(context.Background()))
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if all := given.seen(); !slices.Equal(all, []int{2, 4, 3}) {
		t.Errorf("kernels of %v operands: want two of the first chunk, all four of the other, and the rest of the first", all)
	}
}

// What cannot be is an error, on all ranks alike.
func TestCUDARefuses(t *testing.T) {
	library, err := spec.Parse(spec.Library)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		call func(ctx context.Context, c *collectives.Comm, host, device mem.Buffer) error
		says string
	}{
		"the MPI library": {func(ctx context.Context, c *collectives.Comm, _, device mem.Buffer) error {
			return c.Allreduce(ctx, device, device, mem.Float32, mem.Sum, collectives.With(library))
		}, "the MPI library's own collectives are not used on cuda memory"},
		"two memories on a rank": {func(ctx context.Context, c *collectives.Comm, host, device mem.Buffer) error {
			return c.Allreduce(ctx, device, host, mem.Float32, mem.Sum)
		}, "the receive buffer lies in host memory, and the other one in cuda memory"},
		"two memories on two ranks": {func(ctx context.Context, c *collectives.Comm, host, device mem.Buffer) error {
			if c.Rank() == 0 {
				device = host
			}
			return c.Allreduce(ctx, device, device, mem.Float32, mem.Sum)
		}, "1000 elements in cuda memory"},
	} {
		errs := run(t, 2, faulty.Plan{}, nbc.Options{}, nil, func(comm *collectives.Comm) error {
			host := mem.Alloc(4000)
			defer host.Free()
			device, err := comm.AllocIn(mem.CUDA, 4000)
			if err != nil {
				return err
			}
			return c.call(context.Background(), comm, host, device)
		})
		for r, err := range errs {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s, rank %d: %v", name, r, err)
			}
		}
	}
}

// A GPU that fails under way ends the collective on all ranks.
func TestCUDAFails(t *testing.T) {
	errs := run(t, 3, faulty.Plan{}, nbc.Options{}, nil, func(c *collectives.Comm) error {
		b, err := c.AllocIn(mem.CUDA, 1<<20)
		if err == nil {
			err = c.Barrier(context.Background())
		}
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			err = cudatest.Tell(library, "broken=719")
		}
		for err == nil {
			err = c.Allreduce(context.Background(), b, b, mem.Float32, mem.Sum)
		}
		return err
	})
	for r, err := range errs {
		if abort := (*nbc.AbortError)(nil); !errors.As(err, &abort) && !strings.Contains(err.Error(), "cuda:0 (stand-in 0)") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
