package nbc

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// overtakes is the dumb twin of precedence: what waits is looked at each time something begins.
type overtakes map[*pending]bool

// begin says that p begins, and how many that begin late have been overtaken.
func (o overtakes) begin(p pending) (overtaken int64) {
	for q := range o {
		if q.r == p.r && q.op == p.op {
			if o[q] {
				overtaken++
			}
			delete(o, q)
		} else if q.priority < p.priority {
			o[q] = true
		}
	}
	return overtaken
}

// disturb swaps two of what waits, so that the heap's order is wrong.
func disturb(t *rapid.T, h *heap) {
	if n := len(h.items); n > 1 {
		i, k := rapid.IntRange(0, n-1).Draw(t, "this"), rapid.IntRange(0, n-1).Draw(t, "that")
		h.items[i], h.items[k] = h.items[k], h.items[i]
	}
}

// TestP3_NothingLessUrgentLeavesFirst: whatever is handed over, ends and comes to a standstill, and whatever
// the priorities, peers and credits, a message waits for none that is less urgent and begins after it was handed
// over (section 4.2); the count of those that do is 0. Where the order is disturbed, each is counted.
func TestP3_NothingLessUrgentLeavesFirst(t *testing.T) {
	var wrong int64
	all := t
	for _, right := range []bool{true, false} {
		rapid.Check(t, func(t *rapid.T) {
			now := time.Now()
			var q linkQueue
			q.open(0, []int{0, 1, 2, 3}, now)
			credits := rapid.SliceOfN(rapid.IntRange(1, 3), 4, 4).Draw(t, "credit by priority")
			if !right { // links of their own
				credits[3] = 0
			}
			twin, want := overtakes{}, int64(0)
			told := map[DisorderKind]int64{}
			q.disorder = func(kind DisorderKind, p *pending, at time.Time) {
				told[kind]++
				if p.r == nil || at != now || q.started.Add(p.at).After(now) {
					t.Fatalf("%d: %+v at %v, now %v", kind, p, at, now)
				}
			}
			var under []pending
			for n := range rapid.IntRange(1, 80).Draw(t, "steps") {
				switch rapid.IntRange(0, 4).Draw(t, "step") {
				case 0, 1:
					priority := rapid.IntRange(0, 3).Draw(t, "priority")
					r := portRequest(all, &q, rapid.IntRange(1, 3).Draw(t, "peer"), priority, credits[priority])
					q.hold(q.to(r, 0), r, 0, now)
					twin[&pending{priority: priority, r: r}] = false
				case 2:
					if len(under) > 0 {
						h := under[n%len(under)]
						q.to(h.r, h.op).sent(h.r, h.op, now)
						under = append(under[:n%len(under)], under[n%len(under)+1:]...)
					}
				case 3:
					now = now.Add(rapid.SampledFrom([]time.Duration{0, LinkPatience / 2, 2 * MostPatience}).Draw(t, "later"))
				}
				if !right {
					disturb(t, &q.port.held)
				}
				for {
					h, ok := q.next(now)
					if !ok {
						break
					}
					want += twin.begin(h)
					under = append(under, h)
				}
			}
			got := q.begun.overtaken.Load()
			if got != want || told[Inversion] != want || told[LetGo] != q.patience.Load() || len(told) > 2 {
				t.Fatalf("%d are counted, %v told of, not %d", got, told, want)
			}
			if right && got != 0 {
				t.Fatalf("%d inversions", got)
			}
			wrong += got
		})
	}
	if wrong == 0 {
		t.Error("no disturbed order has had an inversion")
	}
}

