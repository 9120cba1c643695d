package nbc

import (
	"testing"

	"github.com/scaffe/scaffe/direct"
	"github.com/scaffe/scaffe/doubling"
	"github.com/scaffe/scaffe/linear"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/ring"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
)

// TestTheSimulationKnowsWhoIsAlone: the cost model has a copy of what a caller executes alone, and of what is relayed.
func TestTheSimulationKnowsWhoIsAlone(t *testing.T) {
	if relayLeast != sim.RelayLeast {
		t.Errorf("messages of %d bytes are not relayed, in the simulation %d", relayLeast, sim.RelayLeast)
	}
	if loneTrade != sim.AloneTrade || loneLent != sim.AloneLent {
		t.Errorf("%d messages are lent alone, of %d bytes where sums are traded; in the simulation %d and %d", loneLent, loneTrade, sim.AloneLent, sim.AloneTrade)
	}
}

// roomy lends messages of any size.
type roomy struct{ Eager }

func (roomy) EagerRoom(int) EagerRoom {
	return EagerRoom{Most: 1 << 30, Copied: 1 << 10, Kept: 1 << 10}
}
func (roomy) Bound(int) bool { return false }

// shared is memory that all share.
type shared struct{ Placer }

func (shared) Shared(mem.Buffer) bool { return true }

// TestWhoTradesSumsIsNotAlone: two ranks of a node that sum for each other leave messages of more than loneTrade bytes to the loop, which
// stores sums where they are wanted; on both ends alike. Others execute theirs alone.
func TestWhoTradesSumsIsNotAlone(t *testing.T) {
	const count = 4 * loneTrade / 8
	for _, c := range []struct {
		name   string
		ranks  int
		build  func(*schedule.Builder, schedule.Params)
		count  int // of elements of 8 bytes
		trades bool
		alone  bool
	}{
		{"direct allreduce", 2, direct.Allreduce, count, true, false},
		{"direct allreduce of few bytes", 2, direct.Allreduce, count / 2, true, true},
		{"direct reduce", 2, direct.Reduce, count, true, false},
		{"direct reduce of few bytes", 2, direct.Reduce, count / 2, true, true},
		{"ring allreduce", 2, ring.Allreduce, count, true, false},
		{"direct reduce of three", 3, direct.Reduce, 2 * count, false, true},
		{"linear reduce", 2, linear.Reduce, count, false, true},
		{"doubling allreduce", 2, doubling.Allreduce, count, false, true},
		{"direct bcast", 2, direct.Bcast, count, false, true},
		{"direct allgather", 2, direct.Allgather, count, false, true},
	} {
		for rank := range c.ranks {
			b := schedule.NewBuilder(rank, c.ranks, c.count)
			b.Apart()
			c.build(b, schedule.Params{Rank: rank, Size: c.ranks, Count: c.count, Chunk: c.count})
			plan, err := CompileOn(b.Schedule(), make([]int, c.ranks))
			if err != nil {
				t.Fatal(err)
			}
			buffer := func() mem.Buffer { return mem.Of(make([]int64, 2*c.count)) }
			r := &Request{plan: plan, bind: &Binding{Datatype: mem.Int64}, buffers: [3]mem.Buffer{buffer(), buffer(), buffer()}}
			r.bind.In, r.bind.Out = r.buffers[schedule.In], r.buffers[schedule.Out]
			alone := (&Engine{eager: roomy{}, placer: shared{}}).bindLone(r) != nil
			if plan.trades != c.trades || alone != c.alone {
				t.Errorf("%s, rank %d: it trades sums: %v, alone: %v; want %v, %v", c.name, rank, plan.trades, alone, c.trades, c.alone)
			}
		}
	}
}

// adding lends messages of up to 64 KiB, and of up to 256 what is added.
type adding struct{ Eager }

func (adding) EagerRoom(int) EagerRoom {
	return EagerRoom{Most: 64 << 10, Added: 256 << 10, Copied: 1 << 10, Kept: 1 << 10}
}
func (adding) Bound(int) bool { return false }

