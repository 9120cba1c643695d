package overmpi

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule/sim"
)

// TestTheSimulationKnowsTheLimit: the cost model may not import this package, so it has a
// copy of what decides how a message goes.
func TestTheSimulationKnowsTheLimit(t *testing.T) {
	if inlineRoom != sim.InlineBytes {
		t.Errorf("messages of up to %d bytes travel with their envelopes; the simulation has %d", inlineRoom, sim.InlineBytes)
	}
}

// TestHeaderRoundTrip: an envelope says all of a message's identity.
func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := header{
			tag: nbc.Tag{
				Comm:        rapid.Uint64().Draw(t, "comm"),
				Instance:    rapid.Uint32().Draw(t, "instance"),
				Message:     rapid.Uint32().Draw(t, "message"),
				Fingerprint: rapid.Uint32().Draw(t, "fingerprint"),
			},
			wire:   rapid.IntRange(0, 1<<31-1).Draw(t, "wire"),
			length: rapid.IntRange(0, inlineRoom).Draw(t, "length"),
		}
		n := headerLen
		if h.wire == 0 {
			n += h.length
		} else {
			h.length = rapid.IntRange(0, 1<<50).Draw(t, "long")
		}
		b := make([]byte, n)
		h.put(b)
		if got, ok := parseHeader(b); !ok || got != h {
			t.Fatalf("%+v came back as %+v, %v", h, got, ok)
		}
		if _, ok := parseHeader(append(b, 0)); ok {
			t.Fatal("an envelope with more in it than it says was accepted")
		}
		if _, ok := parseHeader(b[:rapid.IntRange(0, n-1).Draw(t, "cut")]); ok {
			t.Fatal("a cut envelope was accepted")
		}
	})
}

func TestHeadersThatNobodySends(t *testing.T) {
	b := make([]byte, headerLen)
	header{length: -1}.put(b)
	if _, ok := parseHeader(b); ok {
		t.Error("a negative length was accepted")
	}
	header{wire: 1, length: 1 << 62}.put(b)
	if _, ok := parseHeader(b); !ok {
		t.Error("a long message was refused")
	}
}

// TestWireTagsStayWithinTheirBound, and no two messages within one round of
// them share one.
func TestWireTagsStayWithinTheirBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := wires{rapid.Uint64Range(1, 1<<31-1).Draw(t, "bound")}
		n := rapid.Uint64().Draw(t, "message")
		if tag := w.tag(n); tag <= envelopeTag || tag > int(w.bound) {
			t.Fatalf("message %d has tag %d of %d", n, tag, w.bound)
		}
		later := n + rapid.Uint64Range(1, 3*w.bound).Draw(t, "later")
		if later < n {
			return // 2^64 messages take a while
		}
		if w.tag(n) == w.tag(later) && !w.reused(n, later) {
			t.Fatalf("messages %d and %d both have tag %d", n, later, w.tag(n))
		}
	})
}

func TestStagingKeepsAndAligns(t *testing.T) {
	var s staging
	defer s.free()
	for _, n := range []int{1, 64, 65, 2049, 4095, 4096, 4097, 1 << 20, 1<<20 + 1} {
		b := s.get(n)
		if b.Len() != n || uintptr(b.Pointer())%uintptr(min(1<<class(n), mem.Alignment)) != 0 || b.OnGoHeap() {
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
