package check

import "github.com/scaffe/scaffe/schedule"

// joint is the schedules of all ranks with their messages joined. Ops are
// numbered through: op i of rank r is base[r]+i.
type joint struct {
	all  []*schedule.Schedule
	base []int32
	rank []int32 // op -> its rank
	peer []int32 // op -> the op at the other end of its message, -1: a copy
	prev []int32 // op -> the receive of the message before from the same peer, -1: none
}

// link is the messages from one rank to another, by number.
type link struct{ sends, recvs []int32 }

// join matches every send with its receive.
func join(all []*schedule.Schedule) (*joint, error) {
	j := number(all)
	links := make(map[[2]int]*link)
	keys := make([][2]int, 0, 4*len(all)) // in order of appearance
	at := func(from, to int) *link {
		key := [2]int{from, to}
		l := links[key]
		if l == nil {
			l = &link{}
			links[key] = l
			keys = append(keys, key)
		}
		return l
	}
	for _, s := range all {
		for i := range s.Ops {
			var err error
			switch o := &s.Ops[i]; {
			case o.Kind == schedule.Send:
				l := at(s.Rank, o.Peer)
				err = j.enter(&l.sends, s, i)
			case o.Receives():
				l := at(o.Peer, s.Rank)
				err = j.enter(&l.recvs, s, i)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	for _, key := range keys {
		if err := j.match(links[key]); err != nil {
			return nil, err
		}
	}
	return j, nil
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

// enter writes op i of s into its place among the ends of one link; places
// not yet taken hold -1.
func (j *joint) enter(ends *[]int32, s *schedule.Schedule, i int) error {
	o := &s.Ops[i]
	if o.Msg < 0 || o.Msg >= len(s.Ops)+len(j.all[o.Peer].Ops) {
		return failOp(MessageGap, s, i, "there are not that many messages: numbers run from 0 without a gap")
	}
	for len(*ends) <= o.Msg {
		*ends = append(*ends, -1)
	}
	if other := (*ends)[o.Msg]; other >= 0 {
		return failOp(DuplicateMessage, s, i, "op %d has number #%d of that peer already", other-j.base[s.Rank], o.Msg)
	}
	(*ends)[o.Msg] = j.base[s.Rank] + int32(i)
	return nil
}

// match joins the sends of a link with its receives.
func (j *joint) match(l *link) error {
	end := func(ends []int32, msg int) int32 {
		if msg < len(ends) {
			return ends[msg]
		}
		return -1
	}
	for msg := range max(len(l.sends), len(l.recvs)) {
		send, recv := end(l.sends, msg), end(l.recvs, msg)
		switch {
		case send < 0 && recv < 0:
			return j.gap(l, msg)
		case recv < 0:
			s, i := j.at(send)
			return failOp(UnmatchedSend, s, i, "rank %d does not receive message #%d from rank %d", s.Ops[i].Peer, msg, s.Rank)
		case send < 0:
			s, i := j.at(recv)
			return failOp(UnmatchedRecv, s, i, "rank %d does not send message #%d to rank %d", s.Ops[i].Peer, msg, s.Rank)
		}
		if n, m := j.op(send).Len(), j.op(recv).Len(); n != m {
			s, i := j.at(recv)
			return failOp(LengthMismatch, s, i, "it takes %d elements, but rank %d sends %d", m, s.Ops[i].Peer, n)
		}
		j.peer[send], j.peer[recv] = recv, send
		if msg > 0 {
			j.prev[recv] = l.recvs[msg-1]
		}
	}
	return nil
}

// gap reports that a link has messages after msg, but no msg.
func (j *joint) gap(l *link, msg int) error {
	for _, ends := range [][]int32{l.sends, l.recvs} {
		for _, n := range ends[min(msg, len(ends)):] {
			if n >= 0 {
				s, i := j.at(n)
				return failOp(MessageGap, s, i, "there is no message #%d before it: numbers run from 0 without a gap", msg)
			}
		}
	}
	return nil
}