// TestWhoAddsIsAlone with larger messages than who moves them, and so is who sends them, of memory that is not shared.
func TestWhoAddsIsAlone(t *testing.T) {
	for _, c := range []struct {
		name  string
		build func(*schedule.Builder, schedule.Params)
		kib   int
		alone [2]bool
	}{
		{"reduce", linear.Reduce, 64, [2]bool{true, true}},
		{"bcast", linear.Bcast, 64, [2]bool{true, true}},
		{"reduce", linear.Reduce, 256, [2]bool{true, true}},
		{"bcast", linear.Bcast, 256, [2]bool{true, false}},
		{"reduce", linear.Reduce, 257, [2]bool{false, false}},
		{"bcast", linear.Bcast, 257, [2]bool{false, false}},
		{"allreduce of two who trade sums that cannot be stored where they are wanted", direct.Allreduce, 128, [2]bool{true, true}},
	} {
		for rank, want := range c.alone {
			count := c.kib << 10 / 8
			b := schedule.NewBuilder(rank, 2, count)
			c.build(b, schedule.Params{Rank: rank, Size: 2, Count: count, Chunk: count})
			plan, err := CompileOn(b.Schedule(), make([]int, 2))
			if err != nil {
				t.Fatal(err)
			}
			buffer := mem.Of(make([]int64, count))
			r := &Request{plan: plan, bind: &Binding{Datatype: mem.Int64, In: buffer, Out: buffer}, buffers: [3]mem.Buffer{buffer, buffer, buffer}}
			if alone := (&Engine{eager: adding{}}).bindLone(r) != nil; alone != want {
				t.Errorf("%s of %d KiB, rank %d: alone %v, want %v", c.name, c.kib, rank, alone, want)
			}
		}
	}
}

// A sum that is made in scratch memory to be copied is made where it belongs, unless it
// is needed in scratch memory too, or may not be made there.
func TestLoneSumsWhereTheyBelong(t *testing.T) {
	scratch, in, out := mem.Of(make([]int64, 4)), mem.Of(make([]int64, 4)), mem.Of(make([]int64, 4))
	sum := scratch.Slice(0, 16)
	reduce := func(src mem.Buffer) loneOp { return loneOp{kind: schedule.RecvReduce, dst: sum, src: src} }
	copying := func(dst, src mem.Buffer) loneOp { return loneOp{kind: schedule.Copy, dst: dst, src: src} }
	send := func(src mem.Buffer) loneOp { return loneOp{kind: schedule.Send, src: src} }
	for _, c := range []struct {
		name   string
		ops    []loneOp
		lends  bool
		direct bool
	}{
		{"a sum and its copy", []loneOp{send(in.Slice(0, 16)), reduce(in.Slice(0, 16)), copying(out.Slice(0, 16), sum)}, false, true},
		{"in place", []loneOp{reduce(out.Slice(0, 16)), copying(out.Slice(0, 16), sum)}, false, true},
		{"the result is sent on", []loneOp{reduce(in.Slice(0, 16)), copying(out.Slice(0, 16), sum), send(out.Slice(0, 16))}, false, true},
		{"the sum is sent on", []loneOp{reduce(in.Slice(0, 16)), copying(out.Slice(0, 16), sum), send(sum)}, false, false},
		{"a part of it is added to another", []loneOp{reduce(in.Slice(0, 16)), copying(out.Slice(0, 16), sum), reduce(sum.Slice(8, 8))}, false, false},
		{"it is added to", []loneOp{reduce(in.Slice(0, 16)), copying(out.Slice(0, 16), sum), {kind: schedule.Add, dst: out, src: sum, with: in}}, false, false},
		{"it is added", []loneOp{reduce(in.Slice(0, 16)), copying(out.Slice(0, 16), sum), {kind: schedule.Add, dst: out, src: in, with: sum}}, false, false},
		{"of messages that are lent", []loneOp{reduce(in.Slice(0, 16)), copying(out.Slice(0, 16), sum)}, true, false},
		{"over a part of what is added", []loneOp{reduce(out.Slice(8, 16)), copying(out.Slice(0, 16), sum)}, false, false},
		{"a copy of something else", []loneOp{reduce(in.Slice(0, 16)), copying(out.Slice(0, 16), scratch.Slice(16, 16))}, false, false},
		{"a sum made elsewhere", []loneOp{{kind: schedule.RecvReduce, dst: in, src: in}, copying(out, in)}, false, false},
	} {
		l := lone{ops: c.ops, lends: c.lends, scratch: scratch}
		l.direct()
		at := 0
		for l.ops[at].kind != schedule.RecvReduce {
			at++
		}
		made, copied := l.ops[at].dst, l.ops[at+1]
		if got := made.Same(out.Slice(0, 16)) && copied.dst.Same(copied.src); got != c.direct {
			t.Errorf("%s: the sum is made at its destination: %v, want %v", c.name, got, c.direct)
		}
		if !c.direct && copied.dst.Same(copied.src) {
			t.Errorf("%s: it is not copied any more", c.name)
		}
	}
}
