package schedule_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/schedule"
)

// memoryOf tells which memory a buffer is: In and Out may be the same.
func memoryOf(b schedule.Buffer) schedule.Buffer {
	if b == schedule.Out {
		return schedule.In
	}
	return b
}

// touch is an access to an element.
type touch struct {
	mem   schedule.Buffer
	index int
	write bool
}

// touches lists an op's accesses, element by element.
func touches(o *schedule.Op) (all []touch) {
	add := func(r schedule.Ref, write bool) {
		for i := r.Off; i < r.End(); i++ {
			all = append(all, touch{memoryOf(r.Buf), i, write})
		}
	}
	if o.Reads() {
		add(o.Src, false)
	}
	if o.Writes() {
		add(o.Dst, true)
	}
	return all
}

// conflict is the reference implementation of the hazard rule: do two ops touch an element in
// common, at least one of them writing?
func conflict(a, b *schedule.Op) bool {
	for _, x := range touches(a) {
		for _, y := range touches(b) {
			if x.mem == y.mem && x.index == y.index && (x.write || y.write) {
				return true
			}
		}
	}
	return false
}

// closure returns for each op the ops that come before it, directly or not.
func closure(n int, deps func(i int) []int) []map[int]bool {
	past := make([]map[int]bool, n)
	for i := range n {
		past[i] = map[int]bool{}
		for _, d := range deps(i) {
			past[i][d] = true
			for k := range past[d] {
				past[i][k] = true
			}
		}
	}
	return past
}

// drawRef draws a range within a buffer of n elements, sometimes an empty one.
func drawRef(t *rapid.T, n int, buffers ...schedule.Buffer) schedule.Ref {
	off := rapid.IntRange(0, n).Draw(t, "off")
	return rapid.SampledFrom(buffers).Draw(t, "buffer").At(schedule.Range{Off: off, Len: rapid.IntRange(0, n-off).Draw(t, "len")})
}

// drawSchedule draws any sequence of ops over a few elements.
func drawSchedule(t *rapid.T) *schedule.Schedule {
	const n = 8
	b := schedule.NewBuilder(0, 4, n)
	b.Reserve(n)
	everything := []schedule.Buffer{schedule.In, schedule.Out, schedule.Scratch}
	for range rapid.IntRange(0, 24).Draw(t, "ops") {
		src, peer := drawRef(t, n, everything...), rapid.IntRange(1, 3).Draw(t, "peer")
		dst := drawRef(t, n, everything[1:]...)
		src.Len = min(src.Len, n-dst.Off)
		dst.Len = src.Len
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			b.Send(peer, src)
		case 1:
			b.Recv(peer, dst)
		case 2:
			b.RecvReduce(peer, src, dst)
		case 3:
			b.Scale(src, dst)
		default:
			b.Copy(src, dst)
		}
	}
	return b.Schedule()
}

// The dependencies order exactly the pairs that conflicts order, and none of
// them is there without a conflict.
func TestDependenciesAreTheHazards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchedule(t)
		conflicts := func(i int) (earlier []int) {
			for k := range i {
				if conflict(&s.Ops[k], &s.Ops[i]) {
					earlier = append(earlier, k)
				}
			}
			return earlier
		}
		want := closure(len(s.Ops), conflicts)
		got := closure(len(s.Ops), func(i int) []int { return s.Ops[i].Deps })
		for i := range s.Ops {
			deps := s.Ops[i].Deps
			for k, d := range deps {
				if k > 0 && deps[k-1] >= d {
					t.Fatalf("the dependencies of op %d do not ascend:\n%v", i, s)
				}
				if !slices.Contains(conflicts(i), d) {
					t.Fatalf("op %d waits for op %d without a conflict:\n%v", i, d, s)
				}
			}
			for k := range i {
				if got[i][k] != want[i][k] {
					t.Fatalf("op %d after op %d is %v, want %v:\n%v", i, k, got[i][k], want[i][k], s)
				}
			}
		}
	})
}

// Cases that say in words what the property above draws.
func TestHazards(t *testing.T) {
	at := func(b schedule.Buffer, off, end int) schedule.Ref {
		return b.At(schedule.Range{Off: off, Len: end - off})
	}
	const in, out, scratch = schedule.In, schedule.Out, schedule.Scratch
	for name, c := range map[string]struct {
		add  func(b *schedule.Builder)
		want []int // the dependencies of the last op
	}{
		"read after write": {func(b *schedule.Builder) {
			b.Recv(1, at(out, 0, 4))
			b.Send(2, at(out, 2, 6))
		}, []int{0}},
		"write after read": {func(b *schedule.Builder) {
			b.Send(2, at(scratch, 0, 4))
			b.Recv(1, at(scratch, 3, 4))
		}, []int{0}},
		"write after write": {func(b *schedule.Builder) {
			b.Recv(1, at(out, 0, 4))
			b.Recv(1, at(out, 3, 8))
		}, []int{0}},
		"read after read": {func(b *schedule.Builder) {
			b.Send(1, at(out, 0, 4))
			b.Send(2, at(out, 0, 4))
		}, nil},
		"neighbors": {func(b *schedule.Builder) {
			b.Recv(1, at(out, 0, 4))
			b.Recv(1, at(out, 4, 8))
		}, nil},
		"other memory": {func(b *schedule.Builder) {
			b.Recv(1, at(scratch, 0, 4))
			b.Send(1, at(out, 0, 4))
		}, nil},
		"in place": {func(b *schedule.Builder) {
			b.Send(1, at(in, 0, 4))
			b.Recv(1, at(out, 0, 4))
		}, []int{0}},
		"the readers, not what they waited for": {func(b *schedule.Builder) {
			b.Recv(1, at(out, 0, 4))
			b.Send(2, at(out, 0, 2))
			b.Send(3, at(out, 2, 4))
			b.Recv(1, at(out, 0, 4))
		}, []int{1, 2}},
		"a reader of one half, the writer of the other": {func(b *schedule.Builder) {
			b.Recv(1, at(out, 0, 4))
			b.Send(2, at(out, 0, 2))
			b.Recv(1, at(out, 0, 4))
		}, []int{0, 1}},
		"an operand of its own": {func(b *schedule.Builder) {
			b.Recv(1, at(out, 0, 4))
			b.RecvReduce(1, at(out, 0, 4), at(out, 0, 4))
		}, []int{0}},
		"nothing": {func(b *schedule.Builder) {
			b.Recv(1, at(out, 0, 4))
			b.Recv(1, at(out, 2, 2))
		}, nil},
	} {
		b := schedule.NewBuilder(0, 4, 8)
		b.Reserve(8)
		c.add(b)
		ops := b.Schedule().Ops
		if got := ops[len(ops)-1].Deps; !slices.Equal(got, c.want) {
			t.Errorf("%s: waits for %v, want %v", name, got, c.want)
		}
	}
}
