package schedule

import "slices"

// Places returns at how many places a sum that s sends on is wanted, at most: in Out, where its own rank wants it, and at
// each rank that it is sent to. It is 0 where the rank makes more of such sums than its part, as one of so many ranks:
// where ranks divide the sums up, each does for the others what they do for it, and the engine stores its sums
// where they are wanted. A rank that sums for others lets them copy meanwhile.
func (s *Schedule) Places(g *Graph, ranks int) int {
	sums, elements, most := 0, 0, 0
	for i := range s.Ops {
		sum := &s.Ops[i]
		if !sum.Adds() {
			continue
		}
		places := s.passedOn(g, int32(i), func(int) bool { return true })
		if places == 0 {
			continue
		}
		sums++
		elements += sum.Dst.Len
		if sum.Dst.Buf == Out {
			places++
		}
		most = max(most, places)
	}
	if elements > s.Count/max(1, ranks)+sums { // parts are rounded up
		return 0
	}
	return most
}

// Relays says which ops of s receive a message of a rank of the same node that s passes on to all others of it, and of how many elements
// the longest is; nil where the rank passes on more than its part, as one of so many ranks of the node: where
// the ranks that have not the buffer divide it up, each stores its part where all of them want it, at places one less than
// the ranks. near says which ranks are of the node.
func (s *Schedule) Relays(g *Graph, ranks int, near func(rank int) bool) (relays []bool, longest int) {
	messages, elements := 0, 0
	for i := range s.Ops {
		op := &s.Ops[i]
		if op.Kind != Recv || !near(op.Peer) {
			continue
		}
		if n := s.passedOn(g, int32(i), near); n > 0 && n == ranks-2 {
			if relays == nil {
				relays = make([]bool, len(s.Ops))
			}
			relays[i] = true
			messages++
			elements += op.Dst.Len
			longest = max(longest, op.Dst.Len)
		}
	}
	if elements > s.Count/max(1, ranks-1)+messages { // parts are rounded up
		return nil, 0
	}
	return relays, longest
}

// passedOn returns to how many ranks of those s sends what op i has written.
func (s *Schedule) passedOn(g *Graph, i int32, to func(rank int) bool) (ranks int) {
	for _, j := range g.Waiting(i) {
		if s.Ops[j].Passes(&s.Ops[i]) && to(s.Ops[j].Peer) {
			ranks++
		}
	}
	return ranks
}

// Passes reports whether o sends what op has written, all of it and nothing else.
func (o *Op) Passes(op *Op) bool { return o.Kind == Send && o.Src == op.Dst }

// Trades reports whether the rank and the only other one of its node divide sums up: one of them, or both, gets what the other has
// summed. ranks are those of the node, itself too.
func (s *Schedule) Trades(g *Graph, ranks int) bool {
	if ranks != 2 {
		return false
	}
	adds, stores := false, s.Places(g, ranks) > 0
	for i := range s.Ops {
		adds = adds || s.Ops[i].Adds()
		stores = stores || s.Ops[i].Kind == Recv
	}
	return adds && stores
}

// Begin returns the ops that wait for none, in the order in which they are to begin. Where sums are traded the first receive of one comes
// before all else: the other rank knows then where it is wanted before it may begin to add. (All receives first would be
// too much: what they cost comes before the first message.)
func (s *Schedule) Begin(g *Graph, trades bool) []int32 {
	var free []int32
	for i, waits := range g.waits {
		if waits > 0 {
			continue
		}
		if trades && s.Ops[i].Kind == Recv {
			free, trades = slices.Insert(free, 0, int32(i)), false
			continue
		}
		free = append(free, int32(i))
	}
	return free
}
