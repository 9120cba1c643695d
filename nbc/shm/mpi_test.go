//go:build linux && (amd64 || arm64)

package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi/mpitest"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/overmpi"
	"github.com/scaffe/scaffe/nbc/transporttest"
)

// Under mpirun (scripts/test-mpi) the tests of this file run on several ranks, every rank
// all of them in one order, on one locked thread; their names say so. Under `go test` the
// others do, within one process.

func processes() int { return mpitest.World().Size() }

func TestMain(m *testing.M) { mpitest.Main(m) }

// on runs f on MPI's thread, where there are several ranks.
func on(t *testing.T, f func() error) {
	t.Helper()
	if !strings.Contains(t.Name(), "OverMPI") {
		t.Fatal("scripts/test-mpi runs what has OverMPI in its name")
	}
	if processes() == 1 {
		t.Skip("needs several ranks: run under mpirun by scripts/test-mpi")
	}
	mpitest.On(t, f)
}

// overMPI opens a transport over all ranks.
func overMPI(opts Options) (nbc.Transport, error) {
	return Over(func() (nbc.Transport, error) {
		return overmpi.New(mpitest.World(), overmpi.Options{CloseWait: within})
	}, opts)()
}

// with runs f with a transport of its own.
func with(opts Options, f func(nbc.Transport) error) func() error {
	return func() error {
		t, err := overMPI(opts)
		if err != nil {
			return err
		}
		return errors.Join(f(t), t.Close(), t.Close())
	}
}

func TestConformanceOverMPI(t *testing.T) { conformance(t, Options{}) }

func TestConformanceOverMPIWithoutProcessVM(t *testing.T) { conformance(t, Options{forbidVM: true}) }

func conformance(t *testing.T, opts Options) {
	var tr nbc.Transport
	on(t, func() (err error) {
		tr, err = overMPI(opts)
		return err
	})
	for _, c := range transporttest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			on(t, func() error { return c.Run(tr) })
		})
	}
	on(t, func() error { return tr.Close() })
}

func TestRanksShareMemoryOverMPI(t *testing.T) {
	on(t, with(Options{}, func(t nbc.Transport) error {
		b := base(t)
		if b == nil || len(b.peers) != len(b.local)-1 {
			return fmt.Errorf("of the node's ranks %v some do not share memory: %v", b.local, b)
		}
		if _, ok := t.(nbc.Library); !ok {
			return errors.New("the MPI library's own collectives are gone")
		}
		return nil
	}))
}

func TestAbortOverMPI(t *testing.T) {
	on(t, with(Options{}, func(t nbc.Transport) error {
		if err := mpitest.World().Barrier(); err != nil { // all have set up
			return err
		}
		return transporttest.Abort(t)
	}))
}

// TestAPeerThatDiedOverMPI needs an mpirun that does not end the other
// ranks itself; scripts/test-mpi starts it so.
func TestAPeerThatDiedOverMPI(t *testing.T) {
	dir := os.Getenv("SCAFFE_TEST_DEATH") // survivors say so there: mpirun may be gone
	if dir == "" {
		t.Skip("kills a rank: run by scripts/test-mpi")
	}
	on(t, func() error {
		tr, err := overMPI(Options{})
		if err != nil {
			return err
		}
		if err := mpitest.World().Barrier(); err != nil {
			return err
		}
		last := tr.Size() - 1
		if tr.Rank() == last {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		}
		b := mem.Alloc(1 << 20)
		err = errors.Join(tr.Recv(1, last, nbc.Tag{}, b), tr.Send(2, last, nbc.Tag{}, b))
		for until := time.Now().Add(within); err == nil; {
			_, err = tr.Poll(nil)
			tr.Park(time.Millisecond)
			if time.Now().After(until) {
				return errors.New("never noticed")
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		told := transporttest.GiveUp(ctx, tr, "a peer is gone")
		start := time.Now()
		report := fmt.Sprintf("learned: %v\nAbort: %v\nClose: %v after %v\n", err, told, tr.Close(), time.Since(start))
		if err := os.WriteFile(fmt.Sprintf("%s/rank%d", dir, tr.Rank()), []byte(report), 0o666); err != nil {
			return err
		}
		os.Exit(0)
		return nil
	})
}
