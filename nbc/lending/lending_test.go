//go:build cuda && cgo && linux && (amd64 || arm64)

package lending_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scaffe/scaffe/internal/ranktest"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/faulty"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/nbc/internal/gputest"
	"github.com/scaffe/scaffe/nbc/lending"
	"github.com/scaffe/scaffe/nbc/staging"
	"github.com/scaffe/scaffe/nbc/transporttest"
)

// library is the stand-in for the driver that the tests load.
var library string

func TestMain(m *testing.M) {
	ranktest.Rank(rank)
	os.Exit(cudatest.Main(m, &library, "devices=2 "+usual))
}

const usual = "delay=20 seed=1 fail=none broken=0 peers=1"

// tell changes what the stand-in is like, until the test ends.
func tell(t *testing.T, text string) {
	t.Helper()
	cudatest.Change(t, library, text, usual)
}

// all returns the paths of n ranks that are alike.
func all(n int, p lending.Path) lending.Paths {
	paths := lending.NewPaths(n)
	for i := range paths {
		for j := range paths[i] {
			paths[i][j] = p
		}
		if p == lending.IPC { // a process does not open its own memory
			paths[i][i] = lending.Pointer
		}
	}
	return paths
}

// over lays both transports over one, for a rank's memory; spoilt makes something else of its accelerator.
func over(inner nbc.Transport, m *gputest.Memory, o staging.Options, paths lending.Paths, spoilt func(nbc.Accelerator) nbc.Accelerator) (nbc.Transport, error) {
	below, err1 := m.Accelerator()
	own, err2 := m.Accelerator()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if spoilt != nil {
		own = spoilt(own)
	}
	t := lending.New(staging.New(inner, below, o), own)
	return t, t.(interface{ SetPaths(lending.Paths) error }).SetPaths(paths)
}

// world is transports of ranks of this process.
type world struct {
	ranks  []nbc.Transport
	memory []*gputest.Memory
}

// ofProcess opens ranks with the GPUs given.
func ofProcess(t *testing.T, gpus []int, paths lending.Paths, plan faulty.Plan, spoilt func(nbc.Accelerator) nbc.Accelerator) *world {
	t.Helper()
	inner, w := inproc.NewWorld(len(gpus), inproc.Options{Seed: plan.Seed}), &world{}
	for r, gpu := range gpus {
		m := gputest.Open(t, gpu)
		for _, other := range gpus {
			if err := m.Device.Reach(other); err != nil {
				t.Fatal(err)
			}
		}
		i, err := inner.Open(r)()
		if err != nil {
			t.Fatal(err)
		}
		s, err := over(faulty.Wrap(i, plan), m, staging.Options{}, paths, spoilt)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(s.Close(), s.Close()); err != nil {
				t.Error(err)
			}
		})
		w.ranks, w.memory = append(w.ranks, s), append(w.memory, m)
	}
	return w
}

