package overmpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/transporttest"
)

// Like those of package mpi, these tests run on one rank under `go test` and
// on several under mpirun (`make test-mpi`), every rank all of them in one
// order, on one locked thread.

var (
	world *mpi.World
	calls = make(chan func())
)

const within = 30 * time.Second

func TestMain(m *testing.M) {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		var err error
		world, err = mpi.Start()
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
		end <- world.Finalize(ctx)
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

// with runs f with a transport of its own.
func with(f func(*Transport) error) func() error {
	return func() error {
		t, err := New(world, Options{CloseWait: within})
		if err != nil {
			return err
		}
		return errors.Join(f(t), t.Close(), t.Close())
	}
}

func TestConformance(t *testing.T) {
	var tr *Transport
	on(t, func() (err error) {
		tr, err = New(world, Options{CloseWait: within})
		return err
	})
	for _, c := range transporttest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			on(t, func() error { return c.Run(tr) })
		})
	}
	on(t, func() error { return tr.Close() })
}

func TestAbortReachesEveryRankAndCloseStillMeets(t *testing.T) {
	on(t, with(func(t *Transport) error { return transporttest.Abort(t) }))
}

func TestAbortTellsOnce(t *testing.T) {
	on(t, with(func(t *Transport) error {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		last := t.Size() - 1
		if t.Rank() == last {
			reason := strings.Repeat("ä", noticeRoom) // longer than a notice has room for
			return errors.Join(transporttest.GiveUp(ctx, t, reason), t.Abort(ctx, "again"))
		}
		for ctx.Err() == nil {
			_, err := t.Poll(nil)
			var abort *nbc.AbortError
			if errors.As(err, &abort) {
				if abort.Rank != last || abort.Reason != strings.Repeat("ä", noticeRoom/2) {
					return fmt.Errorf("learned %+v", abort)
				}
				if err := t.Send(1, last, nbc.Tag{}, mem.Buffer{}); !errors.As(err, &abort) {
					return fmt.Errorf("a send after it returned %v", err)
				}
				return t.Abort(ctx, "me too") // nothing to add
			}
			if err != nil {
				return err
			}
			t.Park(time.Millisecond)
		}
		return ctx.Err()
	}))
}

func TestReceivesUnderWayAreDropped(t *testing.T) {
	on(t, with(func(t *Transport) error {
		from := (t.Rank() + 1) % t.Size()
		b := make([]byte, 100)
		return errors.Join(
			t.Recv(1, from, nbc.Tag{Instance: 1}, mem.Of(b)),
			t.RecvBorrow(2, from, nbc.Tag{Instance: 2}, 100))
	}))
}

func TestAClosedTransportSaysSo(t *testing.T) {
	on(t, func() error {
		t, err := New(world, Options{})
		if err != nil {
			return err
		}
		if err := t.Close(); err != nil {
			return err
		}
		_, polled := t.Poll(nil)
		for _, err := range []error{
			polled, t.Send(1, 0, nbc.Tag{}, mem.Buffer{}), t.Recv(1, 0, nbc.Tag{}, mem.Buffer{}),
			t.RecvBorrow(1, 0, nbc.Tag{}, 1), t.Abort(context.Background(), "late"),
		} {
			if !errors.Is(err, ErrClosed) {
				return fmt.Errorf("a closed transport answered %v", err)
			}
		}
		t.Wake()
		t.Park(time.Hour)
		return nil
	})
}

func TestRanksBeyondTheWorldAreRefused(t *testing.T) {
	on(t, with(func(t *Transport) error {
		for _, r := range []int{-1, t.Size()} {
			if t.Send(1, r, nbc.Tag{}, mem.Buffer{}) == nil || t.Recv(1, r, nbc.Tag{}, mem.Buffer{}) == nil {
				return fmt.Errorf("rank %d was accepted", r)
			}
		}
		if t.active != 0 {
			return fmt.Errorf("%d operations under way", t.active)
		}
		return nil
	}))
}

func TestEmptyMessages(t *testing.T) {
	on(t, with(func(t *Transport) error {
		to, from := (t.Rank()+1)%t.Size(), (t.Rank()+t.Size()-1)%t.Size()
		if err := errors.Join(t.RecvBorrow(1, from, nbc.Tag{}, 0), t.Send(2, to, nbc.Tag{}, mem.Buffer{})); err != nil {
			return err
		}
		return drain(t, 2)
	}))
}

// drain waits for n operations that must succeed, and releases them.
func drain(t *Transport, n int) error {
	var done [8]nbc.Completion
	for until := time.Now().Add(within); n > 0; {
		k, err := t.Poll(done[:])
		if err != nil {
			return err
		}
		for _, c := range done[:k] {
			if c.Err != nil {
				return c.Err
			}
			t.Release(c.Token)
		}
		if n -= k; k == 0 {
			t.Park(time.Millisecond)
		}
		if time.Now().After(until) {
			return fmt.Errorf("%d operations never ended", n)
		}
	}
	return nil
}

func TestMessagesAllocateNothing(t *testing.T) {
	if world.Size() == 1 {
		t.Skip("messages to oneself are kept in slices; run under mpirun")
	}
	on(t, with(func(t *Transport) error {
		to, from := (t.Rank()+1)%t.Size(), (t.Rank()+t.Size()-1)%t.Size()
		src := mem.Alloc(100_000)
		defer src.Free()
		var failed error
		var tag nbc.Tag
		exchange := func() {
			tag.Instance++
			err := errors.Join(t.RecvBorrow(1, from, tag, src.Len()), t.Send(2, to, tag, src), drain(t, 2))
			if err != nil && failed == nil {
				failed = err
			}
		}
		for range 10 {
			exchange()
		}
		if n := testing.AllocsPerRun(100, exchange); n != 0 {
			return errors.Join(failed, fmt.Errorf("%v allocations for a send and a receive", n))
		}
		return failed
	}))
}

// TestAPeerThatDiedHoldsNothingUp needs an mpirun that does not end the other
// ranks itself; scripts/test-mpi starts it so.
func TestAPeerThatDiedHoldsNothingUp(t *testing.T) {
	dir := os.Getenv("SCAFFE_TEST_DEATH") // survivors say so there: mpirun may be gone
	if dir == "" {
		t.Skip("kills a rank: run by scripts/test-mpi")
	}
	if world.Size() < 2 {
		t.Fatal("needs two ranks")
	}
	on(t, func() error {
		tr, err := New(world, Options{CloseWait: within})
		if err != nil {
			return err
		}
		if err := world.Barrier(); err != nil {
			return err
		}
		if tr.Rank() == tr.Size()-1 {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		}
		b := make([]byte, 1<<20)
		err = errors.Join(tr.Recv(1, tr.Size()-1, nbc.Tag{}, mem.Of(b)), tr.Send(2, tr.Size()-1, nbc.Tag{}, mem.Of(b)))
		for range 100 {
			if err != nil { // the library noticed, or another rank gave up first
				break
			}
			_, err = tr.Poll(nil)
			tr.Park(time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		told := transporttest.GiveUp(ctx, tr, "a peer is silent")
		report := fmt.Sprintf("learned: %v\nAbort: %v\nClose: %v\n", err, told, tr.Close())
		if err := os.WriteFile(fmt.Sprintf("%s/rank%d", dir, tr.Rank()), []byte(report), 0o666); err != nil {
			return err
		}
		os.Exit(0)
		return nil
	})
}
