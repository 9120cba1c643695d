package nbc

import (
	"testing"

	"github.com/scaffe/scaffe/schedule"
)

// A sum that goes on where it is, in the pass that makes it, is not read there; one that is sent on from there is.
func TestReadsOut(t *testing.T) {
	all := schedule.Range{Len: 1000}
	mine, sum := schedule.Ref{Buf: schedule.In, Range: all}, schedule.Ref{Buf: schedule.Out, Range: all}
	for _, sends := range []bool{false, true} {
		b := schedule.NewBuilder(0, 3, all.Len)
		b.RecvReduce(1, mine, sum)
		b.RecvReduce(2, sum, sum)
		if sends {
			b.Send(1, sum)
		}
		p, err := Compile(b.Schedule())
		if err != nil {
			t.Fatal(err)
		}
		if p.readsOut != sends {
			t.Errorf("where the sum is sent on: %v, Out is read: %v", sends, p.readsOut)
		}
	}
}