// each runs one rank's part on all ranks together.
func (w *world) each(run func(m *gputest.Memory, t nbc.Transport) error) error {
	errs := make([]error, len(w.ranks))
	var wg sync.WaitGroup
	for r, t := range w.ranks {
		wg.Go(func() { errs[r] = run(w.memory[r], t) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// cases are those of the suite, for memory of the host and of a GPU.
func cases(run func(name string, f func(m *gputest.Memory, t nbc.Transport) error)) {
	for _, k := range transporttest.Cases() {
		run("host/"+k.Name, func(_ *gputest.Memory, t nbc.Transport) error { return k.Run(t) })
		if k.Name != "handed over at once" { // which a GPU's memory is not
			run("device/"+k.Name, func(m *gputest.Memory, t nbc.Transport) error { return k.Run(transporttest.In(m, t, false)) })
		}
	}
}

// Ranks of a process pass the suite, over a transport that delays and reorders: those that share a GPU, those with one each
// whose memory the other reaches, and where some pairs are staged.
func TestConformance(t *testing.T) {
	mixed := all(3, lending.Pointer)
	mixed[0][2], mixed[2][0] = lending.Staging, lending.Staging
	for name, c := range map[string]struct {
		gpus  []int
		paths lending.Paths
		plan  faulty.Plan
	}{
		"one rank":  {[]int{0}, all(1, lending.Pointer), faulty.Plan{}},
		"one GPU":   {[]int{0, 0}, all(2, lending.Pointer), faulty.Plan{Seed: 1, Delay: 4, Reorder: true}},
		"two GPUs":  {[]int{0, 1}, all(2, lending.Pointer), faulty.Plan{Seed: 2, Delay: 2}},
		"two paths": {[]int{0, 0, 1}, mixed, faulty.Plan{Seed: 3, Delay: 4, Reorder: true}},
	} {
		w := ofProcess(t, c.gpus, c.paths, c.plan, nil)
		cases(func(k string, f func(*gputest.Memory, nbc.Transport) error) {
			t.Run(name+"/"+k, func(t *testing.T) {
				if err := w.each(f); err != nil {
					t.Fatal(err)
				}
			})
		})
		if err := w.each(func(_ *gputest.Memory, t nbc.Transport) error { return transporttest.Abort(t) }); err != nil {
			t.Errorf("%s: abort: %v", name, err)
		}
	}
}

const messages, size = 24, 40_000

func message(from, i int) []byte {
	b := make([]byte, size)
	for k := range b {
		b[k] = byte(from*31 + i*7 + k*k>>5)
	}
	return b
}

var errOther = errors.New("it has other contents than what was sent")

// lend sends messages to the next rank, each out of memory that holds something else as soon as its send has ended, and says
// what is wrong with those that come, which it copies when they were borrowed.
func lend(m *gputest.Memory, t nbc.Transport) error {
	to, from := (t.Rank()+1)%t.Size(), (t.Rank()+t.Size()-1)%t.Size()
	var sent, got []mem.Buffer
	for i := range messages {
		src, err1 := m.Alloc(size)
		dst, err2 := m.Alloc(size)
		sent, got = append(sent, src), append(got, dst)
		if err := errors.Join(err1, err2, m.Write(src, message(t.Rank(), i))); err != nil {
			return err
		}
	}
	for i := range messages {
		tag := nbc.Tag{Message: uint32(i)}
		recv := t.Recv(nbc.Token(2*i), from, tag, got[i])
		if err := errors.Join(recv, t.Send(nbc.Token(2*i+1), to, tag, sent[i])); err != nil {
			return err
		}
	}
	waste := bytes.Repeat([]byte{0xee}, size)
	err := finish(t, 2*messages, func(c nbc.Completion) error {
		if i := int(c.Token) / 2; c.Token%2 == 1 {
			return m.Write(sent[i], waste)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, b := range got {
		data := make([]byte, size)
		if err := m.Read(data, b); err != nil {
			return err
		}
		if !bytes.Equal(data, message(from, i)) {
			return fmt.Errorf("message %d: %w", i, errOther)
		}
	}
	return nil
}

// finish polls until n operations have ended, and tells of each.
func finish(t nbc.Transport, n int, ended func(nbc.Completion) error) error {
	var done [8]nbc.Completion
	for end := time.Now().Add(time.Minute); n > 0; {
		k, err := t.Poll(done[:])
		for _, c := range done[:k] {
			if err = errors.Join(err, c.Err); err == nil && ended != nil {
				err = ended(c)
			}
		}
		if err != nil {
			return err
		}
		if n -= k; k == 0 {
			t.Park(time.Millisecond)
		}
		if time.Now().After(end) {
			return errors.New("not within a minute")
		}
	}
	return nil
}

// hasty says that copies have been made when they have only begun, and so has their message given back.
type hasty struct {
	nbc.Accelerator
	said map[nbc.Token]int // how often of each
}

func (h hasty) Copy(tok nbc.Token, dst, src mem.Buffer) (bool, error) {
	done, err := h.Accelerator.Copy(tok, dst, src)
	if !done && err == nil {
		h.said[tok]++
	}
	return err == nil, err
}

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

func tooSoon(a nbc.Accelerator) nbc.Accelerator {
	return struct {
		hasty
		nbc.Sharer
	}{hasty{a, map[nbc.Token]int{}}, a.(nbc.Sharer)}
}

// What is given back before the GPU has read it is seen: its sender has put something else there.
func TestGivenBackTooSoonIsSeen(t *testing.T) {
	for name, spoilt := range map[string]func(nbc.Accelerator) nbc.Accelerator{"waits": nil, "does not wait": tooSoon} {
		w := ofProcess(t, []int{0, 0}, all(2, lending.Pointer), faulty.Plan{}, spoilt)
		tell(t, "delay=2000")
		switch err := w.each(lend); {
		case spoilt == nil && err != nil:
			t.Errorf("%s: %v", name, err)
		case spoilt != nil && !errors.Is(err, errOther):
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is sent before it is there is seen: the receiver's GPU reads what was there before.
func TestReadTooSoonIsSeen(t *testing.T) {
	w := ofProcess(t, []int{0, 0}, all(2, lending.Pointer), faulty.Plan{}, nil)
	tell(t, "delay=5000")
	for _, waits := range []bool{true, false} {
		err := w.each(func(m *gputest.Memory, tr nbc.Transport) error {
			s, err := m.Device.NewStream()
			if err != nil {
				return err
			}
			defer s.Close()
			src, err1 := m.Alloc(size)
			dst, err2 := m.Alloc(size)
			want, nothing := mem.Alloc(size), mem.Alloc(size)
			defer want.Free()
			defer nothing.Free()
			copy(mem.Bytes(want), message(tr.Rank(), 0))
			if err := errors.Join(err1, err2); err != nil {
				return err
			}
			for range 30 { // so much comes before it
				err = errors.Join(err, s.Copy(src, nothing))
			}
			if err = errors.Join(err, s.Copy(src, want)); waits {
				err = errors.Join(err, s.Synchronize(time.Minute))
			}
			err = errors.Join(err, tr.Recv(1, 1-tr.Rank(), nbc.Tag{}, dst), tr.Send(2, 1-tr.Rank(), nbc.Tag{}, src), finish(tr, 2, nil), s.Synchronize(time.Minute))
			data := make([]byte, size)
			if err = errors.Join(err, m.Read(data, dst)); err == nil && !bytes.Equal(data, message(1-tr.Rank(), 0)) {
				err = errOther
			}
			return err
		})
		switch {
		case waits && err != nil:
			t.Errorf("what was waited for: %v", err)
		case !waits && !errors.Is(err, errOther):
			t.Errorf("what was not waited for: %v", err)
		}
	}
}

// A GPU that fails under way ends operations with one message that names it.
func TestGPUFails(t *testing.T) {
	for _, what := range []string{"fail=cuLaunchKernel:1:719", "broken=700"} {
		w := ofProcess(t, []int{0}, all(1, lending.Pointer), faulty.Plan{}, nil)
		m, s := w.memory[0], w.ranks[0]
		src, err1 := m.Alloc(size)
		dst, err2 := m.Alloc(size)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		tell(t, what)
		err := errors.Join(s.Send(1, 0, nbc.Tag{}, src), s.Recv(2, 0, nbc.Tag{}, dst))
		if err == nil {
			err = finish(s, 2, nil)
		}
		if err == nil || strings.Count(err.Error(), "cuda:0 (stand-in 0)") != 1 {
			t.Errorf("%s: %v", what, err)
		}
		tell(t, usual)
	}
}

// A transport that has been drained leaves memory alone that may then be freed.
func TestDrain(t *testing.T) {
	begun := make([]gputest.Begun, 2)
	rank := 0
	w := ofProcess(t, []int{0, 0}, all(2, lending.Pointer), faulty.Plan{}, func(a nbc.Accelerator) nbc.Accelerator {
		rank++
		return begun[rank-1].Of(a)
	})
	gputest.Drains(t, w.ranks, w.memory[0], &begun[0], func() { tell(t, "delay=1000") })
}

// What cannot be had is refused.
func TestRefuses(t *testing.T) {
	w := ofProcess(t, []int{0, 0}, all(2, lending.Pointer), faulty.Plan{}, nil)
	m, s := w.memory[0], w.ranks[0]
	b, err := m.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	c := s.(nbc.Carrier)
	if !c.Carries(mem.Host) || !c.Carries(mem.CUDA) || c.Carries(mem.CUDA+1) {
		t.Error("it carries other memory than it is for")
	}
	set := s.(interface{ SetPaths(lending.Paths) error }).SetPaths
	for name, err := range map[string]error{
		"send to no rank":                  s.Send(1, 2, nbc.Tag{}, b),
		"receive from no rank":             s.Recv(1, -1, nbc.Tag{}, b),
		"borrow from no rank":              c.RecvBorrowIn(mem.CUDA, 1, 2, nbc.Tag{}, 8),
		"borrow of less than 0":            c.RecvBorrowIn(mem.CUDA, 1, 1, nbc.Tag{}, -1),
		"paths of others":                  set(lending.NewPaths(3)),
		"a library that is not CUDA-aware": set(all(2, lending.MPI)),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	// Ranks with other paths: what is a note to one is no message to the other.
	if err := set(all(2, lending.IPC)); err != nil {
		t.Fatal(err)
	}
	foreign := mem.At(b.Pointer(), 1<<30, mem.CUDA)
	if err := s.Send(1, 1, nbc.Tag{}, foreign); err == nil || !strings.Contains(err.Error(), "no part of what Alloc returned") {
		t.Errorf("memory of others: %v", err)
	}
	if err := errors.Join(s.Send(1, 1, nbc.Tag{}, b), w.ranks[1].Recv(2, 0, nbc.Tag{}, b)); err != nil {
		t.Fatal(err)
	}
	if err := finish(w.ranks[1], 1, nil); err == nil || !strings.Contains(err.Error(), "rank 0 sends by the path ipc, and rank 1 receives by pointer") {
		t.Errorf("two paths: %v", err)
	}
}

func TestPathsInWords(t *testing.T) {
	p := all(6, lending.IPC)
	for r := range p {
		p[r][5], p[5][r] = lending.Staging, lending.Staging
	}
	p[0][1], p[1][0] = lending.Pointer, lending.Pointer
	want := "ranks 0-1: pointer; ranks 0-1 with ranks 2-4: ipc; ranks 0-1 with rank 5: staging; ranks 2-4: ipc; ranks 2-4 with rank 5: staging"
	if got := strings.Join(p.Lines(), "; "); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := strings.Join(all(4, lending.Pointer).Lines(), "; "); got != "ranks 0-3: pointer" {
		t.Error(got)
	}
	for _, path := range []lending.Path{lending.Staging, lending.Pointer, lending.IPC, lending.MPI} {
		if got, err := lending.ParsePath(path.String()); err != nil || got != path {
			t.Errorf("%v is parsed as %v, %v", path, got, err)
		}
	}
	if _, err := lending.ParsePath("nvlink"); err == nil {
		t.Error("an unknown path is accepted")
	}
}
