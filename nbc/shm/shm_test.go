//go:build linux && (amd64 || arm64)

package shm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/internal/host"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/nbc/transporttest"
)

// bound is a transport of one thread, that knows who has its cores.
type bound struct {
	nbc.Transport
	nbc.Notifier
	nbc.Topology
	rivals int // of rank 1
}

// Rivals returns how many ranks of other nodes have this rank's cores.
func (b bound) Rivals() int {
	if b.Rank() != 1 {
		return 0
	}
	return b.rivals
}

// world opens a transport for every rank of one process, over inproc. Ranks
// with equal nodes share memory.
func world(t *testing.T, opts Options, nodes ...int) []nbc.Transport {
	t.Helper()
	return hosted(t, opts, 0, nodes...)
}

// hosted is world where so many ranks of other nodes have rank 1's cores.
func hosted(t *testing.T, opts Options, rivals int, nodes ...int) []nbc.Transport {
	t.Helper()
	if processes() > 1 {
		t.Skip("for one process; under mpirun the tests over MPI run")
	}
	w := inproc.NewWorld(len(nodes), inproc.Options{Nodes: nodes})
	opts.Room = 1 << 30
	ts := make([]nbc.Transport, len(nodes))
	err := each(len(nodes), func(r int) (err error) {
		inner, err := w.Open(r)()
		if err == nil {
			ts[r], err = New(bound{inner, inner.(nbc.Notifier), inner.(nbc.Topology), rivals}, opts)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

func (t *Transport) base() *Transport { return t }

const within = 30 * time.Second

// each runs one rank's part on all ranks together.
func each(n int, run func(r int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() { errs[r] = run(r) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func TestConformance(t *testing.T) {
	for _, w := range []struct {
		name  string
		opts  Options
		nodes []int
	}{
		{"2 ranks", Options{}, []int{0, 0}},
		{"5 ranks", Options{}, []int{0, 0, 0, 0, 0}},
		{"2 nodes", Options{}, []int{0, 0, 1, 1}},
		{"one alone", Options{}, []int{0, 1, 0}},
		{"3 ranks, no process_vm_readv", Options{forbidVM: true}, []int{0, 0, 0}},
		{"3 ranks, nothing shared", Options{forbidMap: true}, []int{0, 0, 0}},
		{"3 ranks, two copiers", Options{forceShare: true}, []int{0, 0, 0}},
		{"3 ranks, two copiers, no process_vm_readv", Options{forceShare: true, forbidVM: true}, []int{0, 0, 0}},
		{"2 ranks, one copier", Options{forbidShare: true}, []int{0, 0}},
	} {
		t.Run(w.name, func(t *testing.T) {
			ts := world(t, w.opts, w.nodes...)
			for _, c := range transporttest.Cases() {
				t.Run(c.Name, func(t *testing.T) { all(t, ts, c.Run) })
			}
			for r, x := range ts {
				if s := base(x); s != nil && (s.active != 0 || s.table.count != 0 || len(s.lent) != 0 || s.innerActive != 0) {
					t.Errorf("rank %d is left with %d operations, %d entries, %d lent, %d of inner",
						r, s.active, s.table.count, len(s.lent), s.innerActive)
				}
			}
			t.Run("abort", func(t *testing.T) {
				all(t, ts, func(x nbc.Transport) error {
					return errors.Join(transporttest.Abort(x), x.Close(), x.Close())
				})
			})
		})
	}
}

// all runs one rank's part on all transports together.
func all(t *testing.T, ts []nbc.Transport, run func(nbc.Transport) error) {
	t.Helper()
	if err := each(len(ts), func(r int) error { return run(ts[r]) }); err != nil {
		t.Fatal(err)
	}
}

// base returns the Transport in t; nil where that is not over shared memory.
func base(t nbc.Transport) *Transport {
	if b, ok := t.(interface{ base() *Transport }); ok {
		return b.base()
	}
	return nil
}

// drain waits for n operations that must succeed, and releases them.
func drain(t nbc.Transport, n int) error { return drainInto(make([]nbc.Completion, 8), t, n) }

func drainInto(done []nbc.Completion, t nbc.Transport, n int) error {
	for until := time.Now().Add(within); n > 0; {
		k, err := t.Poll(done)
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

// TestFallback: ranks that cannot share memory use the inner transport,
// and say so.
func TestFallback(t *testing.T) {
	for want, opts := range map[string]Options{
		"may not read each other's private memory": {forbidVM: true},
		"shares memory with 0 of the 1 other":      {forbidMap: true},
		"has no memory to share":                   {forbidArena: true},
	} {
		var said []string
		opts.Warn = func(s string) { said = append(said, s) }
		ts := world(t, opts, 0, 0)
		if len(said) != 1 || !strings.Contains(said[0], want) {
			t.Errorf("rank 0 was to say that it %s; said: %q", want, said)
		}
		all(t, ts, transporttest.Cases()[0].Run)
		all(t, ts, nbc.Transport.Close)
	}
	all(t, world(t, Options{Warn: func(s string) { t.Errorf("a warning with nothing amiss: %s", s) }}, 0, 0), nbc.Transport.Close)
}

func TestBorrowedIsTheSendersMemory(t *testing.T) {
	ts := world(t, Options{}, 0, 0)
	all(t, ts, func(x nbc.Transport) error {
		const n = 10_000
		tag := nbc.Tag{Instance: 1}
		if x.Rank() == 0 {
			src, err := x.(nbc.Allocator).Alloc(n)
			if err != nil {
				return err
			}
			mem.Bytes(src)[n-1] = 7
			if err := errors.Join(x.Send(1, 1, tag, src), drain(x, 1)); err != nil {
				return err
			}
			if got := mem.Bytes(src)[0]; got != 9 {
				return fmt.Errorf("byte 0 is %d, not the 9 that the borrower wrote", got)
			}
			x.(nbc.Allocator).Free(src)
			return nil
		}
		if err := x.RecvBorrow(1, 0, tag, n); err != nil {
			return err
		}
		var done [1]nbc.Completion
		for done[0].Token == 0 {
			if _, err := x.Poll(done[:]); err != nil {
				return err
			}
			x.Park(time.Millisecond)
		}
		b := mem.Bytes(done[0].Data)
		if b[n-1] != 7 {
			return fmt.Errorf("the last byte is %d", b[n-1])
		}
		b[0] = 9 // no borrower should; it shows that there is no copy
		x.Release(1)
		return nil
	})
	all(t, ts, nbc.Transport.Close)
}

// Ranks of a node whose cores other nodes have, too, share cores, even where only one of them knows.
func TestRivalsShareTheNodesCores(t *testing.T) {
	for rivals, want := range map[int]int{0: yieldsAlone, 4096: yieldsShared} {
		ts := hosted(t, Options{}, rivals, 0, 0)
		for r, tr := range ts {
			got := tr.(interface{ base() *Transport }).base()
			if cores := host.Allowed().Count(); rivals == 0 && cores < len(ts) {
				t.Skipf("%d core for %d ranks", cores, len(ts))
			}
			if got.rest.Yields != want || got.shares != (rivals == 0) {
				t.Errorf("with %d rivals rank %d offers its core %d times, and both copy: %v", rivals, r, got.rest.Yields, got.shares)
			}
		}
		all(t, ts, nbc.Transport.Close)
	}
}

// TestTheReceiverReads: a message in private memory is read by its receiver while the
// sender does nothing: to add it, or, where ranks share cores; as part of more than
// the caches hold the sender copies it, where ranks share cores before it is asked. What it borrows lies in memory that is used again.
func TestTheReceiverReads(t *testing.T) {
	const n = 3 << 20
	for _, c := range []struct {
		what            string
		opts            Options
		expected        int
		both            bool // the sender expects as much
		borrows, copies bool // by the receiver; by the sender
		ahead           bool // before it is asked
	}{
		{what: "borrows, a core each", opts: Options{forceShare: true}, borrows: true},
		{what: "borrows, cores shared", opts: Options{forbidShare: true}, borrows: true},
		{what: "borrows of more than the caches hold", opts: Options{forbidShare: true}, expected: kernels.StreamFrom, borrows: true, copies: true},
		{what: "borrows of more than the caches hold, copied ahead", opts: Options{forbidShare: true}, expected: kernels.StreamFrom, both: true, borrows: true, copies: true, ahead: true},
		{what: "borrows of more than the caches hold, a core each", opts: Options{forceShare: true}, expected: kernels.StreamFrom, both: true, borrows: true, copies: true},
		{what: "receives, cores shared", opts: Options{forbidShare: true}},
		{what: "receives of more than the caches hold", opts: Options{forbidShare: true}, expected: kernels.StreamFrom, copies: true},
		{what: "borrows, forbidden", opts: Options{forbidVM: true}, borrows: true, copies: true},
	} {
		t.Run(c.what, func(t *testing.T) {
			ts := world(t, c.opts, 0, 0)
			src, dst := mem.Alloc(n), mem.Alloc(n)
			for i := range n {
				mem.Bytes(src)[i] = byte(i >> 10)
			}
			var first mem.Buffer
			for round := range 3 {
				tag := nbc.Tag{Instance: uint32(round)}
				clear(mem.Bytes(dst))
				begin := func() error { return ts[1].Recv(1, 0, tag, dst) }
				if c.borrows {
					begin = func() error { return ts[1].RecvBorrow(1, 0, tag, n) }
				}
				ts[1].(nbc.Expecter).Expect(c.expected)
				if c.both {
					ts[0].(nbc.Expecter).Expect(c.expected)
				}
				if err := errors.Join(ts[0].Send(1, 1, tag, src), begin()); err != nil {
					t.Fatal(err)
				}
				var done [1]nbc.Completion
				for polls, k := 0, 0; k == 0; polls++ {
					var err error
					if k, err = ts[1].Poll(done[:]); err != nil || done[0].Err != nil {
						t.Fatal(err, done[0].Err)
					}
					if looks := n / copyChunk; k > 0 == (c.copies && !c.ahead) && polls == looks {
						t.Fatalf("after %d looks of the receiver alone the message is there: %v", looks, k > 0)
					} else if polls > looks && k == 0 {
						if _, err := ts[0].Poll(nil); err != nil {
							t.Fatal(err)
						}
					}
				}
				data := dst
				if c.borrows {
					data = done[0].Data
				}
				if !bytes.Equal(mem.Bytes(data), mem.Bytes(src)) {
					t.Fatal("another message has come")
				}
				if first.Len() == 0 {
					first = data
				} else if !data.Same(first) {
					t.Error("the memory that a receiver gave back is not used again")
				}
				if copied := base(ts[0]).filled > 0; copied != c.copies {
					t.Errorf("the sender has copied: %v", copied)
				}
				if c.borrows {
					ts[1].Release(1)
				}
				if err := drain(ts[0], 1); err != nil {
					t.Fatal(err)
				}
			}
			all(t, ts, nbc.Transport.Close)
		})
	}
}

// TestWhatIsBorrowedLandsWhereTheCallerLikes: a message in private memory is copied to there, unless the collective is larger than the caches;
// one in registered memory is read in place.
func TestWhatIsBorrowedLandsWhereTheCallerLikes(t *testing.T) {
	const n = 300_000
	for _, c := range []struct {
		what                string
		registered, removed bool // the message's memory; its copy is elsewhere than the caller likes
		expected            int
	}{
		{what: "private", expected: n},
		{what: "private, larger than the caches", expected: kernels.StreamFrom, removed: true},
		{what: "registered", expected: n, registered: true, removed: true},
	} {
		t.Run(c.what, func(t *testing.T) {
			ts := world(t, Options{forceShare: true}, 0, 0)
			src, dst := mem.Alloc(n), mem.Alloc(n)
			if c.registered {
				var err error
				if src, err = ts[0].(nbc.Allocator).Alloc(n); err != nil {
					t.Fatal(err)
				}
			}
			for i := range n {
				mem.Bytes(src)[i] = byte(i >> 10)
			}
			var done [1]nbc.Completion
			if err := each(2, func(r int) error {
				tag := nbc.Tag{Instance: 1}
				ts[r].(nbc.Expecter).Expect(c.expected)
				if r == 0 {
					return errors.Join(ts[0].Send(1, 1, tag, src), drain(ts[0], 1))
				}
				err := errors.Join(ts[1].(nbc.Lander).RecvBorrowTo(1, 0, tag, dst), drainInto(done[:], ts[1], 1))
				if err == nil && !bytes.Equal(mem.Bytes(done[0].Data), mem.Bytes(src)) {
					err = errors.New("another message has come")
				}
				ts[1].Release(1)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if done[0].Data.Same(dst) == c.removed {
				t.Errorf("the message lies where the caller likes: %v", !c.removed)
			}
			all(t, ts, nbc.Transport.Close)
		})
	}
}

// TestTheLaterCopies: a receive that was there first is put into by the
// sender, which therefore ends while the receiver does nothing.
func TestTheLaterCopies(t *testing.T) {
	ts := world(t, Options{}, 0, 0)
	const n = 100_000
	tag := nbc.Tag{Instance: 1}
	dst, err := ts[1].(nbc.Allocator).Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	src, err := ts[0].(nbc.Allocator).Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	mem.Bytes(src)[n-1] = 7
	if err := errors.Join(ts[1].Recv(1, 0, tag, dst), ts[0].Send(1, 1, tag, src)); err != nil {
		t.Fatal(err) // rank 0 has not looked into its ring: they cross
	}
	var done [4]nbc.Completion
	for range 3 {
		if k, err := ts[0].Poll(done[:]); k != 0 || err != nil {
			t.Fatalf("the sender has ended (%d, %v) before the receiver got the message", k, err)
		}
	}
	if err := errors.Join(drain(ts[1], 1), drain(ts[0], 1)); err != nil {
		t.Fatal(err)
	}
	if mem.Bytes(dst)[n-1] != 7 {
		t.Error("the receiver did not get the message")
	}
	mem.Bytes(src)[n-1] = 8
	tag.Instance++
	if err := ts[1].Recv(1, 0, tag, dst); err != nil {
		t.Fatal(err)
	}
	if _, err := ts[0].Poll(done[:]); err != nil { // hears of the receive
		t.Fatal(err)
	}
	if err := errors.Join(ts[0].Send(1, 1, tag, src), drain(ts[0], 1)); err != nil {
		t.Fatal(err)
	}
	if mem.Bytes(dst)[n-1] != 8 {
		t.Error("the sender did not put the message")
	}
	if err := drain(ts[1], 1); err != nil {
		t.Fatal(err)
	}
	all(t, ts, nbc.Transport.Close)
}

func TestMessagesAllocateNothing(t *testing.T) {
	ts := world(t, Options{}, 0, 0)
	reg, err := ts[0].(nbc.Allocator).Alloc(100_000)
	if err != nil {
		t.Fatal(err)
	}
	private := mem.Alloc(100_000)
	var failed error
	var tag nbc.Tag
	done := make([]nbc.Completion, 8)
	both := func() error {
		for left, until := 2, time.Now().Add(within); left > 0; {
			for _, x := range ts {
				k, err := x.Poll(done)
				if err != nil {
					return err
				}
				for _, c := range done[:k] {
					err = errors.Join(err, c.Err)
					x.Release(c.Token)
				}
				if left -= k; err != nil {
					return err
				}
			}
			if time.Now().After(until) {
				return errors.New("the message never ended")
			}
		}
		return nil
	}
	exchange := func() {
		for _, src := range []mem.Buffer{reg, private, reg.Slice(0, 100)} {
			tag.Instance++
			failed = errors.Join(failed, ts[1].RecvBorrow(1, 0, tag, src.Len()), ts[0].Send(1, 1, tag, src), both())
			tag.Message++
			failed = errors.Join(failed, ts[1].Recv(1, 0, tag, private.Slice(0, src.Len())), ts[0].Send(1, 1, tag, src), both())
		}
	}
	for range 10 {
		exchange()
	}
	if failed != nil {
		t.Fatal(failed)
	}
	if n := testing.AllocsPerRun(200, exchange); n != 0 {
		t.Errorf("%v allocations for six messages", n)
	}
	if failed != nil {
		t.Error(failed)
	}
	all(t, ts, nbc.Transport.Close)
}

func TestAClosedTransportSaysSo(t *testing.T) {
	ts := world(t, Options{}, 0, 0)
	x := ts[0]
	b, err := x.(nbc.Allocator).Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	all(t, ts, nbc.Transport.Close)
	mem.Bytes(b)[99] = 1 // what was not freed is still there
	x.(nbc.Allocator).Free(b)
	_, polled := x.Poll(nil)
	_, allocated := x.(nbc.Allocator).Alloc(1)
	for _, err := range []error{
		polled, allocated, x.Send(1, 1, nbc.Tag{}, mem.Buffer{}), x.Recv(1, 1, nbc.Tag{}, mem.Buffer{}),
		x.RecvBorrow(1, 1, nbc.Tag{}, 1), x.Abort(context.Background(), "late"),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("a closed transport answered %v", err)
		}
	}
	x.Wake()
	x.Park(time.Hour)
}

func TestDeviceMemoryIsRefused(t *testing.T) {
	ts := world(t, Options{}, 0, 0)
	var x [8]byte
	device := mem.At(unsafe.Pointer(&x), len(x), mem.CUDA)
	if ts[0].Send(1, 1, nbc.Tag{}, device) == nil || ts[0].Recv(1, 1, nbc.Tag{}, device) == nil {
		t.Error("device memory was accepted")
	}
	all(t, ts, nbc.Transport.Close)
}

// TestArena allocates and frees at random; a map of who has which byte is the
// reference implementation.
func TestArena(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const room = 8 << 20
		h, err := openArena(newLayout(2, room), Options{})
		if err != nil {
			t.Fatal(err)
		}
		var live []mem.Buffer
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(live) > 0 && rapid.Bool().Draw(t, "free") {
				i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				h.release(live[i])
				live = append(live[:i], live[i+1:]...)
				continue
			}
			b, err := h.alloc(rapid.SampledFrom([]int{1, 4096, 5000, 300_000, 2 << 20}).Draw(t, "bytes"))
			if err != nil {
				continue // full
			}
			for _, x := range mem.Bytes(b) {
				if x != 0 {
					t.Fatal("new memory is not zeroed")
				}
			}
			for _, o := range live {
				if o.Overlaps(b) {
					t.Fatal("a byte was given twice")
				}
			}
			if off, ok := h.find(b); !ok || off+b.Len() > room || uintptr(b.Pointer())%mem.Alignment != 0 {
				t.Fatalf("memory at %d, known %v", off, ok)
			}
			for i := range mem.Bytes(b) {
				mem.Bytes(b)[i] = 0xff
			}
			live = append(live, b)
		}
		for _, b := range live {
			h.release(b)
		}
		if len(h.free) != 1 || h.free[0] != (span{0, room}) {
			t.Fatalf("with all given back there is %v", h.free)
		}
		h.close()
	})
}

// TestKept: memory in the Go heap that a peer was told of is kept when a
// transport is closed with a receive under way, but not where the peer has
// closed before and so will write nothing.
func TestKept(t *testing.T) {
	for _, first := range []int{0, 1} { // which rank closes first; rank 0 has the receive
		ts := world(t, Options{}, 0, 0)
		dst := make([]byte, 10_000)
		if err := ts[0].Recv(1, 1, nbc.Tag{}, mem.Of(dst)); err != nil {
			t.Fatal(err)
		}
		before := len(kept.buffers)
		if err := errors.Join(ts[first].Close(), ts[1-first].Close()); err != nil {
			t.Fatal(err)
		}
		got := kept.buffers[before:]
		if want := 1 - first; len(got) != want {
			t.Errorf("rank %d closes first: %d buffers are kept, not %d", first, len(got), want)
		}
		for _, b := range got {
			if !b.Same(mem.Of(dst)) {
				t.Error("what is kept is another buffer")
			}
		}
	}
}

// TestReading: the system is asked to let peers read only where it wants to be.
func TestReading(t *testing.T) {
	for scope, want := range map[string]bool{"1\n": true, "0\n": false, "2\n": false, "3\n": false, "": false} {
		if asksFor(scope) != want {
			t.Errorf("scope %q: asks is %v", scope, !want)
		}
	}
}
