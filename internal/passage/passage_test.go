package passage

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// A goroutine passes through Go's scheduler at first, and again when it has kept its processor for long.
func TestPassage(t *testing.T) {
	var p Passage
	start := time.Now()
	for _, c := range []struct {
		after  time.Duration
		passed time.Duration
	}{{0, 0}, {every, 0}, {every + 1, every + 1}, {every + 2, every + 1}} {
		p.Pass(start.Add(c.after))
		if got := p.last.Sub(start); got != c.passed {
			t.Errorf("after %v it passed last at %v, not %v", c.after, got, c.passed)
		}
	}
}

// Where a goroutine passes others run, and otherwise not.
func TestOthersRunWhereItPasses(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var p Passage
	now := time.Now()
	for tries := 0; ; tries++ {
		var ran atomic.Bool
		p.last = now
		go ran.Store(true)
		p.Pass(now)
		early := ran.Load()
		for i := 1; !ran.Load(); i++ { // the scheduler may take this one again, but not always
			if i > 10 {
				t.Fatal("no other goroutine ran where it passed")
			}
			p.Pass(now.Add(time.Duration(i) * (every + 1)))
		}
		if !early {
			return
		}
		if tries == 10 { // it may have been preempted just then, but not always
			t.Fatal("others ran though it was not time to pass")
		}
	}
}
