package collectives

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
)

// copies returns a build function of a schedule of n ops that counts its calls.
func copies(n int, calls *int) func() (*schedule.Schedule, error) {
	return func() (*schedule.Schedule, error) {
		*calls++
		b := schedule.NewBuilder(0, 1, n)
		for i := range n {
			c := schedule.Range{Off: i, Len: 1}
			b.Copy(schedule.In.At(c), schedule.Out.At(c))
		}
		return b.Schedule(), nil
	}
}

// Lengths that come once, as a key-value store's do, must not add up for the life
// of a communicator.
func TestPlansAreBoundedByTheirOps(t *testing.T) {
	const room = 100
	p := newPlans(room)
	calls := 0
	for i := range 1000 {
		if _, err := p.get(planKey{count: i}, copies(9, &calls)); err != nil {
			t.Fatal(err)
		}
		if p.kept.weight > room || len(p.kept.entries) > room/10 || p.kept.order.Len() != len(p.kept.entries) {
			t.Fatalf("after %d plans %d ops of %d plans are kept, of %d at most", i+1, p.kept.weight, len(p.kept.entries), room)
		}
	}
	if calls != 1000 {
		t.Errorf("%d plans were built, not 1000", calls)
	}
}

func TestPlansKeepWhatIsUsed(t *testing.T) {
	p := newPlans(100)
	kept, once := 0, 0
	for i := range 500 {
		if _, err := p.get(planKey{count: -1}, copies(50, &kept)); err != nil {
			t.Fatal(err)
		}
		if _, err := p.get(planKey{count: i}, copies(20, &once)); err != nil {
			t.Fatal(err)
		}
	}
	if kept != 1 {
		t.Errorf("a plan that is used again and again was built %d times", kept)
	}
	// One that is larger than all the room is used all the same, and kept alone.
	large := 0
	for range 3 {
		if _, err := p.get(planKey{count: -2}, copies(1000, &large)); err != nil {
			t.Fatal(err)
		}
	}
	if large != 1 || len(p.kept.entries) != 1 {
		t.Errorf("a plan larger than the room was built %d times, and %d are kept", large, len(p.kept.entries))
	}
}

// While one plan is built, the same one is waited for, and others are not held up.
func TestPlansAreBuiltOnceAndOutsideTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlans(1000)
		calls := 0
		slow := func() (*schedule.Schedule, error) {
			time.Sleep(time.Hour) // of the bubble's clock
			return copies(1, &calls)()
		}
		got := make([]*nbc.Plan, 8)
		var wg sync.WaitGroup
		from := time.Now()
		for i := range got {
			wg.Go(func() { got[i], _ = p.get(planKey{count: 1}, slow) })
		}
		synctest.Wait()
		others := 0
		if _, err := p.get(planKey{count: 2}, copies(1, &others)); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(from); waited != 0 {
			t.Errorf("another plan waited %v", waited)
		}
		wg.Wait()
		if calls != 1 {
			t.Errorf("one plan was built %d times", calls)
		}
		for _, plan := range got {
			if plan == nil || plan != got[0] {
				t.Errorf("callers have different plans: %p and %p", plan, got[0])
			}
		}
	})
}

func TestPlansForgetFailures(t *testing.T) {
	p := newPlans(100)
	broken := errors.New("broken")
	if _, err := p.get(planKey{}, func() (*schedule.Schedule, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Fatalf("error %v", err)
	}
	calls := 0
	if plan, err := p.get(planKey{}, copies(1, &calls)); err != nil || plan == nil {
		t.Fatalf("after a failure: %v, %v", plan, err)
	}
}

func TestLRUDropsTheLeastRecentlyUsed(t *testing.T) {
	l := lru[string, int]{room: 3}
	for i, k := range []string{"a", "b", "c"} {
		l.put(k, i, 1)
	}
	l.get("a")
	l.put("d", 3, 1)
	got := ""
	for _, k := range []string{"a", "b", "c", "d"} {
		if v, found := l.get(k); found {
			got += fmt.Sprint(k, v, " ")
		}
	}
	if want := "a0 c2 d3 "; got != want {
		t.Errorf("kept %q, not %q", got, want)
	}
	l.clear()
	if _, found := l.get("a"); found || l.room != 3 || l.weight != 0 {
		t.Error("clear left something")
	}
}
