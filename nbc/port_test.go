package nbc

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/scaffe/scaffe/schedule"
)

// portMessage is how many bytes portRequest sends.
const portMessage = 4 * LinkBytes

// portRequest is a request of rank 0 that sends one large message to another rank, with a credit of so many of them.
func portRequest(tb testing.TB, q *linkQueue, to, priority, credit int) *Request {
	tb.Helper()
	s, err := schedule.Parse(fmt.Sprintf("rank 0 of 4 count %d scratch 0\n0: send in[0:%d] to %d #0\n", LinkBytes, LinkBytes, to))
	if err != nil {
		tb.Fatal(err)
	}
	plan, err := Compile(s)
	if err != nil {
		tb.Fatal(err)
	}
	r := &Request{plan: plan, bind: &Binding{Priority: priority, Credit: credit * portMessage}}
	q.admit(r)
	return r
}

// leave returns the priorities of the sends that leave at once.
func leave(q *linkQueue, now time.Time) (priorities []int) {
	for {
		h, ok := q.next(now)
		if !ok {
			return priorities
		}
		priorities = append(priorities, h.priority)
	}
}

// end says that the oldest send of l that takes credit has ended.
func end(l *link, now time.Time) {
	for _, a := range l.away {
		if !a.stands {
			l.sent(a.r, a.op, now)
			return
		}
	}
	l.sent(nil, 0, now) // of one that is no port
}

// TestP3_ThePortSendsWhatIsNeededNext: with a credit of two, two messages are under way to three
// other nodes together, and whichever peer the next one goes to, it is the most urgent: one
// that is handed over late waits behind two at most (section 4.2). By links, each has two under
// way, which lets less urgent messages leave before it, and that is counted.
func TestP3_ThePortSendsWhatIsNeededNext(t *testing.T) {
	for _, credit := range []int{0, 2} {
		now := time.Now()
		var q linkQueue
		q.open(0, []int{0, 1, 2, 3}, now)
		hold := func(to, priority int) *link {
			r := portRequest(t, &q, to, priority, credit)
			l := q.to(r, 0)
			q.hold(l, r, 0, now)
			return l
		}
		var links [4]*link
		for to := 1; to < 4; to++ {
			for n := range 4 {
				links[to] = hold(to, 10*n+to)
			}
		}
		under := leave(&q, now)
		now = now.Add(time.Millisecond)
		hold(1, 0) // the first layer's
		end(links[3], now)
		after := leave(&q, now)
		want, then, inversions := "[1 2 3 11 12 13]", "[23]", int64(1)
		if credit > 0 {
			want, then, inversions = "[1 2]", "[0]", 0
		}
		if fmt.Sprint(under) != want || fmt.Sprint(after) != then {
			t.Errorf("credit %d: %v leave, want %v; then %v, want %v", credit, under, want, after, then)
		}
		end(links[1], now) // which has taken messages by itself where there is no credit
		leave(&q, now)
		if got := q.begun.overtaken.Load(); got != inversions || q.patience.Load() != 0 {
			t.Errorf("credit %d: %d inversions, want %d; %d by patience", credit, got, inversions, q.patience.Load())
		}
	}
}

