package passage

import (
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
