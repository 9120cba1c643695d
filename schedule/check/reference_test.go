package check_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check"
)

// machine executes schedules on numbers, in a random order: the reference implementation of
// the proof.
type machine struct {
	all     []*schedule.Schedule
	mem     [][3][]uint64
	started [][]bool
	done    [][]bool
	wire    map[[3]int][]uint64 // from, to, number
	rng     *rand.Rand
}

// input is unique per rank and element, and so is every sum of inputs in which
// none comes more than 16 times.
func input(rank, i int) uint64 { return uint64(i+1) << (8 * rank) }

func newMachine(v schedule.Collective, all []*schedule.Schedule, root int, inPlace bool, rng *rand.Rand) *machine {
	m := &machine{all: all, wire: map[[3]int][]uint64{}, rng: rng}
	for r, s := range all {
		mem := [3][]uint64{make([]uint64, s.Count), make([]uint64, s.Count), make([]uint64, s.Scratch)}
		for b := range mem {
			for i := range mem[b] {
				mem[b][i] = rng.Uint64() // undefined contents
			}
		}
		if inPlace {
			mem[schedule.Out] = mem[schedule.In]
		}
		data := mem[schedule.In]
		if v == schedule.Bcast {
			data = mem[schedule.Out]
		}
		for i := range data {
			if gives(v, r, len(all), root, s.Count, i) {
				data[i] = input(r, i)
			}
		}
		m.mem = append(m.mem, mem)
		m.started = append(m.started, make([]bool, len(s.Ops)))
		m.done = append(m.done, make([]bool, len(s.Ops)))
	}
	return m
}

func (m *machine) at(rank int, r schedule.Ref) []uint64 { return m.mem[rank][r.Buf][r.Off:r.End()] }

// run returns an error if the schedules get stuck.
func (m *machine) run() error {
	for {
		type event struct{ rank, op int }
		var can []event
		left := 0
		for r, s := range m.all {
			for i := range s.Ops {
				if !m.done[r][i] {
					left++
					if m.can(r, i) {
						can = append(can, event{r, i})
					}
				}
			}
		}
		if left == 0 {
			return nil
		}
		if len(can) == 0 {
			return fmt.Errorf("%d ops are stuck", left)
		}
		e := can[m.rng.IntN(len(can))]
		m.do(e.rank, e.op)
	}
}

// can reports whether op i of rank can start or, if it has, complete.
func (m *machine) can(rank, i int) bool {
	s := m.all[rank]
	o := &s.Ops[i]
	if m.started[rank][i] {
		for k := range m.all[o.Peer].Ops { // rendezvous
			p := &m.all[o.Peer].Ops[k]
			if !p.Local() && p.Peer == rank && p.Msg == o.Msg && p.Receives() != o.Receives() {
				return m.started[o.Peer][k] && (!o.Receives() || m.done[o.Peer][k])
			}
		}
		return false
	}
	for _, d := range o.Deps {
		if !m.done[rank][d] {
			return false
		}
	}
	for k := range s.Ops { // one message of a peer at a time, in order
		if p := &s.Ops[k]; o.Receives() && p.Receives() && p.Peer == o.Peer && p.Msg < o.Msg && !m.done[rank][k] {
			return false
		}
	}
	return true
}

// do starts op i of rank, or completes it if it has started.
func (m *machine) do(rank, i int) {
	o := &m.all[rank].Ops[i]
	if !o.Local() && !m.started[rank][i] {
		m.started[rank][i] = true
		return
	}
	m.started[rank][i], m.done[rank][i] = true, true
	switch o.Kind {
	case schedule.Send:
		m.wire[[3]int{rank, o.Peer, o.Msg}] = append([]uint64(nil), m.at(rank, o.Src)...)
	case schedule.Recv:
		copy(m.at(rank, o.Dst), m.wire[[3]int{o.Peer, rank, o.Msg}])
	case schedule.Copy:
		copy(m.at(rank, o.Dst), m.at(rank, o.Src))
	case schedule.RecvReduce:
		dst, src := m.at(rank, o.Dst), m.at(rank, o.Src)
		for k, x := range m.wire[[3]int{o.Peer, rank, o.Msg}] {
			dst[k] = x + src[k]
		}
	case schedule.Add:
		dst, src := m.at(rank, o.Dst), m.at(rank, o.Src)
		for k, x := range m.at(rank, o.With) {
			dst[k] = x + src[k]
		}
	}
}

