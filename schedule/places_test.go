package schedule_test

import (
	"slices"
	"testing"

	"github.com/scaffe/scaffe/binomial"
	"github.com/scaffe/scaffe/chain"
	"github.com/scaffe/scaffe/direct"
	"github.com/scaffe/scaffe/doubling"
	"github.com/scaffe/scaffe/linear"
	"github.com/scaffe/scaffe/ring"
	"github.com/scaffe/scaffe/scatter"
	"github.com/scaffe/scaffe/schedule"
)

// TestTrades: of two ranks that sum for each other, or of which one sums for the other, the first receive of such a sum begins
// before all else; all other ops begin in their order.
func TestTrades(t *testing.T) {
	for _, c := range []struct {
		name   string
		build  func(*schedule.Builder, schedule.Params)
		ranks  int
		trades bool
		stores bool // on rank 0: others' sums
	}{
		{"direct reduce", direct.Reduce, 2, true, true},
		{"direct allreduce", direct.Allreduce, 2, true, true},
		{"direct reduce", direct.Reduce, 3, false, true},
		{"linear reduce", linear.Reduce, 2, false, false},
		{"doubling allreduce", doubling.Allreduce, 2, false, false},
		{"direct allgather", direct.Allgather, 2, false, true},
	} {
		for rank := range c.ranks {
			b := schedule.NewBuilder(rank, c.ranks, 120)
			b.Apart()
			c.build(b, schedule.Params{Rank: rank, Size: c.ranks, Count: 120, Chunk: 30})
			s := b.Schedule()
			g, err := schedule.Compile(s, schedule.DefaultWindows)
			if err != nil {
				t.Fatal(err)
			}
			trades := s.Trades(g, c.ranks)
			if trades != c.trades {
				t.Errorf("%s of %d, rank %d: it trades sums: %v, want %v", c.name, c.ranks, rank, trades, c.trades)
			}
			begin := s.Begin(g, trades)
			first := slices.IndexFunc(s.Ops, func(op schedule.Op) bool { return op.Kind == schedule.Recv })
			if rank == 0 && first >= 0 != c.stores {
				t.Fatalf("%s of %d: rank 0 stores others' sums: %v, want %v", c.name, c.ranks, first >= 0, c.stores)
			}
			if trades && first >= 0 {
				if begin[0] != int32(first) {
					t.Errorf("%s of %d, rank %d: op %d begins first, want %d", c.name, c.ranks, rank, begin[0], first)
				}
				begin = begin[1:]
			}
			if !slices.IsSorted(begin) {
				t.Errorf("%s of %d, rank %d: the rest begins in the order %v", c.name, c.ranks, rank, begin)
			}
		}
	}
}

// TestRelays: who receives a part of a broadcast from a rank of its node and sends it to others of it relays that, one that it also wants itself;
// who passes all on, or what has come from another node, does not.
func TestRelays(t *testing.T) {
	for _, c := range []struct {
		name          string
		build         func(*schedule.Builder, schedule.Params)
		ranks, onNode int // the first are on the node
		relays        int // messages of the rank
		longest       int // of their elements
	}{
		{"scatter bcast", scatter.Bcast, 2, 2, 0, 0},
		{"scatter bcast", scatter.Bcast, 3, 3, 4, 15},
		{"scatter bcast", scatter.Bcast, 5, 5, 4, 7},
		{"scatter bcast", scatter.Bcast, 5, 4, 4, 7}, // the last of the others is elsewhere
		{"linear bcast", linear.Bcast, 3, 3, 0, 0},
		{"chain bcast", chain.Bcast, 3, 3, 0, 0},
		{"binomial bcast", binomial.Bcast, 4, 4, 0, 0},
		{"ring allgather", ring.Allgather, 4, 4, 0, 0},
		{"ring allgather", ring.Allgather, 3, 3, 2, 30}, // each rank passes a part of three on to the last
		{"binomial gather", binomial.Gather, 4, 4, 0, 0},
	} {
		b := schedule.NewBuilder(1, c.ranks, 120)
		c.build(b, schedule.Params{Rank: 1, Size: c.ranks, Count: 120, Chunk: 30})
		s := b.Schedule()
		g, err := schedule.Compile(s, schedule.DefaultWindows)
		if err != nil {
			t.Fatal(err)
		}
		near := func(rank int) bool { return rank < c.onNode }
		relays, longest := s.Relays(g, c.onNode, near)
		n := 0
		for i, relayed := range relays {
			if relayed {
				n++
				if s.Ops[i].Kind != schedule.Recv {
					t.Errorf("%s of %d: %v is relayed", c.name, c.ranks, &s.Ops[i])
				}
			}
		}
		if n != c.relays || longest != c.longest {
			t.Errorf("%s of %d, %d on the node: relays %d messages, the longest of %d, want %d of %d", c.name, c.ranks, c.onNode, n, longest, c.relays, c.longest)
		}
		if relays, _ := s.Relays(g, c.onNode, func(int) bool { return false }); relays != nil {
			t.Errorf("%s of %d: relays messages of other nodes", c.name, c.ranks)
		}
	}
}
