package schedule

import "fmt"

// MatchProblem is what keeps messages from being matched.
type MatchProblem uint8

const (
	// UnmatchedSend: a message that is not received.
	UnmatchedSend MatchProblem = iota
	// UnmatchedRecv: a message that is not sent.
	UnmatchedRecv
	// DuplicateMessage: two sends or two receives of the same message.
	DuplicateMessage
	// MessageGap: the numbers of the messages between two ranks leave one out.
	MessageGap
	// UnequalLengths: a send and a receive of different lengths.
	UnequalLengths
)

// MatchError says which op's message is not matched.
type MatchError struct {
	Problem  MatchProblem
	Rank, Op int
	Detail   string
}

// Error names rank and op.
func (e *MatchError) Error() string {
	return fmt.Sprintf("schedule: rank %d op %d: %s", e.Rank, e.Op, e.Detail)
}

// Match finds the other end of every message: peers[r][i] is the index, in the
// schedule of op i's peer, of the op at the other end of its message, or -1 for an
// op without one. all has one schedule per rank in the order of ranks, whose peers
// are ranks. The error is a *MatchError.
func Match(all []*Schedule) (peers [][]int32, err error) {
	m := &matching{all: all, links: map[[2]int]*link{}, peers: make([][]int32, len(all))}
	for r, s := range all {
		m.peers[r] = make([]int32, len(s.Ops))
		for i := range s.Ops {
			m.peers[r][i] = -1
			if err := m.enter(r, i); err != nil {
				return nil, err
			}
		}
	}
	for _, ends := range m.order {
		if err := m.match(ends); err != nil {
			return nil, err
		}
	}
	return m.peers, nil
}

// matching is a Match under way.
type matching struct {
	all   []*Schedule
	links map[[2]int]*link
	order [][2]int // the keys of links as they came up
	peers [][]int32
}

// link is the messages from one rank to another: the ops at both ends by number, -1
// where there is none.
type link struct{ sends, recvs []int32 }

// enter writes an op into its place among the ends of a link.
func (m *matching) enter(rank, i int) error {
	o := &m.all[rank].Ops[i]
	if o.Local() {
		return nil
	}
	key := [2]int{rank, o.Peer}
	if o.Receives() {
		key = [2]int{o.Peer, rank}
	}
	l := m.links[key]
	if l == nil {
		l = &link{}
		m.links[key] = l
		m.order = append(m.order, key)
	}
	ends := &l.sends
	if o.Receives() {
		ends = &l.recvs
	}
	if o.Msg < 0 || o.Msg >= len(m.all[rank].Ops)+len(m.all[o.Peer].Ops) {
		return &MatchError{MessageGap, rank, i, "there are not that many messages: numbers run from 0 without a gap"}
	}
	for len(*ends) <= o.Msg {
		*ends = append(*ends, -1)
	}
	if other := (*ends)[o.Msg]; other >= 0 {
		return &MatchError{DuplicateMessage, rank, i, fmt.Sprintf("op %d has number #%d of that peer already", other, o.Msg)}
	}
	(*ends)[o.Msg] = int32(i)
	return nil
}

// match joins the sends of a link with its receives.
func (m *matching) match(key [2]int) error {
	l, from, to := m.links[key], key[0], key[1]
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
			return l.gap(key, msg)
		case recv < 0:
			return &MatchError{UnmatchedSend, from, int(send), fmt.Sprintf("rank %d does not receive message #%d from rank %d", to, msg, from)}
		case send < 0:
			return &MatchError{UnmatchedRecv, to, int(recv), fmt.Sprintf("rank %d does not send message #%d to rank %d", from, msg, to)}
		}
		if n, k := m.all[from].Ops[send].Len(), m.all[to].Ops[recv].Len(); n != k {
			return &MatchError{UnequalLengths, to, int(recv), fmt.Sprintf("it takes %d elements, but rank %d sends %d", k, from, n)}
		}
		m.peers[from][send], m.peers[to][recv] = recv, send
	}
	return nil
}

// gap reports that a link has messages after msg, but no msg.
func (l *link) gap(key [2]int, msg int) error {
	for side, ends := range [][]int32{l.sends, l.recvs} {
		for _, i := range ends[min(msg, len(ends)):] {
			if i >= 0 {
				return &MatchError{MessageGap, key[side], int(i), fmt.Sprintf("there is no message #%d before it: numbers run from 0 without a gap", msg)}
			}
		}
	}
	return nil
}
