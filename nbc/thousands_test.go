package nbc

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// What these tests count must not grow with the requests that wait, but for the logarithm
// of their number.

// TestHeap: what comes out is always the most urgent: by priority, then by start, and of one
// request in order.
func TestHeap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var requests []*Request
		for i := range rapid.IntRange(1, 8).Draw(t, "requests") {
			requests = append(requests, &Request{order: uint64(i), bind: &Binding{Priority: rapid.IntRange(0, 3).Draw(t, "priority")}})
		}
		var h heap
		var wait []pending // the dumb twin
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(wait) == 0 || rapid.IntRange(0, 2).Draw(t, "step") > 0 {
				r := rapid.SampledFrom(requests).Draw(t, "request")
				h.push(r, int32(h.pushed))
				wait = append(wait, pending{r.bind.Priority, r.order, h.pushed, r, int32(h.pushed - 1), 0})
				continue
			}
			slices.SortFunc(wait, func(a, b pending) int {
				return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.order, b.order), cmp.Compare(a.op, b.op))
			})
			if rapid.IntRange(0, 9).Draw(t, "drop") == 0 {
				odd := func(p *pending) bool { return p.op%2 == 1 }
				h.retain(odd)
				wait = slices.DeleteFunc(wait, func(p pending) bool { return !odd(&p) })
				continue
			}
			if got := h.pop(); got != wait[0] {
				t.Fatalf("%+v comes out, not %+v", got, wait[0])
			}
			wait = wait[1:]
		}
		if len(h.items) != len(wait) || h.empty() != (len(wait) == 0) {
			t.Fatalf("%d are left, not %d", len(h.items), len(wait))
		}
	})
}

// sends returns n requests that send a large message to rank 1 of another node.
func sends(tb testing.TB, n int) []*Request {
	tb.Helper()
	s, err := schedule.Parse(fmt.Sprintf("rank 0 of 2 count %d scratch 0\n0: send in[0:%d] to 1 #0\n", LinkBytes, LinkBytes))
	if err != nil {
		tb.Fatal(err)
	}
	plan, err := Compile(s)
	if err != nil {
		tb.Fatal(err)
	}
	requests := make([]*Request, n)
	for i := range requests {
		requests[i] = &Request{plan: plan, bind: &Binding{Priority: i % 7}}
	}
	return requests
}

// TestATurnOfTheLinksCostsTheSame with 10,000 messages held back as with 10: each message that
// leaves costs a few comparisons, and none where a link is full.
func TestATurnOfTheLinksCostsTheSame(t *testing.T) {
	for _, n := range []int{10, 10_000} {
		now := time.Now()
		var q linkQueue
		q.open(0, []int{0, 1}, now)
		for _, r := range sends(t, n) {
			q.admit(r)
			q.hold(q.to(r, 0), r, 0, now)
		}
		l, last := q.links[1], -1
		most := 2 * bits.Len(uint(n)) // of each level both children
		for left := n; left > 0; left-- {
			steps := l.held.steps
			h, ok := q.next(now)
			if steps = l.held.steps - steps; !ok || steps > most {
				t.Fatalf("of %d: %d comparisons for one that leaves (%v), want %d at most", left, steps, ok, most)
			}
			if h.priority < last {
				t.Fatalf("priority %d leaves after %d", h.priority, last)
			}
			last = h.priority
			if l.under == SendWindow {
				steps = l.held.steps
				if _, ok := q.next(now); ok || l.held.steps > steps {
					t.Fatalf("a full link takes another one (%v), or compares %d", ok, l.held.steps-steps)
				}
				l.sent(nil, 0, now)
			}
		}
		if q.held != 0 || len(q.waiting) != 0 {
			t.Errorf("%d messages are held, on %d links", q.held, len(q.waiting))
		}
	}
}

// counting is a Notifier that counts what is told.
type counting struct{ told int }

func (c *counting) Notify(int, []byte) error             { c.told++; return nil }
func (c *counting) NextNotice([]byte) (from, length int) { return -1, 0 }