// gives reports whether a rank contributes element i.
func gives(v schedule.Collective, rank, size, root, count, i int) bool {
	switch v {
	case schedule.Bcast, schedule.Scatter:
		return rank == root
	case schedule.Allgather, schedule.Gather:
		return count*rank/size <= i && i < count*(rank+1)/size
	}
	return true
}

// wrong returns what is wrong with the result.
func (m *machine) wrong(v schedule.Collective, root int) error {
	for r, s := range m.all {
		if (v == schedule.Reduce || v == schedule.Gather) && r != root {
			continue
		}
		from, to := 0, s.Count
		if v == schedule.ReduceScatter || v == schedule.Scatter {
			from, to = s.Count*r/s.Size, s.Count*(r+1)/s.Size
		}
		block := s.Count / s.Size
		if v == schedule.Alltoall {
			to = block * s.Size
		}
		for i := from; i < to; i++ {
			want, at := uint64(0), i
			if v == schedule.Alltoall {
				at = block*r + i%block
			}
			for k := range m.all {
				if gives(v, k, len(m.all), root, s.Count, i) && (v != schedule.Alltoall || k == i/block) {
					want += input(k, at)
				}
			}
			if got := m.mem[r][schedule.Out][i]; got != want {
				return fmt.Errorf("out[%d] of rank %d is %x, want %x", i, r, got, want)
			}
		}
	}
	return nil
}

// spoil changes one thing about one op.
func spoil(t *rapid.T, all []*schedule.Schedule) {
	s := rapid.SampledFrom(all).Draw(t, "rank")
	if len(s.Ops) == 0 {
		return
	}
	i := rapid.IntRange(0, len(s.Ops)-1).Draw(t, "op")
	o := &s.Ops[i]
	by := rapid.SampledFrom([]int{-1, 1}).Draw(t, "by")
	what := rapid.SampledFrom([]string{"dep", "src", "dst", "buffer", "msg", "peer", "kind", "lost", "swap"}).Draw(t, "what")
	switch what {
	case "dep":
		if len(o.Deps) > 0 {
			o.Deps = o.Deps[1:]
		}
	case "src":
		o.Src.Off += by
	case "dst":
		o.Dst.Off += by
	case "buffer":
		o.Src.Buf = (o.Src.Buf + 1) % 3
	case "msg":
		o.Msg += by
	case "peer":
		o.Peer += by
	case "kind":
		if o.Receives() {
			o.Kind = schedule.Recv + schedule.RecvReduce - o.Kind
			o.Src = schedule.In.At(o.Dst.Range)
		}
	case "lost":
		s.Ops = s.Ops[:len(s.Ops)-1]
	case "swap":
		k := rapid.IntRange(0, len(s.Ops)-1).Draw(t, "with")
		o.Src, s.Ops[k].Src = s.Ops[k].Src, o.Src
	}
}

// What is proved always runs to the right end, in whatever order; this holds
// for schedules with a mistake that the proof lets pass, too.
func TestWhatIsProvedRunsRight(t *testing.T) {
	refused, passed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := schedule.Params{Size: rapid.IntRange(1, 6).Draw(t, "size"), Count: rapid.IntRange(0, 11).Draw(t, "count"), Chunk: rapid.IntRange(0, 4).Draw(t, "chunk")}
		p.Root = rapid.IntRange(0, p.Size-1).Draw(t, "root")
		a := []schedule.Algorithm{chains, binomials, linears}[rapid.IntRange(0, 2).Draw(t, "algorithm")]
		v := rapid.SampledFrom(a.Collectives()).Draw(t, "collective")
		all := a.Build(v, p)
		mistake := rapid.Bool().Draw(t, "mistake")
		if mistake {
			spoil(t, all)
		}
		if err := check.Prove(v, all, p.Root); err != nil {
			if !mistake {
				t.Fatal(err)
			}
			refused++
			return
		}
		passed++
		for seed := range uint64(3) {
			m := newMachine(v, all, p.Root, seed%2 == 1 && v != schedule.Bcast && v != schedule.Alltoall, rand.New(rand.NewPCG(seed, 7)))
			if err := m.run(); err != nil {
				t.Fatal(err)
			}
			if err := m.wrong(v, p.Root); err != nil {
				t.Fatal(err)
			}
		}
	})
	if refused == 0 || passed == 0 {
		t.Errorf("%d schedules refused, %d proved: the test shows nothing", refused, passed)
	}
}
