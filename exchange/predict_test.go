package exchange

import (
	"testing"
	"time"

	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// Two layers of one bucket each: what stands in the way of the next iteration follows by hand.
func TestPredictIteration(t *testing.T) {
	const ms = time.Millisecond
	layers := []Passes{{10 * ms, 20 * ms}, {10 * ms, 20 * ms}}
	served := coordinator.Phases{Push: 5 * ms, Pull: 5 * ms, PushPort: 5 * ms, PullPort: 5 * ms}
	half := coordinator.Phases{Push: 5 * ms, Pull: 5 * ms, PushPort: 2 * ms, PullPort: 2 * ms}
	heavy := coordinator.Phases{Push: 30 * ms, Pull: 30 * ms, PushPort: 30 * ms, PullPort: 30 * ms}
	oneWay := func(p coordinator.Phases) coordinator.Phases { p.OneWay = true; return p }
	long := coordinator.Phases{Push: 50 * ms, PushPort: 50 * ms}
	up, upHeavy := coordinator.Phases{Push: 5 * ms, PushPort: 5 * ms}, coordinator.Phases{Push: 30 * ms, PushPort: 30 * ms}
	parted := func(p coordinator.Phases, parts int, behind time.Duration, firstCome bool) coordinator.Phases {
		p.Parts, p.Behind, p.FirstCome = parts, behind, firstCome
		return p
	}
	// A server has all of it from two workers, each of which sends half of what it receives.
	one := coordinator.Phases{Push: 10 * ms, Pull: 10 * ms, PushPort: 5 * ms, PullPort: 5 * ms, ServerPort: 10 * ms, OneWay: true}
	slow := coordinator.Phases{Push: 30 * ms, Pull: 30 * ms, PushPort: 15 * ms, PullPort: 15 * ms, ServerPort: 30 * ms, OneWay: true}
	first, second := []float64{1, 0}, []float64{0, 1}
	for _, c := range []struct {
		name    string
		design  Design
		first   Expected
		second  Expected
		iterate time.Duration
	}{
		{"the last bucket's push and pull", WFBP, Expected{Phases: served}, Expected{Phases: served}, 70 * ms},
		{"an update between", WFBP, Expected{Phases: served, Update: ms}, Expected{Phases: served}, 71 * ms},
		{"the same, as the front goes first", SCOBR, Expected{Phases: served}, Expected{Phases: served}, 70 * ms},
		{"all pushes, and the first pull", SCB, Expected{Phases: served}, Expected{Phases: served}, 75 * ms},
		{"pushes that share the port", SCB, Expected{Phases: half}, Expected{Phases: half}, 70 * ms},
		{"the last push, and the first pull", TF, Expected{Phases: served}, Expected{Phases: served}, 70 * ms},
		{"a product takes its turn", WFBP, Expected{}, Expected{Bucket: Bucket{Scheme: SFB}, Phases: coordinator.Phases{Push: 5 * ms, PushPort: 5 * ms}, Rebuild: 8 * ms}, 68 * ms},
		// 30 ms of it are left when layer 0's backward has ended, and forward 0 takes 10.
		{"forward hides what a later layer needs", SCOBR, Expected{}, Expected{Bucket: Bucket{Scheme: Allreduce}, Phases: long}, 80 * ms},
		{"and Algorithm 2 does not let it", WFBP, Expected{}, Expected{Bucket: Bucket{Scheme: Allreduce}, Phases: long}, 90 * ms},
		// When layer 0's backward has ended, 10 ms of the second push are left.
		{"a pull beside another's push shares the port", WFBP, Expected{Phases: served}, Expected{Phases: heavy}, 110 * ms},
		{"but not with servers apart", WFBP, Expected{Phases: oneWay(served)}, Expected{Phases: oneWay(heavy)}, 105 * ms},
		// Of the second push 10 ms are left when the first is due, 4 of which are under way.
		{"urgent gradients wait behind what is under way", SCOBR, Expected{Phases: up}, Expected{Phases: parted(upHeavy, 1, 4*ms, false)}, 69 * ms},
		{"or behind all that came before", SCOBR, Expected{Phases: up}, Expected{Phases: parted(upHeavy, 1, 4*ms, true)}, 75 * ms},
		{"or not at all", SCOBR, Expected{Phases: up}, Expected{Phases: upHeavy}, 65 * ms},
		// The last part's gradients are there when layer 0's forward has ended.
		{"parts come back while others go", SCOBR, Expected{}, Expected{Phases: parted(oneWay(heavy), 10, 0, false)}, 63 * ms},
		{"a whole bucket does not", SCOBR, Expected{}, Expected{Phases: oneWay(heavy)}, 90 * ms},
		// The second's gradients and parameters pass before the first's.
		{"where all are awaited together what came first goes first", WFBP, Expected{Phases: oneWay(served)}, Expected{Phases: parted(oneWay(heavy), 10, 0, false)}, 80 * ms},
		// Of the second pull 35 ms are left when the first bucket is pushed, and 15 when it has been updated.
		{"there pushes go before pulls", WFBP, Expected{Phases: served, Update: 20 * ms}, Expected{Phases: coordinator.Phases{Push: 5 * ms, PushPort: 5 * ms, Pull: 50 * ms, PullPort: 50 * ms}}, 105 * ms},
		{"or not, where each bucket has a place of its own", SCOBR, Expected{Phases: served, Update: 20 * ms}, Expected{Phases: parted(coordinator.Phases{Push: 5 * ms, PushPort: 5 * ms, Pull: 50 * ms, PullPort: 50 * ms}, 1, 0, true)}, 125 * ms},
		{"buckets of one server take turns at its port", SCB, Expected{Phases: one, Shares: first}, Expected{Phases: one, Shares: first}, 90 * ms},
		{"and those of two do not", SCB, Expected{Phases: one, Shares: first}, Expected{Phases: one, Shares: second}, 80 * ms},
		// The second's push came first, and of it 10 ms are left when the first's is due; its pull goes first, too.
		{"where all are awaited together they go by arrival", WFBP, Expected{Phases: one, Shares: first}, Expected{Phases: slow, Shares: first}, 110 * ms},
		{"nothing to wait for", SCOBR, Expected{}, Expected{}, 60 * ms},
	} {
		c.first.Layers, c.second.Layers = []int{0}, []int{1}
		for _, b := range []*Expected{&c.first, &c.second} {
			if b.Scheme != SFB && b.Scheme != Allreduce {
				b.Scheme = PS
			}
		}
		got := PredictIteration(c.design, false, layers, []Expected{c.first, c.second})
		if diff := got - c.iterate; diff < -time.Microsecond || diff > time.Microsecond {
			t.Errorf("%s, %v: %v, want %v", c.name, c.design, got, c.iterate)
		}
	}
}

// TestDesignsThatAwaitAllTogether have no order of urgency among buckets: Algorithm 2 of Poseidon ends an iteration when all parameters are
// current. Pushes go before pulls.
func TestDesignsThatAwaitAllTogether(t *testing.T) {
	together := map[Design][2]bool{SCB: {false, true}, WFBP: {true, true}, TF: {false, true}} // of what is served, and of what every rank updates
	for d, r := range designs {
		for i, s := range []Scheme{PS, Allreduce} {
			want := [2]int{7, 7}
			if together[Design(d)][i] {
				want = [2]int{0, 1}
			}
			x := &Exchange{c: Config{Design: Design(d)}}
			if push, pull := x.urgency(&Bucket{Index: 7, Scheme: s}); [2]int{push, pull} != want || r.policy(s).together() != (want[0] == 0) {
				t.Errorf("%v, %v: bucket 7 has the urgencies %d and %d, want %v", Design(d), s, push, pull, want)
			}
		}
	}
}

// A design whose buckets move as one has one.
func TestDivide(t *testing.T) {
	layers := []Layer{{Name: "a", Params: []Range{{Len: 100}}}, {Name: "b"}, {Name: "c", Params: []Range{{Off: 100, Len: 50}}}}
	for d, want := range map[Design]int{SCB: 1, WFBP: 2} {
		got, err := Divide(d, layers, []Scheme{PS, PS, PS}, 150, map[Scheme]int{PS: 1})
		if err != nil || len(got) != want || got[len(got)-1].End() != 150 {
			t.Errorf("%v: %+v, %v", d, got, err)
		}
	}
}

// What predictions take for the patience of links is the engine's.
func TestPatienceIsTheEngines(t *testing.T) {
	if coordinator.Patience != nbc.MostPatience {
		t.Errorf("predicted with a patience of %v, which is %v", coordinator.Patience, nbc.MostPatience)
	}
}
