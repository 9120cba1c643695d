package collectives_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/collectives"
	ct "github.com/scaffe/scaffe/collectives/collectivestest"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/ranktest"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/overmpi"
	"github.com/scaffe/scaffe/nbc/shm"
)

const (
	mpiRanks = 4
	mpiOdd   = 2 // the rank that does otherwise
)

func TestMain(m *testing.M) { ranktest.Main(m, stuckRank) }

// stuckRank is a rank of these tests: over which transport, and what goes wrong. It
// reports how it ended and waits until the others have.
func stuckRank(p ranktest.Process) {
	transport, wrong := p.Words[0], p.Words[1]
	k, err := kernels.NewCPU()
	if err != nil {
		panic(err)
	}
	bound := 0
	if _, text, found := strings.Cut(transport, ":"); found {
		if _, err := fmt.Sscan(text, &bound); err != nil {
			panic(err)
		}
	}
	open := overmpi.Open(overmpi.Options{CloseWait: 5 * time.Second, TagBound: bound})
	if strings.HasPrefix(wrong, "library") {
		open = onTwoNodes(open)
	}
	if transport == "shm" {
		open = shm.Over(open, shm.Options{})
	}
	deadline := 10 * time.Second // time enough for those that live to say so
	if wrong == "nothing" || wrong == "identities" || wrong == "beside" {
		deadline = 10 * time.Minute
	}
	e, err := nbc.Start(open, device.CPU(k), nbc.Options{Deadline: deadline, MaxDeadline: deadline})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	err = stuckCalls(e, wrong, func() { _ = os.WriteFile(stoppedFile(p.Folder), fmt.Append(nil, os.Getpid()), 0o666) })
	if err == nil {
		p.Report(e.Rank(), fmt.Sprintf("%d cases on %d ranks", len(ct.Some(e.Size())), e.Size()))
		if err := e.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	p.Report(e.Rank(), fmt.Sprint(err))
	for r := range mpiRanks {
		if r != mpiOdd || wrong != "stop" {
			p.Await(r)
		}
	}
	_ = e.Close()
	os.Exit(1)
}

// stuckCalls is what the ranks call, some of which goes wrong.
func stuckCalls(e *nbc.Engine, wrong string, stopped func()) error {
	ctx := context.Background()
	c := collectives.World(e, collectives.Options{})
	switch wrong {
	case "identities":
		return identities(ctx, c, 20_000)
	case "nothing":
		return ct.Run(c, ct.Some(c.Size()))
	case "beside":
		return libraryBeside(ctx, c)
	case "library", "library collective":
		return libraryStuck(ctx, c, e, wrong)
	case "library blocking":
		return libraryBlocks(ctx, c, e)
	}
	s, err := spec.Parse("chain,chunk=64K")
	if err != nil {
		return err
	}
	buf := mem.Alloc(1 << 20)
	op := mem.Sum
	if err := c.Allreduce(ctx, buf, buf, mem.Float32, op, collectives.With(s)); err != nil {
		return fmt.Errorf("the first allreduce, which nothing disturbs: %w", err)
	}
	if c.Rank() == mpiOdd {
		switch wrong {
		case "stop":
			stopped()
			return unix.Kill(os.Getpid(), unix.SIGSTOP)
		case "never":
			for e.Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
			return e.Err()
		case "op":
			op = mem.Max
		case "count":
			buf = buf.Slice(0, 1<<19)
		}
	}
	return c.Allreduce(ctx, buf, buf, mem.Float32, op, collectives.With(s))
}

// twoNodes is a transport of which half of the ranks seem to be on another node.
type twoNodes struct{ *overmpi.Transport }

func (t twoNodes) Nodes() []int {
	nodes := make([]int, t.Size())
	for r := range nodes {
		nodes[r] = 2 * r / len(nodes)
	}
	return nodes
}

func onTwoNodes(open func() (nbc.Transport, error)) func() (nbc.Transport, error) {
	return func() (nbc.Transport, error) {
		t, err := open()
		if err != nil {
			return nil, err
		}
		return twoNodes{t.(*overmpi.Transport)}, nil
	}
}

// libraryStuck makes small blocking calls between nodes, which the library's own
// collectives serve where nothing else is asked for. One rank does not come, or
// calls another one. The error also has what the rank says it waits for while it
// does.
func libraryStuck(ctx context.Context, c *collectives.Comm, e *nbc.Engine, wrong string) error {
	one := mem.Of(make([]float32, 1))
	if err := c.Allreduce(ctx, one, one, mem.Float32, mem.Sum); err != nil {
		return fmt.Errorf("the first allreduce, which nothing disturbs: %w", err)
	}
	if c.Rank() == mpiOdd {
		if wrong == "library collective" {
			return c.Bcast(ctx, one, mem.Float32, 0)
		}
		<-e.Failed()
		return e.Err()
	}
	blocked := make(chan []nbc.Edge, 1)
	go func() {
		for e.Err() == nil {
			if edges := e.Blocked(); len(edges) > 0 {
				blocked <- edges
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		blocked <- nil
	}()
	err := c.Allreduce(ctx, one, one, mem.Float32, mem.Sum)
	return fmt.Errorf("blocked by %v: %w", <-blocked, err)
}

// libraryBeside calls the library's own collective while another is under way
// that the ranks start in different orders: before it on some, after it at its root.
func libraryBeside(ctx context.Context, c *collectives.Comm) error {
	s, err := spec.Parse(spec.Library)
	if err != nil {
		return err
	}
	one, large := mem.Of(make([]float64, 1)), mem.Alloc(1<<20)
	sum := func() error { return c.Allreduce(ctx, one, one, mem.Float64, mem.Sum, collectives.With(s)) }
	if err := sum(); err != nil { // alone, where it held up what it liked once
		return err
	}
	if err := c.Barrier(ctx, collectives.With(s)); err != nil {
		return err
	}
	bcast, err := c.BcastInit(large, mem.Float32, 0)
	if err != nil {
		return err
	}
	defer bcast.Close()
	steps := []func() error{bcast.Start, sum}
	if c.Rank() == 0 {
		steps = []func() error{sum, bcast.Start}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return bcast.Wait(ctx)
}

// libraryBlocks makes calls of the library's blocking form, beside another collective that
// is under way, and then one that one rank does not make: the others do not return.
func libraryBlocks(ctx context.Context, c *collectives.Comm, e *nbc.Engine) error {
	s, err := spec.Parse("mpi,blocking")
	if err != nil {
		return err
	}
	how := collectives.With(s)
	one := mem.Of([]float64{float64(c.Rank() + 1)})
	sum, want := mem.Of([]float64{0}), float64(c.Size()*(c.Size()+1)/2)
	if _, err := c.Iallreduce(one, sum, mem.Float64, mem.Sum, how); err == nil || !strings.Contains(err.Error(), "for blocking calls alone") {
		return fmt.Errorf("the blocking form in a non-blocking call: %w", err)
	}
	large := mem.Alloc(1 << 20)
	beside, err := c.Ibcast(large, mem.Float32, 0)
	if err != nil {
		return err
	}
	defer beside.Close()
	for range 3 {
		root := c.Size() - 1
		err := errors.Join(c.Allreduce(ctx, one, sum, mem.Float64, mem.Sum, how), c.Bcast(ctx, sum, mem.Float64, root, how),
			c.Reduce(ctx, one, sum, mem.Float64, mem.Sum, root, how))
		if got := mem.View[float64](sum)[0]; err != nil || got != want {
			return fmt.Errorf("the sum is %v, not %v (%w)", got, want, err)
		}
	}
	if err := beside.Wait(ctx); err != nil {
		return err
	}
	if c.Rank() == mpiOdd {
		<-e.Failed()
		return e.Err()
	}
	return c.Allreduce(ctx, one, sum, mem.Float64, mem.Sum, how)
}

// TestMPIWatchdog: a rank that waits in the library's blocking call for one that does
// not make it cannot be given an error. Its process ends, and says which call it was.
func TestMPIWatchdog(t *testing.T) {
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			reports, said, err := ranks(t, transport, "library blocking")
			if err == nil {
				t.Errorf("mpirun ended well\n%s", said)
			}
			want := "has been in the MPI library's blocking call for allreduce#12 (allreduce of 1 elements, root 0, spec mpi,blocking) for more than 10s"
			if !strings.Contains(said, want) {
				t.Errorf("nobody says %q:\n%s", want, said)
			}
			for r, report := range reports {
				if report != "" {
					t.Errorf("rank %d ended with %q", r, report)
				}
			}
		})
	}
}

// ranks runs stuckRank, and returns each rank's report, what they printed, and how
// mpirun ended.
func ranks(t *testing.T, transport, wrong string) (reports []string, said string, ended error) {
	t.Helper()
	run := ranktest.Run(t, mpiRanks, transport, wrong)
	revive(run.Folder)
	return run.Reports, run.Printed, run.Err
}

// transports are those that ranks of mpirun have.
var transports = []string{"mpi", "shm"}

// TestMPIConformance is the suite over MPI, and over shared memory.
func TestMPIConformance(t *testing.T) {
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			reports, said, err := ranks(t, transport, "nothing")
			if err != nil {
				t.Errorf("mpirun: %v\n%s", err, said)
			}
			for r, report := range reports {
				if report != fmt.Sprintf("%d cases on %d ranks", len(ct.Some(mpiRanks)), mpiRanks) {
					t.Errorf("rank %d ended with %q", r, report)
				}
			}
		})
	}
}

