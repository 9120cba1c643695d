package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/caffe/data"
	"github.com/scaffe/scaffe/trace"
	"github.com/scaffe/scaffe/train"
)

// TestJSONEnd: the last event names the straggler and why a run failed.
func TestJSONEnd(t *testing.T) {
	var b bytes.Buffer
	l := &jsonLog{out: &b}
	l.end(train.Summary{Iterations: 1, Ranks: []train.RankTimes{{Rank: 0, Compute: 1}, {Rank: 1, Compute: 8}}}, false, errors.New("why"))
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	var e struct {
		Event     string
		Error     string
		Straggler map[string]float64
	}
	if err := json.Unmarshal(b.Bytes(), &e); err != nil {
		t.Fatal(err)
	}
	if e.Event != "end" || e.Error != "why" || len(e.Straggler) != 2 || e.Straggler["rank"] != 1 || e.Straggler["times"] != 8 {
		t.Errorf("%s", &b)
	}
}

// TestSummary: the summary lists all ranks, or the ones that matter, and marks
// the straggler.
func TestSummary(t *testing.T) {
	s := train.Summary{Iterations: 10, Images: 100, Total: time.Second, Skipped: 3, Collectives: trace.Totals{
		Push: 30 * time.Millisecond, Pull: 20 * time.Millisecond, Communication: 40 * time.Millisecond, ExposedPush: 10 * time.Millisecond,
	}}
	ranks := func(n, slow int) (rs []train.RankTimes) {
		for r := range n {
			x := train.RankTimes{
				Rank: r, Compute: 500 * time.Millisecond, Exposed: 490 * time.Millisecond, Input: 10 * time.Millisecond,
				Readers: data.Stats{Loaders: 1, Batches: 10, Waits: 2, Found: 35, Depth: 4, Starved: 9 * time.Millisecond},
			}
			if r == slow {
				x.Compute *= 10
				x.Readers = data.Stats{}
			}
			rs = append(rs, x)
		}
		return rs
	}
	write := func() []string {
		var b bytes.Buffer
		if err := writeSummary(&b, s); err != nil {
			t.Fatal(err)
		}
		return strings.Split(b.String(), "\n")[1:] // below the line of the whole run
	}
	has := func(lines []string, i int, want string) {
		t.Helper()
		if got := strings.Join(strings.Fields(lines[i]), " "); got != want {
			t.Errorf("line %d is %q, want %q", i, got, want)
		}
	}
	s.Ranks = ranks(3, 1)
	lines := write()
	has(lines, 2, "0 50.0 49.0 1.00 3.5 of 4 2 of 10 9.00")
	has(lines, 3, "1 500 49.0 1.00 - 0 of 0 0.00 straggler: 9.8 × the median rank")
	has(lines, 7, "collectives of rank 0: gradients 3.00 ms, parameters 2.00 ms in flight per iteration; 75 % hidden")
	has(lines, 8, "skipped: 3 updates, for numbers that were not finite")
	s.Ranks = ranks(40, 17)
	lines = write()
	has(lines, 2, "fastest: 0 50.0 49.0 1.00 3.5 of 4 2 of 10 9.00")
	has(lines, 4, "slowest: 17 500 49.0 1.00 - 0 of 0 0.00 straggler: 9.8 × the median rank")
	s.Ranks, s.Skipped = ranks(2, -1), 0
	if text := strings.Join(write(), "\n"); strings.Contains(text, "straggler") || strings.Contains(text, "skipped") {
		t.Errorf("among equals:\n%s", text)
	}
}

// TestSpeed: how fast it goes is over the last iterations.
func TestSpeed(t *testing.T) {
	var s speed
	if s.perSecond() != 0 {
		t.Error("speed without iterations")
	}
	images, at := 0, time.Duration(0)
	add := func(n int, each time.Duration) {
		for range n {
			images, at = images+10, at+each
			s.add(at, images)
		}
	}
	add(1, time.Second)
	if got := s.perSecond(); got != 10 {
		t.Errorf("after the first iteration %v", got)
	}
	add(100, time.Second/10)
	if got := s.perSecond(); got < 99.999 || got > 100.001 {
		t.Errorf("after many faster ones %v", got)
	}
}
