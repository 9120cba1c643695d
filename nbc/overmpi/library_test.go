package overmpi

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi/mpitest"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
)

// libraryCalls returns one call of every kind over buffers in the Go heap, and
// what they must hold afterwards.
func libraryCalls(me, size int) (calls []nbc.LibraryCall, want []float32) {
	sum := float32(size * (size + 1) / 2)
	own := func() mem.Buffer { return mem.Of([]float32{float32(me + 1), 0, float32(me + 1)}) }
	none := func() mem.Buffer { return mem.Of([]float32{-1, -1, -1}) }
	last := size - 1
	call := func(k schedule.Collective, send, recv mem.Buffer, root int) nbc.LibraryCall {
		return nbc.LibraryCall{Collective: k, Send: send, Recv: recv, Count: 3, Datatype: mem.Float32, Op: mem.Sum, Root: root}
	}
	inPlace, sent := own(), own()
	toRoot := mem.Buffer{} // only the root has room
	if me == last {
		toRoot = none()
	}
	calls = []nbc.LibraryCall{
		call(schedule.Allreduce, own(), none(), 0),
		call(schedule.Allreduce, inPlace, inPlace, 0),
		call(schedule.Reduce, own(), toRoot, last),
		call(schedule.Bcast, mem.Buffer{}, sent, last),
	}
	return calls, []float32{sum, sum, sum, float32(size)}
}

func TestLibraryCollectives(t *testing.T) {
	for _, blocking := range []bool{false, true} {
		mpitest.On(t, with(func(t *Transport) error { return runLibrary(t, blocking) }))
	}
}

// runLibrary begins all calls before it waits for any.
func runLibrary(t *Transport, blocking bool) error {
	calls, want := libraryCalls(t.Rank(), t.Size())
	for i, c := range calls {
		c.Blocking = blocking
		if err := errors.Join(t.Supports(c), t.Begin(nbc.Token(i), c)); err != nil {
			return err
		}
	}
	runtime.GC()
	seen := map[nbc.Token]bool{}
	for until := time.Now().Add(within); len(seen) < len(calls); {
		var done [2]nbc.Completion
		n, err := t.Poll(done[:])
		if err != nil {
			return err
		}
		for _, c := range done[:n] {
			if c.Err != nil || seen[c.Token] {
				return fmt.Errorf("token %d, reported before: %v, error %v", c.Token, seen[c.Token], c.Err)
			}
			seen[c.Token] = true
		}
		if time.Now().After(until) {
			return fmt.Errorf("%d of %d calls ended in %v", len(seen), len(calls), within)
		}
	}
	for i, c := range calls {
		if c.Recv.Len() == 0 {
			continue
		}
		got := mem.Float32s(c.Recv)
		middle := float32(0)
		if got[0] != want[i] || got[1] != middle || got[2] != want[i] {
			return fmt.Errorf("call %d gave %v, want %v, %v, %v", i, got, want[i], middle, want[i])
		}
	}
	if t.active != 0 {
		return fmt.Errorf("%d operations are left", t.active)
	}
	return nil
}

func TestLibraryRefusals(t *testing.T) {
	mpitest.On(t, with(func(t *Transport) error {
		room := mem.Of(make([]float32, 4))
		device := mem.At(room.Pointer(), room.Len(), mem.CUDA)
		for says, c := range map[string]nbc.LibraryCall{
			"cuda memory":            {Collective: schedule.Allreduce, Send: device, Recv: device, Count: 4},
			"no datatype for bf16":   {Collective: schedule.Allreduce, Send: room, Recv: room, Count: 4, Datatype: mem.BFloat16},
			"has 16 bytes, 5 f32":    {Collective: schedule.Bcast, Recv: room, Count: 5},
			"at most 2147483647":     {Collective: schedule.Bcast, Recv: room, Count: 1 << 31},
			"unknown collective 200": {Collective: 200, Send: room, Recv: room, Count: 4},
		} {
			if err := t.Supports(c); err == nil || !strings.Contains(err.Error(), says) {
				return fmt.Errorf("got %v, want an error that says %q", err, says)
			}
		}
		return nil
	}))
}

// TestLibraryParts: equal and unequal parts on the Go heap, in place and not, all under way at once.
func TestLibraryParts(t *testing.T) {
	for _, blocking := range []bool{false, true} {
		for _, v := range []schedule.Collective{schedule.Allgather, schedule.Gather} {
			mpitest.On(t, with(func(t *Transport) error { return runGathers(t, v, blocking) }))
		}
		for _, v := range []schedule.Collective{schedule.ReduceScatter, schedule.Scatter} {
			mpitest.On(t, with(func(t *Transport) error { return runScatters(t, v, blocking) }))
		}
	}
}

// TestLibraryAlltoall: blocks on the Go heap, two exchanges under way at once.
func TestLibraryAlltoall(t *testing.T) {
	for _, blocking := range []bool{false, true} {
		mpitest.On(t, with(func(t *Transport) error { return runAlltoalls(t, blocking) }))
	}
}

