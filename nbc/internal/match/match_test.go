package match

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/nbc"
)

// TestTableEqualsTheSimplestOne compares a table with two lists that are
// searched from their beginnings.
func TestTableEqualsTheSimplestOne(t *testing.T) {
	type waiting struct {
		id Identity
		v  int
	}
	take := func(list *[]waiting, id Identity) (int, bool) {
		for i, w := range *list {
			if w.id == id {
				*list = append((*list)[:i:i], (*list)[i+1:]...)
				return w.v, true
			}
		}
		return 0, false
	}
	rapid.Check(t, func(t *rapid.T) {
		var table Table[int, int]
		var receives, messages []waiting
		few := func(name string) uint32 { return rapid.Uint32Range(0, 2).Draw(t, name) }
		for i := range rapid.IntRange(1, 300).Draw(t, "steps") {
			id := Identity{int(few("peer")), nbc.Tag{
				Comm: uint64(few("comm")) << 32, Instance: few("instance"), Message: few("message"), Fingerprint: few("fingerprint"),
			}}
			var got, want int
			var ok, wanted bool
			if rapid.Bool().Draw(t, "a receive") {
				seen, saw := table.SeeMessage(id)
				got, ok = table.TakeMessage(id)
				if seen != got || saw != ok {
					t.Fatalf("step %d, %+v: saw %d, %v, took %d, %v", i, id, seen, saw, got, ok)
				}
				want, wanted = take(&messages, id)
				if !ok {
					table.KeepReceive(id, i)
					receives = append(receives, waiting{id, i})
				}
			} else {
				got, ok = table.TakeReceive(id)
				want, wanted = take(&receives, id)
				if !ok {
					table.KeepMessage(id, i)
					messages = append(messages, waiting{id, i})
				}
			}
			if got != want || ok != wanted {
				t.Fatalf("step %d, %+v: got %d, %v, want %d, %v", i, id, got, ok, want, wanted)
			}
		}
		left := map[Identity]bool{}
		for _, w := range append(receives, messages...) {
			left[w.id] = true
		}
		if table.Len() != len(left) {
			t.Fatalf("%d identities are left, want %d", table.Len(), len(left))
		}
	})
}

// TestWarmTableAllocatesNothing uses new identities all the time.
func TestWarmTableAllocatesNothing(t *testing.T) {
	var table Table[int, *int]
	n := uint32(0)
	step := func() {
		for i := range uint32(100) {
			table.KeepReceive(Identity{1, nbc.Tag{Instance: n + i}}, 1)
			table.KeepMessage(Identity{2, nbc.Tag{Instance: n + i}}, nil)
		}
		for i := range uint32(100) {
			_, a := table.TakeReceive(Identity{1, nbc.Tag{Instance: n + i}})
			_, b := table.TakeMessage(Identity{2, nbc.Tag{Instance: n + i}})
			if !a || !b {
				t.Error("one was lost")
			}
		}
		n += 100
	}
	step()
	if got := testing.AllocsPerRun(20, step); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func BenchmarkMatch(b *testing.B) {
	var table Table[uint64, *int]
	for i := 0; b.Loop(); i++ {
		id := Identity{i & 7, nbc.Tag{Comm: 3 << 32, Instance: uint32(i), Message: uint32(i >> 4), Fingerprint: 77}}
		table.KeepReceive(id, 1)
		table.TakeReceive(id)
	}
}
