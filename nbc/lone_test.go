package nbc

import (
	"testing"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

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