// TestP3_APortThatStandsStill takes one message more when its patience ends, the most
// urgent, and counts it; where messages take longer to leave it waits for longer, within a bound.
func TestP3_APortThatStandsStill(t *testing.T) {
	now := time.Now()
	var q linkQueue
	q.open(0, []int{0, 1, 2, 3}, now)
	for n := range 60 {
		r := portRequest(t, &q, 1+n%3, 60-n, 1)
		q.hold(q.to(r, 0), r, 0, now)
	}
	if got := fmt.Sprint(leave(&q, now), q.port.under); got != "[1] 1" {
		t.Fatalf("%v leave", got)
	}
	now = now.Add(LinkPatience)
	if got := leave(&q, now); len(got) > 0 {
		t.Fatalf("%v leave too soon", got)
	}
	now = now.Add(time.Microsecond)
	if got := fmt.Sprint(leave(&q, now), q.patience.Load()); got != "[2] 1" {
		t.Fatalf("out of patience: %v", got)
	}
	if got := time.Duration(q.longest.Load()); got != LinkPatience+time.Microsecond {
		t.Errorf("the longest wait is %v", got)
	}
	end(q.port, now) // the second
	for range 20 {   // each of which takes 5 ms to leave
		now = now.Add(5 * time.Millisecond)
		end(q.port, now)
		if got := leave(&q, now); len(got) != 1 {
			t.Fatalf("%v leave after one has", got)
		}
	}
	now = now.Add(portTurns * 3 * 4 * time.Millisecond) // while three may be sending one receiver
	if got := leave(&q, now); len(got) > 0 {
		t.Errorf("%v leave while the one before is still leaving", got)
	}
	for range 20 { // a receiver that comes late
		now = now.Add(time.Minute)
		end(q.port, now)
		leave(&q, now)
	}
	now = now.Add(MostPortPatience + time.Microsecond)
	if got := leave(&q, now); len(got) != 1 {
		t.Errorf("%v leave where nothing moves", got)
	}
}

// TestP3_APortLearnsHowSlowItIs: where messages leave two at a time and take longer than any link waits, as on a slow network into the
// kernel's memory, some are let go at first, which makes those under way slower still, and soon none.
func TestP3_APortLearnsHowSlowItIs(t *testing.T) {
	const took = MostPatience * 3 / 4
	now := time.Now()
	var q linkQueue
	q.open(0, []int{0, 1, 2, 3}, now)
	for n := range 400 {
		r := portRequest(t, &q, 1+n%3, n, 2)
		q.hold(q.to(r, 0), r, 0, now)
	}
	var early int64
	next := now.Add(2 * took)
	for left := 75; left > 0; now = now.Add(LinkPatience / 2) {
		leave(&q, now)
		if now.Before(next) {
			continue
		}
		for range 2 {
			oldest := q.port.away[0] // it stands, if one does
			q.port.sent(oldest.r, oldest.op, now)
		}
		next = now.Add(2 * took)
		if left--; left == 50 {
			early = q.patience.Load()
		}
	}
	if early == 0 || q.patience.Load() != early {
		t.Errorf("patience let %d go while 50 messages left, and %d while the 100 after them did", early, q.patience.Load()-early)
	}
}

// TestALinkWaitsAsLongAsItsMessagesTake before patience lets one more go, within a bound: messages that take longer than
// LinkPatience would else all be under way at once, and end together, late.
func TestALinkWaitsAsLongAsItsMessagesTake(t *testing.T) {
	now := time.Now()
	var q linkQueue
	q.open(0, []int{0, 1}, now)
	for n := range 80 {
		r := portRequest(t, &q, 1, n, 0)
		q.hold(q.to(r, 0), r, 0, now)
	}
	l := q.links[1]
	leave(&q, now)
	for range 30 { // each of which takes 5 ms to leave
		now = now.Add(5 * time.Millisecond)
		end(l, now)
		leave(&q, now)
	}
	before := q.patience.Load() // until the pace was known
	now = now.Add((linkPaces - 1) * 5 * time.Millisecond)
	if got := leave(&q, now); len(got) > 0 {
		t.Errorf("%v leave while the one before is still leaving", got)
	}
	now = now.Add(5*time.Millisecond + time.Microsecond)
	if got := leave(&q, now); len(got) != 1 || q.patience.Load() != before+1 {
		t.Errorf("%v leave where nothing moves, %d by patience", got, q.patience.Load()-before)
	}
	for range 20 { // a receiver that comes late
		now = now.Add(time.Minute)
		end(l, now)
		leave(&q, now)
	}
	now = now.Add(MostPatience + time.Microsecond)
	if got := leave(&q, now); len(got) != 1 {
		t.Errorf("%v leave where a receiver is late", got)
	}
}