// TestMPILibraryHoldsNothingUp: once there are requests that may be under way
// beside it, a blocking call of the library's collective keeps nothing from
// moving, whatever the order of starts.
func TestMPILibraryHoldsNothingUp(t *testing.T) {
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			reports, said, err := ranks(t, transport, "beside")
			if err != nil {
				t.Errorf("mpirun: %v\n%s", err, said)
			}
			for r, report := range reports {
				if !strings.HasSuffix(report, fmt.Sprintf("on %d ranks", mpiRanks)) {
					t.Errorf("rank %d ended with %q", r, report)
				}
			}
		})
	}
}

// TestMPIStuck: a rank is stopped by SIGSTOP, never calls, or calls something
// else. Every other rank ends by itself and says which rank it was.
func TestMPIStuck(t *testing.T) {
	sides := func(odd string) []string {
		return []string{
			"called allreduce of 262144 elements, root 0, spec chain,chunk=64K, f32 sum",
			fmt.Sprintf("rank %d called allreduce of %s", mpiOdd, odd),
		}
	}
	for _, transport := range transports {
		for wrong, says := range map[string][]string{
			"stop":  {fmt.Sprintf("rank %d has not answered", mpiOdd), "of allreduce#2"},
			"never": {fmt.Sprintf("rank %d has not entered allreduce#2", mpiOdd)},
			"op":    sides("262144 elements, root 0, spec chain,chunk=64K, f32 max"),
			"library": {
				fmt.Sprintf("rank %d has not entered allreduce#2", mpiOdd),
				"waits for the MPI library's own collective in allreduce#2",
			},
			"library collective": {
				"called allreduce of 1 elements, root 0, spec mpi, f32 sum",
				fmt.Sprintf("rank %d called bcast of 1 elements, root 0, spec mpi, f32 sum", mpiOdd),
			},
			"count": sides("131072 elements, root 0, spec chain,chunk=64K, f32 sum"),
		} {
			t.Run(transport+"/"+wrong, func(t *testing.T) {
				t.Parallel() // most of it is waiting for a deadline
				reports, said, err := ranks(t, transport, wrong)
				if err == nil {
					t.Errorf("mpirun ended well\n%s", said)
				}
				mismatch := wrong == "op" || wrong == "count" || wrong == "library collective"
				for r, report := range reports {
					if r == mpiOdd && !mismatch {
						continue
					}
					for _, want := range says {
						if !strings.Contains(report, want) {
							t.Errorf("rank %d does not say %q but %q\n%s", r, want, report, said)
						}
					}
				}
			})
		}
	}
}

// stoppedFile is where a rank that stops writes its process.
func stoppedFile(folder string) string { return filepath.Join(folder, "stopped") }

// revive ends a stopped rank that mpirun has left behind.
func revive(folder string) {
	var pid int
	b, err := os.ReadFile(stoppedFile(folder))
	if _, e := fmt.Sscan(string(b), &pid); errors.Join(err, e) == nil {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}
