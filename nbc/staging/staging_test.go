//go:build cuda && cgo && linux && (amd64 || arm64)

package staging_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/faulty"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/nbc/internal/gputest"
	"github.com/scaffe/scaffe/nbc/staging"
	"github.com/scaffe/scaffe/nbc/transporttest"
)

// library is the stand-in for the driver that the tests load.
var library string

func TestMain(m *testing.M) { os.Exit(cudatest.Main(m, &library, usual)) }

const usual = "delay=20 seed=1 fail=none broken=0 visible=0"

// tell changes what the stand-in is like, until the test ends.
func tell(t *testing.T, text string) {
	t.Helper()
	cudatest.Change(t, library, text, usual)
}

// world is transports of ranks that share the GPU.
type world struct {
	ranks  []nbc.Transport
	memory []*gputest.Memory
}

// stack opens n ranks, each over what below makes of its transport, with copies by what spoilt makes of its
// accelerator; nil leaves either as it is.
func stack(t *testing.T, n int, seed uint64, o staging.Options, below func(nbc.Transport) nbc.Transport, spoilt func(nbc.Accelerator) nbc.Accelerator) *world {
	t.Helper()
	w, all := inproc.NewWorld(n, inproc.Options{Seed: seed}), &world{}
	for r := range n {
		inner, err := w.Open(r)()
		if err != nil {
			t.Fatal(err)
		}
		if below != nil {
			inner = below(inner)
		}
		m := gputest.Open(t, 0)
		a, err := m.Accelerator()
		if err != nil {
			t.Fatal(err)
		}
		if spoilt != nil {
			a = spoilt(a)
		}
		s := staging.New(inner, a, o)
		t.Cleanup(func() {
			if err := errors.Join(s.Close(), s.Close()); err != nil {
				t.Error(err)
			}
		})
		all.ranks, all.memory = append(all.ranks, s), append(all.memory, m)
	}
	return all
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

// Transports of both memories pass the suite of host memory, of device memory, and of messages between
// the two, over one that delays and reorders, with rings for many messages and for hardly any, and with messages that are cut.
func TestConformance(t *testing.T) {
	for _, c := range []struct {
		ranks int
		ring  int
		piece int
		plan  faulty.Plan
		views string
	}{
		{1, 0, 0, faulty.Plan{}, "device"},
		{2, 0, 0, faulty.Plan{Seed: 1, Delay: 4, Reorder: true}, "host, device"},
		{2, 1 << 20, 0, faulty.Plan{Seed: 2, Delay: 2}, "both"},
		{3, 1, 0, faulty.Plan{Seed: 3, Delay: 4, Reorder: true}, "device, both"},
		{1, 0, 1, faulty.Plan{Seed: 4}, "device"},
		{2, 64 << 10, 1, faulty.Plan{Seed: 5, Delay: 4, Reorder: true}, "host, device"},
		{2, 1, 1, faulty.Plan{Seed: 6, Delay: 2, Reorder: true}, "device"},
	} {
		w := stack(t, c.ranks, c.plan.Seed, staging.Options{Ring: c.ring, Piece: c.piece}, func(inner nbc.Transport) nbc.Transport { return faulty.Wrap(inner, c.plan) }, nil)
		for _, as := range []struct {
			name string
			as   func(m *gputest.Memory, t nbc.Transport) nbc.Transport
		}{
			{"host", func(_ *gputest.Memory, t nbc.Transport) nbc.Transport { return t }},
			{"device", func(m *gputest.Memory, t nbc.Transport) nbc.Transport { return transporttest.In(m, t, false) }},
			{"both", func(m *gputest.Memory, t nbc.Transport) nbc.Transport { return transporttest.In(m, t, true) }},
		} {
			for _, k := range transporttest.Cases() {
				if !strings.Contains(c.views, as.name) || as.name != "host" && k.Name == "handed over at once" { // which device memory is not
					continue
				}
				t.Run(fmt.Sprintf("%d ranks, ring %d, piece %d, %v/%s/%s", c.ranks, c.ring, c.piece, c.plan, as.name, k.Name), func(t *testing.T) {
					if err := w.each(func(m *gputest.Memory, t nbc.Transport) error { return k.Run(as.as(m, t)) }); err != nil {
						t.Fatal(err)
					}
				})
			}
		}
		if err := w.each(func(_ *gputest.Memory, t nbc.Transport) error { return transporttest.Abort(t) }); err != nil {
			t.Errorf("abort: %v", err)
		}
	}
}

// aware carries a GPU's memory as a CUDA-aware MPI library does: the host reaches it.
type aware struct {
	nbc.Transport
	taken *int // messages in a GPU's memory, at either end
}

func (a aware) CarriesWith(int, mem.Space) bool { return true }

func (a aware) Notify(to int, notice []byte) error {
	return a.Transport.(nbc.Notifier).Notify(to, notice)
}

func (a aware) NextNotice(buf []byte) (from, length int) {
	return a.Transport.(nbc.Notifier).NextNotice(buf)
}

func (a aware) reached(b mem.Buffer) mem.Buffer {
	if b.Space() == mem.CUDA {
		*a.taken++
		return mem.At(b.Pointer(), b.Len(), mem.Host)
	}
	return b
}

func (a aware) Send(tok nbc.Token, to int, tag nbc.Tag, src mem.Buffer) error {
	return a.Transport.Send(tok, to, tag, a.reached(src))
}

func (a aware) Recv(tok nbc.Token, from int, tag nbc.Tag, dst mem.Buffer) error {
	return a.Transport.Recv(tok, from, tag, a.reached(dst))
}

// Messages that are direct pass the suite, of device memory and between the two, and nothing is copied or cut.
func TestDirect(t *testing.T) {
	taken, begun := make([]int, 3), gputest.Begun{}
	n := 0
	w := stack(t, len(taken), 7, staging.Options{Ring: 1, Piece: 1}, func(inner nbc.Transport) nbc.Transport {
		n++
		return aware{inner, &taken[n-1]}
	}, begun.Of)
	tell(t, "visible=1")
	for _, r := range w.ranks {
		s := r.(interface{ SetDirect(with []bool) error })
		if err := s.SetDirect(make([]bool, 2)); err == nil {
			t.Error("which messages of 2 ranks are direct, of 3 ranks: no error")
		}
		if err := s.SetDirect([]bool{true, true, true}); err != nil {
			t.Fatal(err)
		}
	}
	for _, mixed := range []bool{false, true} {
		for _, k := range transporttest.Cases() {
			if k.Name == "handed over at once" { // which device memory is not
				continue
			}
			t.Run(fmt.Sprintf("mixed %v/%s", mixed, k.Name), func(t *testing.T) {
				if err := w.each(func(m *gputest.Memory, t nbc.Transport) error { return k.Run(transporttest.In(m, t, mixed)) }); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
	if begun.Count() > 0 {
		t.Errorf("%d copies were begun", begun.Count())
	}
	if err := w.each(pour); err != nil {
		t.Error(err)
	}
	if slices.Contains(taken, 0) {
		t.Errorf("the transport below was handed %d messages in a GPU's memory", taken)
	}
	other := stack(t, 2, 8, staging.Options{}, nil, nil).ranks[0]
	if err := other.(interface{ SetDirect(with []bool) error }).SetDirect([]bool{false, true}); err == nil || !strings.Contains(err.Error(), "takes no cuda memory for messages with rank 1") {
		t.Errorf("direct over a transport of host memory: %v", err)
	}
}

// messages are how many pour sends, and how many bytes each has.
const messages, size = 24, 40_000

func message(from, i int) []byte {
	b := make([]byte, size)
	for k := range b {
		b[k] = byte(from*31 + i*7 + k*k>>5)
	}
	return b
}

// pour sends messages to the next rank, all at once, and says what is wrong with those that come.
func pour(m *gputest.Memory, t nbc.Transport) error {
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
		if err := errors.Join(t.Recv(nbc.Token(2*i), from, tag, got[i]), t.Send(nbc.Token(2*i+1), to, tag, sent[i])); err != nil {
			return err
		}
	}
	if err := finish(t, 2*messages); err != nil {
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

var errOther = errors.New("it has other contents than what was sent")

// finish polls until n operations have ended.
func finish(t nbc.Transport, n int) error {
	var done [8]nbc.Completion
	for end := time.Now().Add(time.Minute); n > 0; {
		k, err := t.Poll(done[:])
		for _, c := range done[:k] {
			err = errors.Join(err, c.Err)
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

// hasty says that copies downwards have been made when they have only begun.
type hasty struct {
	nbc.Accelerator
	said map[nbc.Token]int // how often of each
}

func (h hasty) Copy(tok nbc.Token, dst, src mem.Buffer) (bool, error) {
	done, err := h.Accelerator.Copy(tok, dst, src)
	if done || err != nil || src.Space() != mem.CUDA {
		return done, err
	}
	h.said[tok]++
	return true, nil
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

// generous gives slots back when copies out of them have only begun.
type generous struct {
	nbc.Accelerator
	t *nbc.Transport
}

func (g generous) Copy(tok nbc.Token, dst, src mem.Buffer) (bool, error) {
	done, err := g.Accelerator.Copy(tok, dst, src)
	if dst.Space() == mem.CUDA {
		staging.GiveBack(*g.t, tok)
	}
	return done, err
}

// The stand-in shows which waits are missing: for the copy before a send, and for the one
// after a receive before its slot is given back to the next message, or to the next piece of the same.
func TestMissingWaitsAreSeen(t *testing.T) {
	for name, spoilt := range map[string]func(a nbc.Accelerator, t *nbc.Transport) nbc.Accelerator{
		"none": func(a nbc.Accelerator, _ *nbc.Transport) nbc.Accelerator { return a },
		"send": func(a nbc.Accelerator, _ *nbc.Transport) nbc.Accelerator { return hasty{a, map[nbc.Token]int{}} },
		"slot": func(a nbc.Accelerator, t *nbc.Transport) nbc.Accelerator { return generous{a, t} },
	} {
		for _, o := range []staging.Options{{Ring: 1}, {Ring: 16 * least, Piece: least}} {
			at := make([]nbc.Transport, 2)
			next := 0
			w := stack(t, 2, 0, o, nil, func(a nbc.Accelerator) nbc.Accelerator {
				next++
				return spoilt(a, &at[next-1])
			})
			copy(at, w.ranks)
			tell(t, "delay=300")
			switch err := w.each(pour); {
			case name == "none" && err != nil:
				t.Errorf("nothing is missing: %v", err)
			case name != "none" && !errors.Is(err, errOther):
				t.Errorf("%s, %+v: %v", name, o, err)
			}
		}
	}
}

// Ranks whose sends wait for receives that their peers post last come to an end, with a ring for one
// message, or one piece; and no more is pinned than was in use.
func TestFullRing(t *testing.T) {
	fullRing(t, staging.Options{Ring: 1}, 1<<16)
	fullRing(t, staging.Options{Ring: 1, Piece: least}, least)
}

func fullRing(t *testing.T, o staging.Options, slot int) {
	t.Helper()
	w := stack(t, 2, 0, o, nil, nil)
	err := w.each(func(m *gputest.Memory, t nbc.Transport) error {
		peer, sent := 1-t.Rank(), 0
		var dst []mem.Buffer
		for i := range messages { // in one order
			src, err := m.Alloc(size)
			if err := errors.Join(err, m.Write(src, message(t.Rank(), i)), t.Send(nbc.Token(i), peer, nbc.Tag{Message: uint32(i)}, src)); err != nil {
				return err
			}
			b, err := m.Alloc(size)
			if err != nil {
				return err
			}
			dst = append(dst, b)
		}
		for k := range messages { // and one after the other in the opposite one
			i := messages - 1 - k
			if err := t.Recv(nbc.Token(messages+i), peer, nbc.Tag{Message: uint32(i)}, dst[i]); err != nil {
				return err
			}
			if err := finish(only{t, nbc.Token(messages + i), &sent}, 1); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
			data := make([]byte, size)
			if err := m.Read(data, dst[i]); err != nil || !bytes.Equal(data, message(peer, i)) {
				return fmt.Errorf("message %d: %w", i, errors.Join(err, errOther))
			}
		}
		return finish(t, messages-sent) // the peer may want more of it
	})
	if err != nil {
		t.Fatal(err)
	}
	for r, s := range w.ranks {
		if n := staging.Pinned(s); n > (messages+2)*slot {
			t.Errorf("rank %d has %d bytes pinned", r, n)
		}
	}
}

// only reports the end of one operation, and counts others.
type only struct {
	nbc.Transport
	tok    nbc.Token
	others *int
}

func (o only) Poll(done []nbc.Completion) (int, error) {
	n, err := o.Transport.Poll(done)
	ended := 0
	for _, c := range done[:n] {
		if err = errors.Join(err, c.Err); c.Token == o.tok {
			done[0], ended = c, 1
		}
	}
	*o.others += n - ended
	return ended, err
}

// Within its bound, to which patience adds little, a ring is used again and again: for half of what
// messages on both sides would have without one.
func TestRingIsBounded(t *testing.T) {
	for piece, slot := range map[int]int{0: 1 << 16, least: least} {
		w := stack(t, 2, 0, staging.Options{Ring: 4 * slot, Piece: piece}, nil, nil)
		for range 3 {
			if err := w.each(pour); err != nil {
				t.Fatal(err)
			}
		}
		for r, s := range w.ranks {
			if n := staging.Pinned(s); n < 2*slot || n > messages*slot {
				t.Errorf("pieces of %d: rank %d has %d bytes pinned", piece, r, n)
			}
		}
	}
}

// A GPU that fails under way ends operations with one message that names it.
func TestGPUFails(t *testing.T) {
	for _, what := range []string{"fail=cuMemcpyDtoHAsync_v2:1:700", "fail=cuMemcpyHtoDAsync_v2:1:700", "fail=cuMemHostAlloc:1:2", "broken=700"} {
		w := stack(t, 1, 0, staging.Options{}, nil, nil)
		m, s := w.memory[0], w.ranks[0]
		b, err := m.Alloc(size)
		if err != nil {
			t.Fatal(err)
		}
		tell(t, what)
		err = s.Send(1, 0, nbc.Tag{}, b)
		if err == nil {
			err = s.Recv(2, 0, nbc.Tag{}, b)
		}
		if err == nil {
			err = finish(s, 2)
		}
		if err == nil || strings.Count(err.Error(), "cuda:0 (stand-in 0)") != 1 {
			t.Errorf("%s: %v", what, err)
		}
		tell(t, usual)
	}
}

// A transport that has been drained leaves memory alone that may then be freed.
func TestDrain(t *testing.T) {
	for _, piece := range []int{0, least} {
		begun := make([]gputest.Begun, 2)
		rank := 0
		w := stack(t, 2, 0, staging.Options{Piece: piece}, nil, func(a nbc.Accelerator) nbc.Accelerator {
			rank++
			return begun[rank-1].Of(a)
		})
		gputest.Drains(t, w.ranks, w.memory[0], &begun[0], func() { tell(t, "delay=1000") })
		tell(t, usual)
	}
}

// What cannot be had is refused.
func TestRefuses(t *testing.T) {
	w := stack(t, 2, 0, staging.Options{}, nil, nil)
	m, s := w.memory[0], w.ranks[0]
	b, err := m.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free(b)
	c := s.(nbc.Carrier)
	if !c.Carries(mem.Host) || !c.Carries(mem.CUDA) || c.Carries(mem.CUDA+1) {
		t.Error("it carries other memory than it is for")
	}
	for name, err := range map[string]error{
		"send to no rank":         s.Send(1, 2, nbc.Tag{}, b),
		"receive from no rank":    s.Recv(1, -1, nbc.Tag{}, b),
		"borrow from no rank":     c.RecvBorrowIn(mem.CUDA, 1, 2, nbc.Tag{}, 8),
		"borrow of less than 0":   c.RecvBorrowIn(mem.CUDA, 1, 1, nbc.Tag{}, -1),
		"send of unknown memory":  s.Send(1, 1, nbc.Tag{}, mem.At(b.Pointer(), 8, mem.CUDA+1)),
		"borrow in other memory":  c.RecvBorrowIn(mem.CUDA+1, 1, 1, nbc.Tag{}, 8),
		"receive in other memory": s.Recv(1, 1, nbc.Tag{}, mem.At(b.Pointer(), 8, mem.CUDA+1)),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