// TestP3_NothingLessUrgentIsAddedFirst: at a server, whatever has arrived, a sum waits for none that is less
// urgent and begins after it was ready (section 4.2); the count of those that do is 0. Where the order is
// disturbed, each is counted.
func TestP3_NothingLessUrgentIsAddedFirst(t *testing.T) {
	s, err := schedule.Parse(`rank 0 of 2 count 2 scratch 0
0: recvreduce out[0:2] in[0:2] from 1 #0
1: send out[0:2] to 1 #1 after 0
`)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	var wrong int64
	for _, right := range []bool{true, false} {
		rapid.Check(t, func(t *rapid.T) {
			x := executor{folds: true}
			var q linkQueue
			twin, want, told := overtakes{}, int64(0), int64(0)
			x.overtaken = func(pending) { told++ }
			var come, left []*Request
			for range rapid.IntRange(2, 20).Draw(t, "requests") {
				r := &Request{plan: plan, bind: &Binding{Priority: rapid.IntRange(0, 3).Draw(t, "priority")}}
				q.admit(r)
				x.admit(r, nil, nil)
				come = append(come, r)
			}
			for step := 0; len(come)+len(left) > 0; step++ {
				drawn := step < 60 // after that all arrives and is added
				if len(come) > 0 && (!drawn || rapid.Bool().Draw(t, "arrives")) {
					i := rapid.IntRange(0, len(come)-1).Draw(t, "which")
					r := come[i]
					come = append(come[:i], come[i+1:]...)
					if r.state[0] != opPosted { // its receive has not begun
						come = append(come, r)
					} else {
						several := x.inUse > 1 // one that is alone has no order to keep
						x.received(r, 0, mem.Buffer{})
						if left = append(left, r); several {
							twin[&pending{priority: r.bind.Priority, r: r}] = false
						}
					}
				}
				if !right {
					disturb(t, &x.sums)
				}
				most := 1
				if drawn {
					most = rapid.IntRange(0, 1).Draw(t, "sums in this turn")
				}
				for sums := 0; ; {
					ready := !x.sums.empty()
					a, ok := x.next(sums < most)
					if !ok {
						break
					}
					switch {
					case a.step == stepCombine:
						sums++
						want += twin.begin(pending{priority: a.r.bind.Priority, r: a.r, op: a.op})
						x.combined(a.r, a.last)
					case a.step == stepBegin:
						if ready {
							want += twin.begin(pending{priority: a.r.bind.Priority, r: a.r, op: -1})
						}
						if a.op == 1 {
							x.complete(a.r, 1)
						}
					case a.step == stepEnd:
						left = left[:len(left)-1] // any: they are counted only
					}
				}
			}
			got := x.begun.overtaken.Load()
			if got != want || told != want {
				t.Fatalf("%d are counted, %d told of, not %d", got, told, want)
			}
			if right && got != 0 {
				t.Fatalf("%d inversions", got)
			}
			wrong += got
		})
	}
	if wrong == 0 {
		t.Error("no disturbed order has had an inversion")
	}
}

// TestOrder: what the port and the server have counted is told, added up and taken.
func TestOrder(t *testing.T) {
	var e Engine
	e.links.begun.overtaken.Store(1)
	e.exec.begun.overtaken.Store(2)
	e.links.patience.Store(3)
	e.links.longest.Store(4)
	want := Order{1, 2, 3, 4}
	if got := e.Order(); got != want || e.TakeOrder() != want || e.Order() != (Order{}) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := fmt.Sprint(want.Add(Order{1, 1, 1, 1})); got != fmt.Sprint(Order{2, 3, 4, 4}) {
		t.Errorf("added up: %v", got)
	}
}

// TestDisorderIsToldAsLongAsSomebodyListens, in the words of who moves what, or with the collective's name.
func TestDisorderIsToldAsLongAsSomebodyListens(t *testing.T) {
	var e Engine
	e.links.started = time.Now()
	slice := &pending{r: &Request{bind: &Binding{About: &About{What: "slice 17 of fc6"}}}, at: time.Second}
	plain := &pending{r: &Request{bind: &Binding{Name: "reduce", Instance: 812}}}
	left := e.links.started.Add(2 * time.Second)
	e.disorder(LetGo, slice, left) // nobody does
	var told []Disorder
	e.HandleDisorder(func(d Disorder) { told = append(told, d) })
	e.disorder(LetGo, slice, left)
	e.disorder(Inversion, plain, left)
	e.sumOvertaken(*slice)
	e.HandleDisorder(nil)
	e.sumOvertaken(*slice)
	if len(told) != 3 || told[0] != (Disorder{LetGo, "slice 17 of fc6", e.links.started.Add(time.Second), left}) ||
		told[1] != (Disorder{Inversion, "reduce#812", e.links.started, left}) || told[2].Kind != SumInversion || told[2].What != "slice 17 of fc6" || told[2].Begin != told[2].End {
		t.Errorf("%+v", told)
	}
}

// BenchmarkOrder is what keeping account of one large message costs: ns, and no memory.
func BenchmarkOrder(b *testing.B) {
	var o precedence
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		o.begin(&pending{priority: i * 7 % 200, seq: uint64(i)}, uint64(i))
	}
}