func runAlltoalls(t *Transport, blocking bool) error {
	const each = 3
	me, size := t.Rank(), t.Size()
	has := func(from, to, i int) float32 { return float32(100*from + 10*to + i) }
	var calls []nbc.LibraryCall
	for how := range 2 {
		c := nbc.LibraryCall{
			Collective: schedule.Alltoall, Count: each * size, Datatype: mem.Float32, Blocking: blocking,
			Send: mem.Of(make([]float32, each*size)), Recv: mem.Of(make([]float32, each*size)),
		}
		for i := range mem.Float32s(c.Send) {
			mem.Float32s(c.Send)[i] = has(me, i/each, i%each)
		}
		calls = append(calls, c)
		if err := errors.Join(t.Supports(c), t.Begin(nbc.Token(how), c)); err != nil {
			return err
		}
	}
	runtime.GC()
	if err := ended(t, len(calls)); err != nil {
		return err
	}
	for how, c := range calls {
		for i, got := range mem.Float32s(c.Recv) {
			if want := has(i/each, me, i%each); got != want {
				return fmt.Errorf("call %d: element %d is %v, want %v", how, i, got, want)
			}
		}
	}
	return nil
}

// runScatters runs reduce-scatters, or scatters from the last rank.
func runScatters(t *Transport, v schedule.Collective, blocking bool) error {
	me, size := t.Rank(), t.Size()
	counts, at, all := make([]int, size), 0, 0
	for r := range counts {
		counts[r] = 2 * r // rank 0 has none
		if r < me {
			at += counts[r]
		}
		all += counts[r]
	}
	var calls []nbc.LibraryCall
	for how := range 4 {
		c := nbc.LibraryCall{Collective: v, Root: size - 1, Count: 3 * size, Datatype: mem.Float32, Op: mem.Sum, Blocking: blocking}
		own, off := 3, 3*me
		if how < 2 {
			c.Count, c.Counts, own, off = all, counts, counts[me], at
		}
		c.Send, c.Recv = mem.Of(make([]float32, c.Count)), mem.Of(make([]float32, own))
		if how%2 == 0 {
			c.Recv = c.Send.Slice(4*off, 4*own)
		}
		for i := range c.Count {
			mem.Float32s(c.Send)[i] = float32((1 + me) * (1 + i))
		}
		calls = append(calls, c)
		if err := errors.Join(t.Supports(c), t.Begin(nbc.Token(how), c)); err != nil {
			return err
		}
	}
	runtime.GC()
	if err := ended(t, len(calls)); err != nil {
		return err
	}
	for how, c := range calls {
		off := 3 * me
		if how < 2 {
			off = at
		}
		for i, got := range mem.Float32s(c.Recv) {
			want := float32(size * (1 + off + i))
			if v.Reduces() {
				want = float32(size * (size + 1) / 2 * (1 + off + i))
			}
			if got != want {
				return fmt.Errorf("call %d: element %d is %v, want %v", how, i, got, want)
			}
		}
	}
	return nil
}

// ended waits until n calls have ended.
func ended(t *Transport, n int) error {
	for left, until := n, time.Now().Add(within); left > 0; {
		var done [2]nbc.Completion
		k, err := t.Poll(done[:])
		if err = errors.Join(err, done[0].Err, done[1].Err); err != nil {
			return err
		}
		if left -= k; time.Now().After(until) {
			return fmt.Errorf("%d of %d calls have not ended in %v", left, n, within)
		}
	}
	return nil
}

// runGathers runs allgathers, or gathers to the last rank.
func runGathers(t *Transport, v schedule.Collective, blocking bool) error {
	me, size := t.Rank(), t.Size()
	counts, at, all := make([]int, size), 0, 0
	for r := range counts {
		counts[r] = 2 * r // rank 0 has none
		if r < me {
			at += counts[r]
		}
		all += counts[r]
	}
	var calls []nbc.LibraryCall
	for how := range 4 {
		c := nbc.LibraryCall{Collective: v, Root: size - 1, Count: 3 * size, Datatype: mem.Float32, Blocking: blocking}
		own, off := 3, 3*me
		if how < 2 {
			c.Count, c.Counts, own, off = all, counts, counts[me], at
		}
		c.Recv, c.Send = mem.Of(make([]float32, c.Count)), mem.Of(make([]float32, own))
		if how%2 == 0 {
			c.Send = c.Recv.Slice(4*off, 4*own)
		}
		for i := range own {
			mem.Float32s(c.Send)[i] = float32(1 + me)
		}
		calls = append(calls, c)
		if err := errors.Join(t.Supports(c), t.Begin(nbc.Token(how), c)); err != nil {
			return err
		}
	}
	runtime.GC()
	if err := ended(t, len(calls)); err != nil {
		return err
	}
	if v == schedule.Gather && me != size-1 {
		return nil
	}
	for how, c := range calls {
		at := 0
		for r := range size {
			n := 3
			if c.Counts != nil {
				n = c.Counts[r]
			}
			for range n {
				if got := mem.Float32s(c.Recv)[at]; got != float32(1+r) {
					return fmt.Errorf("call %d: element %d is %v, want %v", how, at, got, 1+r)
				}
				at++
			}
		}
	}
	return nil
}
