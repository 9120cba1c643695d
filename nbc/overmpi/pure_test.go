package overmpi

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

func TestTagBitsOfTheLibraries(t *testing.T) {
	for ub, want := range map[int]tagBits{
		1<<31 - 1: {comm: 5, instance: 10, message: 10, print: 6}, // Open MPI
		1<<28 - 1: {comm: 4, instance: 9, message: 9, print: 6},   // MPICH 4.0
		1<<20 - 1: {comm: 3, instance: 6, message: 6, print: 5},
		32767:     {comm: 3, instance: 4, message: 5, print: 3}, // the least that MPI promises
		32768:     {comm: 3, instance: 4, message: 5, print: 3}, // not a power of two less one
	} {
		if got := splitBits(ub); got != want {
			t.Errorf("largest tag %d: %+v, want %+v", ub, got, want)
		}
	}
}

func TestWireTagsFitAndDifferWithinTheirWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ub := rapid.IntRange(32767, 1<<31-1).Draw(t, "largest tag")
		b := splitBits(ub)
		draw := func(name string) nbc.Tag {
			return nbc.Tag{
				Comm:        rapid.Uint64().Draw(t, name+" comm"),
				Instance:    rapid.Uint32().Draw(t, name+" instance"),
				Message:     rapid.Uint32().Draw(t, name+" message"),
				Fingerprint: rapid.Uint32().Draw(t, name+" fingerprint"),
			}
		}
		x := draw("x")
		if w := b.wire(x); w < 0 || w > ub {
			t.Fatalf("%+v has tag %d beyond %d", x, w, ub)
		}
		// y lies within every window that begins at x.
		y := nbc.Tag{
			Comm:        x.Comm + rapid.Uint64Range(0, 1<<b.comm-1).Draw(t, "comms on"),
			Instance:    x.Instance + rapid.Uint32Range(0, 1<<b.instance-1).Draw(t, "instances on"),
			Message:     x.Message + rapid.Uint32Range(0, 1<<b.message-1).Draw(t, "messages on"),
			Fingerprint: x.Fingerprint + rapid.Uint32Range(0, 1<<b.print-1).Draw(t, "type and op"),
		}
		if (b.wire(x) == b.wire(y)) != (x == y) {
			t.Fatalf("%+v and %+v have tags %d and %d", x, y, b.wire(x), b.wire(y))
		}
	})
}

func TestGuardRefusesWhatMPIWouldConfuse(t *testing.T) {
	b := splitBits(32767)
	g := guard{}
	first := nbc.Tag{Comm: 1, Instance: 3, Message: 9}
	later := nbc.Tag{Comm: 1, Instance: 3 + 1<<b.instance, Message: 9}
	w := way{peer: 2, wire: int32(b.wire(first))}
	if w.wire != int32(b.wire(later)) {
		t.Fatal("the tags were to be equal")
	}
	for range 2 { // one identity twice is in order
		if err := g.enter(w, first, b); err != nil {
			t.Fatal(err)
		}
	}
	err := g.enter(w, later, b)
	if err == nil || !strings.Contains(err.Error(), "9 of instance 3 on communicator 1") || !strings.Contains(err.Error(), "at most 16 instances") {
		t.Errorf("two identities with one tag: %v", err)
	}
	for _, other := range []way{{3, w.wire, false}, {2, w.wire, true}} {
		if err := g.enter(other, later, b); err != nil {
			t.Errorf("another way: %v", err)
		}
	}
	g.leave(w)
	if g.enter(w, later, b) == nil {
		t.Error("the first identity is still under way once")
	}
	g.leave(w)
	if err := g.enter(w, later, b); err != nil {
		t.Errorf("the way was free: %v", err)
	}
}

func TestStagingKeepsAndAligns(t *testing.T) {
	var s staging
	defer s.free()
	for _, n := range []int{1, 4095, 4096, 4097, 1 << 20, 1<<20 + 1} {
		b := s.get(n)
		if b.Len() != n || uintptr(b.Pointer())%mem.Alignment != 0 || b.OnGoHeap() {
			t.Fatalf("%d bytes: %d at %p", n, b.Len(), b.Pointer())
		}
		mem.Bytes(b)[n-1] = 7
		other := s.get(n)
		if other.Overlaps(b) {
			t.Fatalf("%d bytes were given twice", n)
		}
		s.put(b)
		if again := s.get(n); again.Pointer() != b.Pointer() {
			t.Errorf("%d bytes were not kept", n)
		}
		s.put(other)
		s.put(b)
	}
	if s.get(0).Len() != 0 {
		t.Error("no bytes are some")
	}
}
