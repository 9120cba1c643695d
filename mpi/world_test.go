package mpi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/mem"
)

// These tests run on one rank under `go test` and, built with the tag mpi, on
// several under mpirun (`make test-mpi`): every rank runs all of them, in the
// same order. MPI lives on one locked thread, which runs what on is given.

var (
	world *World
	calls = make(chan func())
)

// within bounds every wait of a test, so that a rank whose peer failed ends
// too.
const within = 10 * time.Minute

func TestMain(m *testing.M) {
	if _, set := os.LookupEnv(yields); !set {
		os.Setenv(yields, "1") // as mpirun does where ranks share cores; see TestKeepCore
	}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		var err error
		world, err = Start()
		failed <- err
		for f := range calls {
			f()
		}
	}()
	if err := <-failed; err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	code := m.Run()
	end := make(chan error)
	calls <- func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		end <- errors.Join(world.Finalize(ctx), world.Finalize(ctx)) // twice is once
	}
	if err := <-end; err != nil {
		fmt.Fprintf(os.Stderr, "rank %d: %v\n", world.Rank(), err)
		code = 1
	}
	os.Exit(code)
}

// on runs f on MPI's thread.
func on(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error)
	calls <- func() { done <- f() }
	if err := <-done; err != nil {
		t.Errorf("rank %d of %d: %v", world.Rank(), world.Size(), err)
	}
}

// finish waits for n requests and returns them by ID.
func finish(rs *Requests, n int) (map[uint64]Done, error) {
	got := map[uint64]Done{}
	done := make([]Done, 3) // fewer than may end at once
	for until := time.Now().Add(within); len(got) < n; runtime.Gosched() {
		k, err := rs.Testsome(done)
		if err != nil {
			return got, err
		}
		for _, d := range done[:k] {
			if _, twice := got[d.ID]; twice {
				return got, fmt.Errorf("request %d was reported twice", d.ID)
			}
			got[d.ID] = d
		}
		if time.Now().After(until) {
			return got, fmt.Errorf("%d of %d requests ended in %v", len(got), n, within)
		}
	}
	return got, nil
}

func TestWorldSaysWhatItIs(t *testing.T) {
	on(t, func() error {
		major, _ := world.StandardVersion()
		l := world.Library()
		switch {
		case world.Rank() < 0 || world.Rank() >= world.Size():
			return fmt.Errorf("rank %d of %d", world.Rank(), world.Size())
		case Built() != "" && l.Version == "":
			return fmt.Errorf("no version in %q", world.LibraryVersion())
		case Built() != "" && major < 3:
			return fmt.Errorf("MPI standard %d", major)
		case strings.Contains(world.LibraryVersion(), "\n"):
			return fmt.Errorf("several lines: %q", world.LibraryVersion())
		case world.TagUB() < 32767:
			return fmt.Errorf("largest tag %d", world.TagUB())
		case world.Launcher().Size > 0 && world.Launcher().Size != world.Size():
			return fmt.Errorf("%s started %d", world.Launcher().Name, world.Launcher().Size)
		case len(world.Notes()) > 0:
			return fmt.Errorf("notes %q", world.Notes())
		case world.Comm().Rank() != world.Rank() || world.Comm().Size() != world.Size():
			return fmt.Errorf("communicator has rank %d of %d", world.Comm().Rank(), world.Comm().Size())
		}
		n := world.Nodes()
		if len(n.Of) != world.Size() || n.LocalSize != len(n.Ranks(n.Of[world.Rank()])) {
			return fmt.Errorf("nodes %+v", n)
		}
		t.Logf("%s, thread level %s, largest tag %d, CUDA-aware: %s, %s", l, world.ThreadLevel(), world.TagUB(), world.CUDAAware(), n)
		return nil
	})
}

func TestThreadLevelIsFunneled(t *testing.T) {
	if want := map[bool]string{true: "single", false: "serialized"}[Built() == ""]; world.ThreadLevel() != want {
		t.Errorf("thread level %s, want %s", world.ThreadLevel(), want)
	}
}

func TestStartWorksOnce(t *testing.T) {
	on(t, func() error {
		if _, err := Start(); !errors.Is(err, ErrStarted) {
			return fmt.Errorf("a second Start returned %v", err)
		}
		return nil
	})
}

func TestOtherThreadsAreRefused(t *testing.T) {
	if Built() == "" {
		t.Skip("without MPI any thread will do")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var e *Error
	if err := world.Barrier(); !errors.As(err, &e) || e.Class != "WRONG_THREAD" {
		t.Errorf("Barrier on another thread returned %v", err)
	}
	if _, err := world.Comm().Dup(); !errors.As(err, &e) || e.Class != "WRONG_THREAD" {
		t.Errorf("Dup on another thread returned %v", err)
	}
}

// pattern is a message that no other (from, to, round) has.
func pattern(from, to, round, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(from*131 + to*17 + round*7 + i*i + i>>8)
	}
	return b
}

