package draw

import (
	"slices"

	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check"
)

// message is a transfer and what it carries.
type message struct {
	check.Transfer
	off   int  // the first element of the collective's buffer that it carries
	chunk int  // off's place among all messages' offsets
	adds  bool // it is added on arrival; otherwise stored
}

// messages returns the transfers with their chunks, and how many chunks there
// are.
func messages(all []*schedule.Schedule) ([]message, int, error) {
	transfers, err := check.Timeline(all)
	if err != nil {
		return nil, 0, err
	}
	o := origins{all: all, sender: map[end]end{}}
	for _, t := range transfers {
		o.sender[end{t.To, t.Recv}] = end{t.From, t.Send}
	}
	list := make([]message, len(transfers))
	var offs []int
	for i, t := range transfers {
		list[i] = message{
			Transfer: t,
			off:      o.of(t.From, t.Send, all[t.From].Ops[t.Send].Src),
			adds:     all[t.To].Ops[t.Recv].Kind == schedule.RecvReduce,
		}
		offs = append(offs, list[i].off)
	}
	slices.Sort(offs)
	offs = slices.Compact(offs)
	for i := range list {
		list[i].chunk, _ = slices.BinarySearch(offs, list[i].off)
	}
	return list, len(offs), nil
}

// end is one op of one rank.
type end struct{ rank, op int }

// origins follows data back to its place in the collective's buffer.
type origins struct {
	all    []*schedule.Schedule
	sender map[end]end // receive -> its send
}

// of returns which element the first one of ref is, just before op i of rank.
// In and Out lie as the collective's buffer does; of Scratch, the op that
// wrote it last says. Ops that touch the same range are ordered as in the
// program.
func (o origins) of(rank, i int, ref schedule.Ref) int {
	for ref.Buf == schedule.Scratch {
		op := o.writer(rank, i, ref.Off)
		if op < 0 {
			break // never written: the proof complains about that, not the picture
		}
		w := &o.all[rank].Ops[op]
		shift := ref.Off - w.Dst.Off
		if w.Kind == schedule.Recv {
			s := o.sender[end{rank, op}]
			rank, op = s.rank, s.op
		}
		i, ref = op, o.all[rank].Ops[op].Src
		ref.Off += shift
	}
	return ref.Off
}

// writer returns the last op of rank before op i that writes element off of
// Scratch, -1 for none.
func (o origins) writer(rank, i, off int) int {
	for i--; i >= 0; i-- {
		op := &o.all[rank].Ops[i]
		if op.Writes() && op.Dst.Buf == schedule.Scratch && op.Dst.Off <= off && off < op.Dst.End() {
			return i
		}
	}
	return -1
}
