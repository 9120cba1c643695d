//go:build cuda && cgo && linux && (amd64 || arm64)

package lending_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/internal/ranktest"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/internal/gputest"
	"github.com/scaffe/scaffe/nbc/lending"
	"github.com/scaffe/scaffe/nbc/overmpi"
	"github.com/scaffe/scaffe/nbc/shm"
	"github.com/scaffe/scaffe/nbc/staging"
)

// rank is one of several processes, whose word says what it does.
func rank(p ranktest.Process) {
	runtime.LockOSThread()
	w, err := mpi.Start()
	if err == nil {
		err = onRank(w, p.Words[0])
		p.Report(w.Rank(), fmt.Sprint(err))
		if err != nil { // the others need not wait for this one
			p.Await(0, 1)
			os.Exit(1)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = w.Finalize(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func onRank(w *mpi.World, what string) error {
	m, err := gputest.New(0)
	if err != nil {
		return err
	}
	var spoilt func(nbc.Accelerator) nbc.Accelerator
	if what == "too soon" {
		spoilt = tooSoon
	}
	inner, err := shm.Over(func() (nbc.Transport, error) { return overmpi.New(w, overmpi.Options{}) }, shm.Options{})()
	if err != nil {
		return err
	}
	path, o := lending.IPC, staging.Options{}
	if what == "staged" {
		path, o = lending.Staging, staging.Options{Ring: 64 << 10, Piece: 4096}
	}
	t, err := over(inner, m, o, all(w.Size(), path), spoilt)
	if err != nil {
		return err
	}
	switch what {
	case "suite", "staged":
		cases(func(name string, f func(*gputest.Memory, nbc.Transport) error) {
			if !strings.HasPrefix(name, "device/") { // the host's is the inner transports' business, who are tested so
				return
			}
			if e := f(m, t); e != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", name, e))
			}
		})
	case "waits", "too soon":
		err = lend(m, t)
	case "freed":
		err = freed(m, t)
	case "forbidden":
		err = lend(m, t)
	}
	if err != nil {
		return err // the process ends
	}
	return errors.Join(m.Close(), t.Close())
}

// freed sends from one allocation after the other, each freed when its message has been taken: what is freed comes back to the
// GPU, though the other rank has had it open.
func freed(m *gputest.Memory, t nbc.Transport) error {
	const large = 300 << 20 // of the stand-in's gigabyte
	peer := 1 - t.Rank()
	for i := range 5 {
		tag := nbc.Tag{Message: uint32(i)}
		var err error
		var b mem.Buffer
		if t.Rank() == 0 {
			// Alloc waits for what was freed, which this thread alone hears of.
			for end := time.Now().Add(time.Minute); ; {
				if b, err = m.Device.Alloc(large); err == nil || time.Now().After(end) {
					break
				}
				if _, err := t.Poll(make([]nbc.Completion, 4)); err != nil {
					return err
				}
			}
			if err == nil {
				err = t.Send(1, peer, tag, b)
			}
		} else if b, err = m.Device.Alloc(1 << 20); err == nil {
			err = t.(nbc.Carrier).RecvBorrowIn(mem.CUDA, 1, peer, tag, large)
		}
		if err != nil {
			return fmt.Errorf("allocation %d: %w", i, err)
		}
		err = finish(t, 1, func(c nbc.Completion) error {
			if t.Rank() == 1 {
				var s *cuda.Stream
				if s, err = m.Device.NewStream(); err != nil {
					return err
				}
				defer s.Close()
				if err := errors.Join(s.Copy(b, c.Data.Slice(large-b.Len(), b.Len())), s.Synchronize(time.Minute)); err != nil {
					return err
				}
				t.Release(1)
			}
			return nil
		})
		if err = errors.Join(err, m.Device.Free(b)); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	// All of it is there again, as long as the other rank listens.
	tag := nbc.Tag{Message: 100}
	if t.Rank() == 1 {
		return errors.Join(t.Recv(1, peer, tag, mem.Buffer{}), finish(t, 1, nil))
	}
	for end := time.Now().Add(10 * time.Second); ; {
		b, err := m.Device.Alloc(900 << 20)
		if err == nil {
			return errors.Join(m.Device.Free(b), t.Send(1, peer, tag, mem.Buffer{}), finish(t, 1, nil))
		}
		if _, e := t.Poll(make([]nbc.Completion, 4)); e != nil || time.Now().After(end) {
			return errors.Join(e, err, t.Send(1, peer, tag, mem.Buffer{}))
		}
	}
}

// Two processes that share a GPU, and shared memory, pass the suite, where messages are read where they lie and where they are staged, in pieces; what is given back too soon is seen, what is freed
// comes back, and a container that forbids to open another's memory gives an error that says so.
func TestTwoProcesses(t *testing.T) {
	for _, c := range []struct{ what, like, says string }{
		{"suite", "delay=20", ""},
		{"staged", "delay=20", ""},
		{"waits", "delay=2000", ""},
		{"too soon", "delay=2000", errOther.Error()},
		{"freed", "delay=20", ""},
		{"forbidden", "delay=20 fail=cuIpcOpenMemHandle_v2:1:201", "import 65536 bytes of another process (containers may forbid it): invalid device context"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Setenv("SCAFFE_STANDIN", c.like)
			run := ranktest.Run(t, 2, c.what)
			for r, said := range run.Reports {
				if c.says == "" && said != "<nil>" {
					t.Errorf("rank %d: %s", r, said)
				}
			}
			if said := strings.Join(run.Reports, "\n"); c.says != "" && !strings.Contains(said, c.says) {
				t.Errorf("%s, want %q", said, c.says)
			}
			if t.Failed() {
				t.Log(run.Printed)
			}
		})
	}
}