// exchange lets every rank send n bytes to every rank, itself included.
func exchange(c *Comm, n, round int) error {
	rs := world.NewRequests()
	defer rs.Free()
	size, rank := c.Size(), c.Rank()
	in, out := mem.Alloc(max(1, n*size)), mem.Alloc(max(1, n*size))
	defer in.Free()
	defer out.Free()
	for r := range size {
		if err := c.Irecv(rs, uint64(r), in.Slice(r*n, n).Pointer(), n, r, round); err != nil {
			return err
		}
	}
	for r := range size {
		copy(mem.Bytes(out)[r*n:], pattern(rank, r, round, n))
		if err := c.Isend(rs, uint64(size+r), out.Slice(r*n, n).Pointer(), n, r, round); err != nil {
			return err
		}
	}
	got, err := finish(rs, 2*size)
	if err != nil {
		return err
	}
	for r := range size {
		d := got[uint64(r)]
		if d.Err != nil || d.Bytes != n || d.Source != r || d.Tag != round {
			return fmt.Errorf("receive from rank %d: %+v", r, d)
		}
		if !bytes.Equal(mem.Bytes(in)[r*n:(r+1)*n], pattern(r, rank, round, n)) {
			return fmt.Errorf("%d bytes from rank %d arrived changed", n, r)
		}
		if err := got[uint64(size+r)].Err; err != nil {
			return err
		}
	}
	return nil
}

func TestEveryRankSendsToEveryRank(t *testing.T) {
	for i, n := range []int{0, 1, 13, 4096, 65537, 3<<20 + 1} {
		on(t, func() error { return exchange(world.Comm(), n, i) })
	}
}

func TestLargeMessagesAreOneElement(t *testing.T) {
	old := setLarge(1000)
	defer setLarge(old)
	for i, n := range []int{999, 1000, 1001, 2000, 123456} {
		on(t, func() error { return exchange(world.Comm(), n, i) })
	}
}

func TestMoreThanTwoGigabytes(t *testing.T) {
	if os.Getenv("SCAFFE_TEST_LARGE") == "" {
		t.Skip("set SCAFFE_TEST_LARGE=1: needs 4.3 GB of memory a rank")
	}
	on(t, func() error {
		const n = 1<<31 + 5
		rs := world.NewRequests()
		defer rs.Free()
		c := world.Comm()
		to, from := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		in, out := mem.Alloc(n), mem.Alloc(n)
		defer in.Free()
		defer out.Free()
		for i := 0; i < n; i += 4093 {
			mem.Bytes(out)[i] = byte(i>>12 + c.Rank())
		}
		err := errors.Join(c.Irecv(rs, 1, in.Pointer(), n, from, 1), c.Isend(rs, 2, out.Pointer(), n, to, 1))
		if err != nil {
			return err
		}
		got, err := finish(rs, 2)
		if err != nil || got[1].Err != nil || got[1].Bytes != n {
			return fmt.Errorf("%v, %+v", err, got[1])
		}
		for i := 0; i < n; i += 4093 {
			if mem.Bytes(in)[i] != byte(i>>12+from) {
				return fmt.Errorf("byte %d arrived changed", i)
			}
		}
		return nil
	})
}

func TestMessagesOfOneTagArriveInOrder(t *testing.T) {
	on(t, func() error {
		const n = 200
		rs := world.NewRequests()
		defer rs.Free()
		c := world.Comm()
		to, from := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		in, out := mem.Alloc(8*n), mem.Alloc(8*n)
		defer in.Free()
		defer out.Free()
		for i := range n {
			mem.View[int64](out)[i] = int64(c.Rank()*n + i)
			if err := c.Isend(rs, uint64(n+i), out.Slice(8*i, 8).Pointer(), 8, to, 5); err != nil {
				return err
			}
		}
		for i := range n {
			if err := c.Irecv(rs, uint64(i), in.Slice(8*i, 8).Pointer(), 8, from, 5); err != nil {
				return err
			}
		}
		if _, err := finish(rs, 2*n); err != nil {
			return err
		}
		for i, v := range mem.View[int64](in)[:n] {
			if v != int64(from*n+i) {
				return fmt.Errorf("message %d holds %d", i, v)
			}
		}
		return nil
	})
}

