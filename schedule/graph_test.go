package schedule_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/chain"
	"github.com/scaffe/scaffe/schedule"
)

// Who waits for whom in a graph is what the dependencies and the windows say,
// counted one by one.
func TestCompile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchedule(t)
		w := schedule.Windows{Send: rapid.IntRange(0, 3).Draw(t, "send"), Recv: rapid.IntRange(0, 3).Draw(t, "recv")}
		wide := rapid.IntRange(0, 3).Draw(t, "more to even peers")
		to := func(peer int) schedule.Windows {
			if peer%2 == 0 && w.Send > 0 {
				return schedule.Windows{Send: w.Send + wide, Recv: w.Recv}
			}
			return w
		}
		g, err := schedule.CompileFor(s, to)
		if err != nil {
			t.Fatal(err)
		}
		want := make([][]int32, len(s.Ops))
		waits := make([]int32, len(s.Ops))
		for i := range s.Ops {
			before := slices.Clone(s.Ops[i].Deps)
			room := to(s.Ops[i].Peer).Send
			if s.Ops[i].Receives() {
				room = w.Recv
			}
			var same []int // earlier messages of the same peer and direction
			for k := range i {
				if a, b := &s.Ops[k], &s.Ops[i]; !a.Local() && !b.Local() && a.Peer == b.Peer && a.Receives() == b.Receives() {
					same = append(same, k)
				}
			}
			if room > 0 && len(same) >= room {
				before = append(before, same[len(same)-room])
			}
			waits[i] = int32(len(before))
			for _, b := range before {
				want[b] = append(want[b], int32(i))
			}
		}
		if !slices.Equal(g.Waits(), waits) {
			t.Fatalf("ops wait for %v others, not %v", g.Waits(), waits)
		}
		for i := range s.Ops {
			if got := g.Waiting(int32(i)); !slices.Equal(got, want[i]) {
				t.Fatalf("%v wait for op %d, not %v", got, i, want[i])
			}
		}
	})
}

func TestCompileRefusesDependenciesOnLaterOps(t *testing.T) {
	for _, d := range []int{-1, 0, 7} {
		s := &schedule.Schedule{Size: 1, Ops: []schedule.Op{{Kind: schedule.Copy, Peer: -1, Deps: []int{d}}}}
		if _, err := schedule.Compile(s, schedule.Windows{}); err == nil {
			t.Errorf("op 0 may wait for op %d", d)
		}
	}
}

func TestMatch(t *testing.T) {
	family := schedule.Algorithm{Reduce: chain.Reduce, Bcast: chain.Bcast}
	all := family.Build(schedule.Allreduce, schedule.Params{Size: 5, Root: 2, Count: 20, Chunk: 3})
	peers, err := schedule.Match(all)
	if err != nil {
		t.Fatal(err)
	}
	for r, s := range all {
		for i := range s.Ops {
			o, k := &s.Ops[i], peers[r][i]
			if o.Local() != (k < 0) {
				t.Fatalf("rank %d op %d (%v) is matched with %d", r, i, o, k)
			}
			if o.Local() {
				continue
			}
			other := &all[o.Peer].Ops[k]
			if other.Peer != r || other.Msg != o.Msg || other.Receives() == o.Receives() || peers[o.Peer][k] != int32(i) {
				t.Fatalf("rank %d op %d (%v) is matched with op %d of rank %d (%v)", r, i, o, k, o.Peer, other)
			}
		}
	}
	all[1].Ops[0].Msg = 99
	var bad *schedule.MatchError
	if _, err := schedule.Match(all); !errors.As(err, &bad) || bad.Problem != schedule.MessageGap || bad.Rank != 1 || bad.Op != 0 {
		t.Errorf("a message without its like: %v", err)
	}
}
