package schedule_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/chain"
	"github.com/scaffe/scaffe/schedule"
)

func TestChunksCoverTheBuffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := schedule.Params{Count: rapid.IntRange(0, 100).Draw(t, "count"), Chunk: rapid.IntRange(0, 120).Draw(t, "chunk")}
		chunks := p.Chunks()
		at := 0
		for i, c := range chunks {
			if c.Off != at || c.Len < 1 || p.Chunk > 0 && c.Len > p.Chunk {
				t.Fatalf("chunk %d is %v", i, c)
			}
			if i < len(chunks)-1 && c.Len != p.Chunk {
				t.Fatalf("chunk %d of %d is %v: only the last one may be shorter", i, len(chunks), c)
			}
			at = c.End()
		}
		if at != p.Count {
			t.Fatalf("chunks %v of %d elements", chunks, p.Count)
		}
		if p.Chunk == 0 && len(chunks) > 1 {
			t.Fatalf("%d chunks where one is asked for", len(chunks))
		}
	})
}

func TestRelativeRanks(t *testing.T) {
	for size := 1; size <= 9; size++ {
		for root := range size {
			for rank := range size {
				p := schedule.Params{Rank: rank, Size: size, Root: root}
				if got := p.Absolute(p.Relative()); got != rank {
					t.Errorf("rank %d of %d, root %d: back as %d", rank, size, root, got)
				}
				if (p.Relative() == 0) != (rank == root) {
					t.Errorf("rank %d of %d, root %d: relative rank %d", rank, size, root, p.Relative())
				}
			}
		}
	}
}

func TestParamsValidate(t *testing.T) {
	good := schedule.Params{Rank: 2, Size: 3, Root: 1, Count: 5, Chunk: 2}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(p *schedule.Params){
		"size 0":         func(p *schedule.Params) { p.Size = 0 },
		"rank 3":         func(p *schedule.Params) { p.Rank = 3 },
		"rank -1":        func(p *schedule.Params) { p.Rank = -1 },
		"root 3":         func(p *schedule.Params) { p.Root = 3 },
		"negative count": func(p *schedule.Params) { p.Count = -1 },
		"negative chunk": func(p *schedule.Params) { p.Chunk = -1 },
	} {
		p := good
		spoil(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestOverlaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawRef(t, 8, schedule.In).Range, drawRef(t, 8, schedule.In).Range
		want := false
		for i := range 8 {
			want = want || i >= a.Off && i < a.End() && i >= b.Off && i < b.End()
		}
		if a.Overlaps(b) != want || b.Overlaps(a) != want {
			t.Fatalf("%v and %v overlap: %v, want %v", a, b, a.Overlaps(b), want)
		}
	})
}

// A ring hands out its slots in turn, each within what it reserved.
func TestRing(t *testing.T) {
	b := schedule.NewBuilder(0, 2, 100)
	b.Reserve(7)
	r := b.SlotRing(3, 10, 8)
	for i := range 8 {
		if got, want := r.Slot(i, 4), schedule.Scratch.At(schedule.Range{Off: 7 + i%3*10, Len: 4}); got != want {
			t.Errorf("slot %d is %v, want %v", i, got, want)
		}
	}
	if small := b.SlotRing(4, 10, 2); small.Slot(2, 1) != small.Slot(0, 1) {
		t.Error("a ring for 2 uses has more than 2 slots")
	}
	if got, want := b.Schedule().Scratch, 7+3*10+2*10; got != want {
		t.Errorf("%d elements of scratch, want %d", got, want)
	}
}

// A view renames ranks and buffers, also through another view, and shares the
// message numbers and the history of the memory.
func TestSub(t *testing.T) {
	r := func(off, n int) schedule.Range { return schedule.Range{Off: off, Len: n} }
	b := schedule.NewBuilder(5, 8, 20)
	sum := b.Reserve(20)
	b.Recv(7, sum)
	view := b.Sub([]int{5, 7, 3}, sum, schedule.Out.At(r(0, 20)))
	view.RecvReduce(1, schedule.In.At(r(4, 4)), schedule.Out.At(r(4, 4)))
	inner := view.Sub([]int{0, 2}, schedule.Out.At(r(4, 8)), schedule.In.At(r(10, 5)))
	inner.Send(1, schedule.In.At(r(1, 2)))
	inner.Recv(1, schedule.Out.At(r(0, 3)))
	inner.Copy(schedule.In.At(r(0, 1)), schedule.In.At(r(0, 1))) // onto itself: nothing
	const want = `rank 5 of 8 count 20 scratch 20
0: recv scratch[0:20] from 7 #0
1: recvreduce out[4:8] scratch[4:8] from 7 #1 after 0
2: send out[5:7] to 3 #0 after 1
3: recv scratch[10:13] from 3 #0 after 0
`
	if diff := cmp.Diff(want, b.Schedule().String()); diff != "" {
		t.Error(diff)
	}
}

func TestRemap(t *testing.T) {
	b := schedule.NewBuilder(1, 3, 4)
	chain.Reduce(b, schedule.Params{Rank: 1, Size: 3, Count: 4})
	s := b.Schedule()
	before := s.String()
	m, err := s.Remap([]int{7, 2, 5}, 9)
	if err != nil {
		t.Fatal(err)
	}
	const want = `rank 2 of 9 count 4 scratch 4
0: recvreduce scratch[0:4] in[0:4] from 5 #0
1: send scratch[0:4] to 7 #0 after 0
`
	if diff := cmp.Diff(want, m.String()); diff != "" {
		t.Error(diff)
	}
	if s.String() != before {
		t.Error("the original has changed")
	}
}

func TestRemapRefuses(t *testing.T) {
	schedules := func(peer, rank int) *schedule.Schedule {
		return &schedule.Schedule{Rank: rank, Size: 2, Count: 1, Ops: []schedule.Op{{Kind: schedule.Send, Peer: peer, Src: schedule.In.At(schedule.Range{Len: 1})}}}
	}
	for name, c := range map[string]struct {
		s     *schedule.Schedule
		ranks []int
		want  string
	}{
		"too few names":  {schedules(1, 0), []int{3}, "2 ranks given 1 names"},
		"the same twice": {schedules(1, 0), []int{3, 3}, "rank 1 to 3"},
		"too large":      {schedules(1, 0), []int{0, 4}, "rank 1 to 4"},
		"negative":       {schedules(1, 0), []int{-1, 2}, "rank 0 to -1"},
		"no such peer":   {schedules(2, 0), []int{0, 1}, "peer 2"},
		"no such rank":   {schedules(1, 2), []int{0, 1}, "rank 2 of 2"},
	} {
		if _, err := c.s.Remap(c.ranks, 4); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// The schedule of one inner rank of the longest chain: 1024 ranks, 1024 chunks.
func BenchmarkBuild1024(b *testing.B) {
	p := schedule.Params{Size: 1024, Count: 1024 * 1000, Chunk: 1000}
	for i := 0; b.Loop(); i++ {
		p.Rank = i % p.Size
		builder := schedule.NewBuilder(p.Rank, p.Size, p.Count)
		chain.Reduce(builder, p)
		chain.Bcast(builder, p)
		if len(builder.Schedule().Ops) == 0 {
			b.Fatal("nothing to do")
		}
	}
}