func TestTruncationIsAnError(t *testing.T) {
	on(t, func() error {
		rs := world.NewRequests()
		defer rs.Free()
		c := world.Comm()
		b := mem.Alloc(4096)
		defer b.Free()
		to, from := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		// The send first: Open MPI 4.1 truncates a message to oneself without
		// a word where the receive was there before it.
		if err := c.Isend(rs, 2, b.Slice(2048, 20).Pointer(), 20, to, 1); err != nil {
			return err
		}
		if err := c.Irecv(rs, 1, b.Pointer(), 10, from, 1); err != nil {
			return err
		}
		got, err := finish(rs, 2)
		if err != nil {
			return err
		}
		if !Truncated(got[1].Err) {
			return fmt.Errorf("20 bytes for 10 came to %+v", got[1])
		}
		return exchange(c, 100, 2) // and the library continues
	})
}

func TestShortMessagesSayHowLongTheyAre(t *testing.T) {
	on(t, func() error {
		rs := world.NewRequests()
		defer rs.Free()
		b := mem.Alloc(4096)
		defer b.Free()
		me := world.Rank()
		err := errors.Join(
			world.Comm().Isend(rs, 1, b.Pointer(), 5, me, 9),
			world.Comm().Irecv(rs, 2, b.Slice(64, 64).Pointer(), 64, AnySource, 9))
		if err != nil {
			return err
		}
		got, err := finish(rs, 2)
		if d := got[2]; err == nil && (d.Bytes != 5 || d.Source != me || d.Err != nil) {
			err = fmt.Errorf("%+v", d)
		}
		return err
	})
}

func TestBadArgumentsReturnTheLibrarysWords(t *testing.T) {
	on(t, func() error {
		rs := world.NewRequests()
		defer rs.Free()
		var b [8]byte
		err := world.Comm().Isend(rs, 1, unsafe.Pointer(&b), 8, world.Size()+3, 1)
		var e *Error
		if !errors.As(err, &e) || e.Class != "RANK" || e.Text == "" {
			return fmt.Errorf("a send beyond the last rank returned %v", err)
		}
		if !strings.Contains(err.Error(), "8 bytes to rank") && Built() != "" {
			return fmt.Errorf("%v does not say what was attempted", err)
		}
		if rs.Live() != 0 {
			return fmt.Errorf("%d requests live", rs.Live())
		}
		return nil
	})
}

func TestCancel(t *testing.T) {
	on(t, func() error {
		rs := world.NewRequests()
		defer rs.Free()
		var b [8]byte
		var pin runtime.Pinner
		pin.Pin(&b)
		defer pin.Unpin()
		if err := world.Comm().Irecv(rs, 7, unsafe.Pointer(&b), 8, AnySource, 77); err != nil {
			return err
		}
		if err := rs.Cancel(7); err != nil {
			return err
		}
		got, err := finish(rs, 1)
		if err == nil && !errors.Is(got[7].Err, ErrCancelled) {
			err = fmt.Errorf("%+v", got[7])
		}
		if err == nil && rs.Cancel(7) == nil {
			err = errors.New("a second Cancel found the request")
		}
		return err
	})
}

// yields has Open MPI offer the core at each look in vain.
const yields = "OMPI_MCA_mpi_yield_when_idle"

// TestKeepCore: MPI's thread has its core taken by one that computes at a look in vain of a set that does not keep it, as the
// library likes it, and not of one that does.
func TestKeepCore(t *testing.T) {
	if !strings.HasPrefix(Built(), "Open MPI") || os.Getenv(yields) != "1" {
		t.Skip("the library keeps the core anyway")
	}
	const often, most, attempts = 50, 20_000, 3 // others may have the core at times, and who offers it does not lose it then
	core, usual := unix.CPUSet{}, unix.CPUSet{}
	if err := unix.SchedGetaffinity(0, &usual); err != nil {
		t.Skip(err)
	}
	for i := range 1024 {
		if usual.IsSet(i) {
			core.Set(i)
			break
		}
	}
	anyway := false
	var wrong error
	var stop atomic.Bool
	defer stop.Store(true)
	computes := make(chan error)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends
		computes <- unix.SchedSetaffinity(0, &core)
		for !stop.Load() {
		}
	}()
	if err := <-computes; err != nil {
		t.Skip(err)
	}
	on(t, func() (err error) {
		rs := world.NewRequests()
		defer rs.Free()
		var b [8]byte
		var pin runtime.Pinner
		pin.Pin(&b)
		defer pin.Unpin()
		if err := world.Comm().Irecv(rs, 7, unsafe.Pointer(&b), 8, AnySource, 77); err != nil {
			return err
		}
		defer func() {
			_, e := finish(rs, 1)
			err = errors.Join(err, e)
		}()
		defer rs.Cancel(7) //nolint:errcheck // finish tells
		if err := unix.SchedSetaffinity(0, &core); err != nil {
			return err
		}
		defer unix.SchedSetaffinity(0, &usual)        //nolint:errcheck // it was allowed before
		looks := func(keep bool) (n int, err error) { // until it has lost the core often
			var before, now unix.Rusage
			rs.KeepCore(keep)
			err = unix.Getrusage(unix.RUSAGE_THREAD, &before)
			for ; err == nil && n < most && now.Nivcsw < before.Nivcsw+often; n++ {
				var ended int
				if ended, err = rs.Testsome(make([]Done, 1)); err == nil && ended > 0 {
					err = errors.New("a request has ended")
				}
				err = errors.Join(err, unix.Getrusage(unix.RUSAGE_THREAD, &now))
			}
			return n, err
		}
		for range attempts {
			kept, err := looks(true)
			if err != nil {
				return err
			}
			offered, err := looks(false)
			if anyway = offered == most; err != nil || anyway || offered <= kept/2 {
				return err
			}
			wrong = fmt.Errorf("the core was lost %d times after %d looks (at most %d) that keep it, and after %d that do not", often, kept, most, offered)
		}
		return wrong
	})
	if anyway {
		t.Skip("the library keeps the core anyway: each rank has one")
	}
}

