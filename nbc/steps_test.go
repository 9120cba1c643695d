package nbc

import (
	"testing"
	"time"
)

// stepped is a node in a model of steps: its port, whose order is the linkQueue's, puts one unit of one message on
// the wire in a step, and of messages that are under way the one that began first goes first.
type stepped struct {
	q     linkQueue
	now   time.Time
	rank  int
	units map[*Request]int // on the wire still
	under []*Request
	plans map[int]*Plan // by the rank that a message goes to
}

// aStep is how long a step takes: much less than the port's patience.
const aStep = LinkPatience / 20

func newStepped(rank, size int) *stepped {
	s := &stepped{now: time.Now(), rank: rank, units: map[*Request]int{}, plans: map[int]*Plan{}}
	nodes := make([]int, size)
	for i := range nodes {
		nodes[i] = i
	}
	s.q.open(rank, nodes, s.now)
	return s
}

// hand hands a message over: so many units, to a rank.
func (s *stepped) hand(tb testing.TB, to, priority, credit, units int) *Request {
	tb.Helper()
	plan := s.plans[to]
	if plan == nil {
		plan = portRequest(tb, &s.q, to, priority, credit).plan
		s.plans[to] = plan
	}
	r := &Request{plan: plan, bind: &Binding{Priority: priority, Credit: credit * portMessage}}
	s.q.admit(r)
	s.units[r] = units
	s.q.hold(s.q.to(r, 0), r, 0, s.now)
	return r
}

// step goes on by one, and returns the message of which the last unit has left, or nil.
func (s *stepped) step() (left *Request) {
	for {
		h, ok := s.q.next(s.now)
		if !ok {
			break
		}
		s.under = append(s.under, h.r)
	}
	s.now = s.now.Add(aStep)
	if len(s.under) == 0 {
		return nil
	}
	r := s.under[0]
	if s.units[r]--; s.units[r] > 0 {
		return nil
	}
	s.under = s.under[1:]
	s.q.to(r, 0).sent(r, 0, s.now)
	return r
}

// TestP3_PriorityHalvesTheDelay is Figure 4: three layers, whose passes take a unit of time each, and whose
// synchronization takes two. In the order of the backward pass, the next iteration begins four units after it,
// twice what the first layer's synchronization takes; by priority after two, and forward then waits for nothing more
// (sections 3 and 4).
func TestP3_PriorityHalvesTheDelay(t *testing.T) {
	const layers, backward = 3, 3
	for _, c := range []struct {
		priorities  bool
		delay, ends int
	}{{false, 4, 10}, {true, 2, 8}} {
		n := newStepped(0, 2)
		layer := map[*Request]int{}
		var arrived [layers]int // when the last slice of each has
		for now := range 8 {
			if l := layers - now; now > 0 && l >= 0 { // its backward pass has ended
				for range 2 { // slices of a unit
					priority := 0
					if c.priorities {
						priority = l
					}
					layer[n.hand(t, 1, priority, 1, 1)] = l
				}
			}
			if r := n.step(); r != nil {
				arrived[layer[r]] = now + 1
			}
		}
		forward := 0
		for _, a := range arrived {
			forward = max(forward, a) + 1
		}
		if delay := arrived[0] - backward; delay != c.delay || forward != c.ends {
			t.Errorf("priorities %v: forward begins after %d units and ends at %d, want %d and %d", c.priorities, delay, forward, c.delay, c.ends)
		}
	}
}

// TestP3_SlicingSavesThirtyPercent is Figure 6: of three layers the second takes thrice as long as the others to
// go to the server, to be updated and to come back. By whole layers that takes 10 units, of which the last 3 only bring
// that layer back; in slices of a unit 7, since the two directions and the updates overlap (sections 3 and 4).
func TestP3_SlicingSavesThirtyPercent(t *testing.T) {
	for want, messages := range map[int][]int{10: {1, 3, 1}, 7: {1, 1, 1, 1, 1}} {
		worker, server := newStepped(0, 2), newStepped(1, 2)
		size, due := map[*Request]int{}, map[int][]int{} // by time, what has been updated then
		left := 0
		for _, units := range messages {
			size[worker.hand(t, 1, 0, 1, units)] = units
			left++
		}
		now := 0
		for ; left > 0 && now < 100; now++ {
			for _, units := range due[now] {
				server.hand(t, 0, 0, 1, units)
			}
			if r := worker.step(); r != nil {
				end := now + 1 + size[r] // of the update
				due[end] = append(due[end], size[r])
			}
			if server.step() != nil {
				left--
			}
		}
		if now != want {
			t.Errorf("messages of %v units take %d, want %d", messages, now, want)
		}
	}
}

// TestP3_AFirstLayerOvertakesAHeavyOne: while the 2,056 slices of VGG19's fc6 go up from four nodes, dealt to
// servers on all of them, each beginning with another one, the slice of conv1 is at its server within six slices' wire time
// from when it is handed over, from every worker and whenever that is: behind three that its own port has under way, and what the
// server's port has taken from others (section 4.2). In the order of hand-over it waits for all.
func TestP3_AFirstLayerOvertakesAHeavyOne(t *testing.T) {
	const nodes, slices, credit, conv1, fc6 = 4, 2056, 3, 0, 16
	longest := func(handed, server, priority int) (most int) {
		var ports []*stepped
		var incoming [nodes][]*Request // at each node's port, which takes one in a step
		from := map[*Request]int{}
		for w := range nodes {
			s := newStepped(w, nodes)
			for i := range slices {
				if to := (w + 1 + i) % nodes; to != w { // its own share stays
					s.hand(t, to, fc6, credit, 1)
				}
			}
			ports = append(ports, s)
		}
		left := nodes - 1
		for now := 0; left > 0; now++ {
			if now == handed {
				for w, s := range ports {
					if w != server {
						from[s.hand(t, server, priority, credit, 1)] = w
					}
				}
			}
			for to := range incoming { // what was on the wire before
				if len(incoming[to]) > 0 {
					if _, is := from[incoming[to][0]]; is {
						most, left = max(most, now+1-handed), left-1
					}
					incoming[to] = incoming[to][1:]
				}
			}
			for _, s := range ports {
				if r := s.step(); r != nil {
					to := r.plan.schedule.Ops[0].Peer
					incoming[to] = append(incoming[to], r)
				}
			}
		}
		return most
	}
	worst := 0
	for _, handed := range []int{0, 1, 2, 3, 50, 101, 702, 1203} {
		for server := range nodes {
			worst = max(worst, longest(handed, server, conv1))
		}
	}
	if worst > 6 {
		t.Errorf("conv1 is at its server after %d slices' time", worst)
	}
	if got := longest(50, 0, fc6); got < slices*(nodes-1)/nodes-50 {
		t.Errorf("without priorities it is there after %d", got)
	}
	t.Logf("at most %d slices' time", worst)
}
