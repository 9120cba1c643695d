package check

import (
	"errors"

	"github.com/scaffe/scaffe/schedule"
)

// joint is the schedules of all ranks with their messages joined. Ops are
// numbered through: op i of rank r is base[r]+i.
type joint struct {
	all  []*schedule.Schedule
	base []int32
	rank []int32 // op -> its rank
	peer []int32 // op -> the op at the other end of its message, -1: none
	prev []int32 // op -> the receive of the message before from the same peer, -1: none
}

// join matches every send with its receive.
func join(all []*schedule.Schedule) (*joint, error) {
	peers, err := schedule.Match(all)
	if err != nil {
		return nil, unmatched(all, err)
	}
	j := number(all)
	for r, s := range all {
		received := map[int][]int32{} // by peer, and then by number
		for i := range s.Ops {
			o := &s.Ops[i]
			if o.Local() {
				continue
			}
			n := j.base[r] + int32(i)
			j.peer[n] = j.base[o.Peer] + peers[r][i]
			if !o.Receives() {
				continue
			}
			of := received[o.Peer]
			for len(of) <= o.Msg { // mostly once: builders number as they go
				of = append(of, -1)
			}
			of[o.Msg], received[o.Peer] = n, of
		}
		for _, of := range received {
			for msg := 1; msg < len(of); msg++ {
				j.prev[of[msg]] = of[msg-1]
			}
		}
	}
	return j, nil
}

// unmatched returns what Match found wrong as this package says it.
func unmatched(all []*schedule.Schedule, err error) error {
	var e *schedule.MatchError
	if !errors.As(err, &e) {
		return err
	}
	kind := map[schedule.MatchProblem]Kind{
		schedule.UnmatchedSend: UnmatchedSend, schedule.UnmatchedRecv: UnmatchedRecv, schedule.DuplicateMessage: DuplicateMessage,
		schedule.MessageGap: MessageGap, schedule.UnequalLengths: LengthMismatch,
	}[e.Problem]
	return failOp(kind, all[e.Rank], e.Op, "%s", e.Detail)
}

// number returns the joint of all with no messages joined yet.
func number(all []*schedule.Schedule) *joint {
	total := 0
	for _, s := range all {
		total += len(s.Ops)
	}
	cells := make([]int32, len(all)+3*total)
	cut := func(n int) []int32 {
		c := cells[:n:n]
		cells = cells[n:]
		return c
	}
	j := &joint{all: all, base: cut(len(all)), rank: cut(total), peer: cut(total), prev: cut(total)}
	n := int32(0)
	for r, s := range all {
		j.base[r] = n
		for range s.Ops {
			j.rank[n], j.peer[n], j.prev[n] = int32(r), -1, -1
			n++
		}
	}
	return j
}

// at returns the schedule and the index in it of op n.
func (j *joint) at(n int32) (*schedule.Schedule, int) {
	r := j.rank[n]
	return j.all[r], int(n - j.base[r])
}

func (j *joint) op(n int32) *schedule.Op {
	s, i := j.at(n)
	return &s.Ops[i]
}