// TestThousandsThatStall are looked at in many turns, and ask in turn: no look takes long,
// and yet each is looked at, has asked, and is found by its name and by its inquiry.
func TestThousandsThatStall(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine does it all: nothing for the race detector")
	}
	const n, deadline = 20_000, time.Hour
	var x executor
	var open identities
	var asked counting
	m := stallMonitor{rank: 0, size: 2, exec: &x, identities: &open, notifier: &asked}
	now := time.Now()
	s, err := schedule.Parse("rank 0 of 2 count 4 scratch 0\n0: recv out[0:4] from 1 #0\n")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	requests := make([]*Request, n)
	for i := range requests {
		r := &Request{plan: plan, bind: &Binding{Name: "recv", Deadline: deadline}, instance: uint32(i + 1), maxDeadline: deadline}
		if !open.take(r) {
			t.Fatalf("request %d has no number", i)
		}
		requests[i] = r
		m.admit(r, now)
		x.admit(r, nil, nil)
		x.next(true) // it receives
	}
	for looks, inquiring := 0, 0; inquiring < n; looks++ {
		if looks > 2*(n/askMost+5)*(n/sweepMost+1) {
			t.Fatalf("after %d looks %d of %d have asked", looks, inquiring, n)
		}
		looked, told := m.looked, asked.told
		now = now.Add(max(0, m.sweep.Sub(now))) // when the next look is due
		if err := m.look(now); err != nil {
			t.Fatal(err)
		}
		if looked, told = m.looked-looked, asked.told-told; looked > sweepMost || told > askMost {
			t.Fatalf("%d requests are looked at in a turn, and %d ask", looked, told)
		}
		if m.at == n {
			inquiring = 0
			for _, r := range requests {
				if r.watch.inquiry != nil {
					inquiring++
				}
			}
		}
	}
	for i, r := range requests {
		if m.asking(r.watch.inquiry.id) != r || m.find(r.execution()) != r {
			t.Fatalf("request %d is not found", i)
		}
	}
	x.received(requests[7], 0, requests[7].buffers[0])
	if m.asking(requests[7].watch.inquiry.id) != nil || m.find(requests[7].execution()) != nil {
		t.Error("a request that has ended is found")
	}
	if edges := m.edges(edgesTold); len(edges) != edgesTold {
		t.Errorf("%d edges are told", len(edges))
	}
}

// BenchmarkHeld measures a turn of the links in which one large message ends and another one
// leaves, with n more that are held back.
func BenchmarkHeld(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			requests := sends(b, n)
			now := time.Now()
			var q linkQueue
			q.open(0, []int{0, 1}, now)
			for _, r := range requests {
				q.admit(r)
				q.hold(q.to(r, 0), r, 0, now)
			}
			for range SendWindow {
				q.next(now)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				q.links[1].sent(nil, 0, now)
				h, _ := q.next(now)
				q.hold(q.links[1], h.r, 0, now)
			}
		})
	}
}

// turning is n requests of a server under way that wait for their messages, of which one after the other has a turn.
type turning struct {
	x        executor
	q        linkQueue
	requests []*Request
}

func newTurning(tb testing.TB, n int) *turning {
	tb.Helper()
	s, err := schedule.Parse("rank 0 of 2 count 2 scratch 0\n0: recvreduce out[0:2] in[0:2] from 1 #0\n1: send out[0:2] to 1 #1 after 0\n")
	if err != nil {
		tb.Fatal(err)
	}
	plan, err := Compile(s)
	if err != nil {
		tb.Fatal(err)
	}
	u := &turning{x: executor{folds: true}}
	for i := range n {
		r := &Request{plan: plan, bind: &Binding{Priority: i % 200}}
		u.requests = append(u.requests, r)
		u.start(r)
	}
	return u
}

// start starts r, which then waits for its message.
func (u *turning) start(r *Request) {
	u.q.admit(r)
	u.x.admit(r, nil, nil)
	u.x.next(true)
}

// turn lets the messages of three requests come, adds and sends them, and starts the requests again.
func (u *turning) turn(i int) (sent int) {
	n := len(u.requests)
	for k := range 3 {
		u.x.received(u.requests[(i+k*n/3)%n], 0, mem.Buffer{})
	}
	for {
		a, ok := u.x.next(true)
		switch {
		case !ok:
			return sent
		case a.step == stepCombine:
			u.x.combined(a.r, a.last)
		case a.step == stepBegin && a.op == 1:
			sent++
			u.x.complete(a.r, 1)
		case a.step == stepEnd:
			u.start(a.r)
		}
	}
}

// TestATurnOfAServerCostsTheSame with 10,000 requests that wait as with 10: as many comparisons, and no memory.
func TestATurnOfAServerCostsTheSame(t *testing.T) {
	for _, n := range []int{10, 10_000} {
		u := newTurning(t, n)
		at := 0
		turn := func() {
			if sent := u.turn(at); sent != 3 {
				t.Fatalf("%d are sent on, not 3", sent)
			}
			at++
		}
		for range 300 { // heaps have their room
			turn()
		}
		steps := u.x.sums.steps + u.x.ready.rest.steps + u.x.partials[onHost].steps
		const turns = 1000
		allocs := testing.AllocsPerRun(turns, turn)
		steps = u.x.sums.steps + u.x.ready.rest.steps + u.x.partials[onHost].steps - steps
		if allocs != 0 || steps > 40*turns {
			t.Errorf("of %d: %v allocations and %d comparisons a turn", n, allocs, steps/turns)
		}
	}
}

// BenchmarkTurn measures a turn of a server's loop, without the network and the additions, in which the
// messages of three requests come while n wait.
func BenchmarkTurn(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			u := newTurning(b, n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				u.turn(i)
			}
		})
	}
}