// TestP3_ALateReceiverCostsItsOwnMessagesPatience alone: one stands, since its receiver is late, and after the port's patience
// the others, to receivers that are there, leave one after another as if it were not under way. When it ends, none leaves in its place.
func TestP3_ALateReceiverCostsItsOwnMessagesPatience(t *testing.T) {
	for credit := 1; credit <= 3; credit++ {
		now := time.Now()
		var q linkQueue
		q.open(0, []int{0, 1, 2, 3}, now)
		for n := range 100 {
			to := 2 + n%2
			if n < credit {
				to = 1 // the most urgent, to the late rank
			}
			r := portRequest(t, &q, to, n, credit)
			q.hold(q.to(r, 0), r, 0, now)
		}
		begun := len(leave(&q, now))
		late := slices.Clone(q.port.away)
		for range late { // the port stands still, until one of them counts no more
			now = now.Add(LinkPatience + time.Microsecond)
			begun += len(leave(&q, now))
		}
		if begun != 2*credit || q.patience.Load() != int64(credit) || q.port.under != credit {
			t.Fatalf("credit %d: %d have begun, %d by patience, %d take credit", credit, begun, q.patience.Load(), q.port.under)
		}
		for range 40 {
			now = now.Add(time.Millisecond)
			end(q.port, now)
			if got := leave(&q, now); len(got) != 1 {
				t.Fatalf("credit %d: %v leave when one has ended, beside those that stand", credit, got)
			}
		}
		for _, a := range late {
			q.port.sent(a.r, a.op, now)
			if got := leave(&q, now); len(got) != 0 {
				t.Fatalf("credit %d: %v leave when one that stood has ended", credit, got)
			}
		}
		if q.patience.Load() != int64(credit) || q.port.under != credit || len(q.port.away) != credit {
			t.Errorf("credit %d: %d by patience, %d of %d take credit", credit, q.patience.Load(), q.port.under, len(q.port.away))
		}
	}
}

// TestP3_CreditIsOfSlices: where a collective sends its buffer in parts, as a ring does, or slices are small, so many messages are under way
// as come to slices (section 4.2): here to two of 50,000 parameters. One is, however large.
func TestP3_CreditIsOfSlices(t *testing.T) {
	for _, c := range []struct{ elements, parts, want int }{
		{50_000, 1, 2}, // a whole slice
		{50_000, 4, 8}, // a ring of four
		{50_000, 3, 6},
		{5_000, 1, 20}, // small slices, or what is left of a layer
		{4_000_000, 1, 1},
		{1_600_000, 128, 8}, // a bucket in chunks
	} {
		var q linkQueue
		now := time.Now()
		q.open(0, []int{0, 1}, now)
		text := fmt.Sprintf("rank 0 of 2 count %d scratch 0\n", c.elements)
		part := (c.elements + c.parts - 1) / c.parts
		for i := range c.parts {
			text += fmt.Sprintf("%d: send in[%d:%d] to 1 #%d\n", i, i*part, min((i+1)*part, c.elements), i)
		}
		s, err := schedule.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := Compile(s)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 30 {
			r := &Request{plan: plan, bind: &Binding{Priority: n, Credit: 400_000}}
			q.admit(r)
			for i := range int32(c.parts) {
				if l := q.to(r, i); l != nil {
					q.hold(l, r, i, now)
				}
			}
		}
		if got := len(leave(&q, now)); got != c.want {
			t.Errorf("%d elements in %d parts: %d leave at once, want %d", c.elements, c.parts, got, c.want)
		}
	}
}

// TestPortsAndLinksAreApart: what has no credit takes no part in the port, and the other way round.
func TestPortsAndLinksAreApart(t *testing.T) {
	now := time.Now()
	var q linkQueue
	q.open(0, []int{0, 1, 1, 0}, now)
	for n := range 4 {
		for credit := range 2 {
			r := portRequest(t, &q, 1, 2*n+credit, credit)
			q.hold(q.to(r, 0), r, 0, now)
		}
	}
	if got := fmt.Sprint(leave(&q, now)); got != "[0 1 2]" {
		t.Errorf("%v leave", got)
	}
	if near := portRequest(t, &q, 3, 0, 1); q.to(near, 0) != nil {
		t.Error("a message within the node is held back")
	}
}
