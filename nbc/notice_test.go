package nbc

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/mem"
)

// TestNoticesFit: whatever the texts are, a notice fits its room and is read
// back, short texts whole.
func TestNoticesFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := func(name string, longest int) string {
			return rapid.StringN(0, longest, -1).Draw(t, name)
		}
		n := notice{
			Answer: true, ID: rapid.Uint64().Draw(t, "id"), Status: InCollective,
			About: Execution{rapid.Uint64().Draw(t, "comm"), rapid.Uint32().Draw(t, "instance"), rapid.Uint32().Draw(t, "round")},
			Call:  text("call", 2000), Last: text("last", 300), Reason: text("reason", 2000),
		}
		for range rapid.IntRange(0, 5).Draw(t, "edges") {
			n.Edges = append(n.Edges, Edge{Rank: 1023, Request: text("request", 400), Op: "chunk 7", Peer: 4, Execution: n.About})
		}
		b := n.encode()
		got, ok := decode(b)
		if len(b) > NoticeRoom || !ok {
			t.Fatalf("%d bytes: %s", len(b), b)
		}
		if got.ID != n.ID || got.About != n.About || got.Status != n.Status {
			t.Fatalf("%+v came back as %+v", n, got)
		}
	})
	short := notice{
		ID: 7, About: Execution{1, 812, 3}, Print: 9, Call: "reduce of 100 elements, root 0, spec chain:8/binomial, f32 sum",
		Edges: []Edge{{Rank: 5, Request: "reduce#812", Op: "chunk 7", Peer: 4}}, Last: "bcast#811", Reason: "none",
	}
	if got, _ := decode(short.encode()); !reflect.DeepEqual(got, short) {
		t.Errorf("%+v came back as %+v", short, got)
	}
	for _, bad := range []string{"", "{", strings.Repeat("x", NoticeRoom)} {
		if _, ok := decode([]byte(bad)); ok {
			t.Errorf("%q was taken for a notice", bad)
		}
	}
}

// TestFingerprintsOfTypesAndOps: where two calls differ in their type alone or their op alone, or both and the ops are
// arithmetic, the lowest six bits differ, whatever the rest of the call is: a transport may have room for no more.
func TestFingerprintsOfTypesAndOps(t *testing.T) {
	for _, call := range []string{"", "reduce of 100 elements", "bcast"} {
		seen := map[uint32][]Binding{}
		for _, dt := range mem.Datatypes {
			for _, op := range mem.OpsOf(dt) {
				b := Binding{Call: call, Datatype: dt, Op: op}
				low := b.fingerprint() & 63
				for _, other := range seen[low] {
					if dt == other.Datatype || op == other.Op || max(op, other.Op) <= mem.Max {
						t.Errorf("%s and %s have the same six bits", b.describe(), other.describe())
					}
				}
				seen[low] = append(seen[low], b)
			}
		}
	}
}
