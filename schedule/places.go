package schedule

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
		places := 0
		for _, j := range g.Waiting(int32(i)) {
			if s.Ops[j].Passes(sum) {
				places++
			}
		}
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

// Passes reports whether o sends what sum has written, all of it and nothing else.
func (o *Op) Passes(sum *Op) bool { return o.Kind == Send && o.Src == sum.Dst }