func TestSplitAndDup(t *testing.T) {
	on(t, func() error {
		rank, size := world.Rank(), world.Size()
		// Odd and even ranks apart, each in descending order.
		half, err := world.Comm().Split(rank%2, -rank)
		if err != nil {
			return err
		}
		var mine []int
		for r := size - 1; r >= 0; r-- {
			if r%2 == rank%2 {
				mine = append(mine, r)
			}
		}
		if half.Size() != len(mine) || half.Rank() != slices.Index(mine, rank) {
			return fmt.Errorf("rank %d of %d among %v", half.Rank(), half.Size(), mine)
		}
		again, err := half.Dup()
		if err != nil {
			return err
		}
		if err := exchange(again, 1000, 1); err != nil {
			return err
		}
		none, err := world.Comm().Split(-1, 0)
		if err != nil || none != nil {
			return fmt.Errorf("a negative color gave %v, %v", none, err)
		}
		return errors.Join(again.Free(), half.Free(), half.Free(), world.Barrier())
	})
}

func TestCommunicatorsDoNotMeet(t *testing.T) {
	on(t, func() error {
		other, err := world.Comm().Dup()
		if err != nil {
			return err
		}
		rs := world.NewRequests()
		defer rs.Free()
		b := mem.Alloc(4096)
		defer b.Free()
		copy(mem.Bytes(b), "firstother")
		me := world.Rank()
		err = errors.Join(
			world.Comm().Isend(rs, 1, b.Slice(0, 5).Pointer(), 5, me, 3),
			other.Isend(rs, 2, b.Slice(5, 5).Pointer(), 5, me, 3),
			other.Irecv(rs, 3, b.Slice(100, 5).Pointer(), 5, me, 3),
			world.Comm().Irecv(rs, 4, b.Slice(200, 5).Pointer(), 5, me, 3))
		if err != nil {
			return err
		}
		if _, err := finish(rs, 4); err != nil {
			return err
		}
		if got := string(mem.Bytes(b)[100:105]) + string(mem.Bytes(b)[200:205]); got != "otherfirst" {
			return fmt.Errorf("received %q", got)
		}
		return other.Free()
	})
}

func TestOperationsAllocateNothing(t *testing.T) {
	if Built() == "" {
		t.Skip("the world of one rank keeps its queues in slices")
	}
	on(t, func() error {
		rs := world.NewRequests()
		defer rs.Free()
		b := mem.Alloc(4096)
		defer b.Free()
		done := make([]Done, 4)
		c, me := world.Comm(), world.Rank()
		allocs := testing.AllocsPerRun(100, func() {
			_ = c.Irecv(rs, 1, b.Pointer(), 64, me, 1)
			_ = c.Isend(rs, 2, b.Slice(1024, 64).Pointer(), 64, me, 1)
			for rs.Live() > 0 {
				if _, err := rs.Testsome(done); err != nil {
					panic(err)
				}
			}
		})
		if allocs != 0 {
			return fmt.Errorf("%v allocations a message", allocs)
		}
		return nil
	})
}

// A library that catches SIGSEGV would turn every nil dereference, which Go
// reports as a panic, into the end of the process.
func TestPanicsAreStillGos(t *testing.T) {
	defer func() {
		if r := recover(); r == nil {
			t.Error("no panic")
		}
	}()
	var p *World
	_ = p.rank
}

// MPICH takes SIGUSR1 for itself, in a way that ends a Go program.
func TestSignalsAreStillGos(t *testing.T) {
	got := make(chan os.Signal, 1)
	signal.Notify(got, unix.SIGUSR1)
	defer signal.Stop(got)
	if err := unix.Kill(os.Getpid(), unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	select {
	case <-got:
	case <-time.After(within):
		t.Error("the signal never arrived")
	}
}

func TestBarrier(t *testing.T) {
	on(t, func() error { return world.Barrier() })
}
