package launch_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
)

// twoRanks starts rank 0 of two.
func twoRanks(t *testing.T, o nbc.Options) *nbc.Engine {
	t.Helper()
	k, err := kernels.NewCPU()
	if err != nil {
		t.Fatal(err)
	}
	e, err := nbc.Start(inproc.NewWorld(2, inproc.Options{}).Open(0), device.CPU(k), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// TestWatchWithoutPidfd: a process that cannot watch any other, or not all of
// them, runs nevertheless. (It panicked: the lowest of no ranks.)
func TestWatchWithoutPidfd(t *testing.T) {
	e := twoRanks(t, nbc.Options{})
	restore := launch.SetPidfdOpen(func(int, int) (int, error) { return -1, unix.ENOSYS })
	defer restore()
	if _, end := launch.WatchOpen(e, 0, map[int]int{1: os.Getppid()}, nil); end != nil {
		t.Error("something is watched")
		end()
	}
	launch.SetPidfdOpen(func(pid, flags int) (int, error) {
		if pid == 1 {
			return -1, unix.EPERM
		}
		return unix.PidfdOpen(pid, flags)
	})
	if _, end := launch.WatchOpen(e, 3, map[int]int{1: 1, 2: os.Getppid()}, nil); end == nil {
		t.Error("nothing is watched")
	} else {
		end()
	}
	if e.Err() != nil {
		t.Errorf("the engine has failed: %v", e.Err())
	}
}

// TestWatch: the engine of a rank fails when another's process ends, also where
// it had ended before the watch began.
func TestWatch(t *testing.T) {
	for _, early := range []bool{false, true} {
		e := twoRanks(t, nbc.Options{})
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		die := func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		if early {
			die()
		}
		_, end := launch.WatchOpen(e, 2, map[int]int{1: cmd.Process.Pid}, nil)
		if !early {
			if err := e.Err(); err != nil {
				t.Error(err)
			}
			die()
		}
		select {
		case <-e.Failed():
		case <-time.After(10 * time.Minute):
			t.Fatal("the engine has not failed")
		}
		if abort := (*nbc.AbortError)(nil); !errors.As(e.Err(), &abort) || abort.Reason != "rank 1 is gone" {
			t.Errorf("the engine has failed with %v", e.Err())
		}
		if end != nil {
			end()
		}
	}
}

// TestWatchStopped: a process that ends once the watch has stopped ends for a reason,
// so the engine goes on, but whoever waits for it to report that reason is told.
func TestWatchStopped(t *testing.T) {
	e := twoRanks(t, nbc.Options{})
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan int, 1)
	stop, end := launch.WatchOpen(e, 2, map[int]int{1: cmd.Process.Pid}, func(rank int) { gone <- rank })
	stop()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Error("nobody is told")
	}
	end()
	if err := e.Err(); err != nil {
		t.Errorf("the engine has failed: %v", err)
	}
}

// TestStartClosesWhatItStarted: where the engine of one rank cannot start, those
// before it do not stay.
func TestStartClosesWhatItStarted(t *testing.T) {
	defer goleak.VerifyNone(t)
	w := inproc.NewWorld(3, inproc.Options{})
	full := errors.New("no more descriptors")
	open := func(rank int) func() (nbc.Transport, error) {
		if rank == 2 {
			return func() (nbc.Transport, error) { return nil, full }
		}
		return w.Open(rank)
	}
	engines, err := launch.StartEach(3, open, nbc.Options{})
	if !errors.Is(err, full) || len(engines) != 0 {
		t.Errorf("%d engines and %v", len(engines), err)
	}
}

// TestMaxLocal: more ranks than a machine can have are refused at once.
func TestMaxLocal(t *testing.T) {
	err := launch.Run(context.Background(), launch.Options{Local: 100_000_000}, func(context.Context, *collectives.Comm) error {
		t.Error("it ran")
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "at most") || !strings.Contains(err.Error(), "memory") {
		t.Errorf("the error is %v", err)
	}
}

// TestSetUpHasADeadline: a rank that never comes does not hold up the others'
// set-up for ever, and the error says what for.
func TestSetUpHasADeadline(t *testing.T) {
	e := twoRanks(t, nbc.Options{Deadline: 100 * time.Millisecond})
	err := launch.RunRank(context.Background(), e, launch.Options{Local: 2}, func(context.Context, *collectives.Comm) error {
		t.Error("it ran")
		return nil
	})
	if deadline := (*nbc.DeadlineError)(nil); !errors.As(err, &deadline) || !strings.Contains(err.Error(), "exchanging process numbers") || !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("the error is %v", err)
	}
}
