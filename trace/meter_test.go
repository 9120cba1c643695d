package trace_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/trace"
)

var zero = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }

// TestMeterByHand: the live sums of the hand-made trace are what was worked out
// for it by hand; waits within a test are waits.
func TestMeterByHand(t *testing.T) {
	var m trace.Meter
	for _, l := range rank0 {
		m.Add(trace.Event{Kind: l.kind, Name: l.name, Begin: at(l.begin), End: at(l.end)})
	}
	want := trace.Totals{
		Push: 45 * time.Millisecond, Pull: 16 * time.Millisecond, Communication: 61 * time.Millisecond,
		ExposedPush: 30 * time.Millisecond, ExposedPull: 16 * time.Millisecond, Sync: 2 * time.Millisecond,
		Input: 2 * time.Millisecond,
	}
	if got := m.Totals(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	before := m.Totals()
	m.Add(trace.Event{Kind: trace.Sync, Begin: at(150), End: at(170)})
	m.Add(trace.Event{Kind: trace.Test, Begin: at(100), End: at(180)})
	m.Add(trace.Event{Kind: trace.Snapshot, Begin: at(180), End: at(185)})
	if got := m.Totals().Sub(before); got != (trace.Totals{Sync: 20 * time.Millisecond, TestsAndSnapshots: 65 * time.Millisecond}) {
		t.Errorf("a test and a snapshot: %+v", got)
	}
	if h := want.Hidden(); h < 0.245 || h > 0.247 {
		t.Errorf("hidden %v", h)
	}
}

// TestMeterUnion: however pushes and pulls overlap, and in whatever order their
// ends are told, time is counted once.
func TestMeterUnion(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const length = 300
		type event struct {
			kind       trace.Kind
			begin, end int
		}
		var es []event
		for range rapid.IntRange(0, 60).Draw(rt, "events") {
			b := rapid.IntRange(0, length-1).Draw(rt, "begin")
			es = append(es, event{
				rapid.SampledFrom([]trace.Kind{trace.Push, trace.Pull}).Draw(rt, "kind"), b, rapid.IntRange(b, length).Draw(rt, "end"),
			})
		}
		if rapid.Bool().Draw(rt, "in order") {
			slices.SortFunc(es, func(a, b event) int { return a.end - b.end })
		}
		var m trace.Meter
		var covered [2][length]bool
		for _, e := range es {
			m.Add(trace.Event{Kind: e.kind, Begin: at(e.begin), End: at(e.end)})
			for k := e.begin; k < e.end; k++ {
				covered[e.kind-trace.Push][k] = true
			}
		}
		var want trace.Totals
		for k := range length {
			if covered[0][k] {
				want.Push += time.Millisecond
			}
			if covered[1][k] {
				want.Pull += time.Millisecond
			}
			if covered[0][k] || covered[1][k] {
				want.Communication += time.Millisecond
			}
		}
		if got := m.Totals(); got != want {
			rt.Errorf("%+v, want %+v", got, want)
		}
	})
}

// TestMeterForLong: the memory that a meter takes is bounded, and what has been
// added stays.
func TestMeterForLong(t *testing.T) {
	var m trace.Meter
	const n = 50000
	add := func(k int) { m.Add(trace.Event{Kind: trace.Push, Begin: at(2 * k), End: at(2*k + 1)}) }
	for k := range n {
		add(k)
	}
	if got := m.Totals().Push; got != n*time.Millisecond {
		t.Errorf("%v, want %v", got, n*time.Millisecond)
	}
	k := n
	if a := testing.AllocsPerRun(10000, func() { k++; add(k) }); a != 0 {
		t.Errorf("%v allocations an event", a)
	}
}

// TestMeterAgreesWithTheReport: the live sums and the report have one meaning of
// what is exposed. The report divides a wait at the last rank's begin into skew
// and exposed communication.
func TestMeterAgreesWithTheReport(t *testing.T) {
	tr := handTrace()
	r := trace.Analyze(tr)
	for i := range tr.Ranks {
		var m trace.Meter
		for _, e := range tr.Ranks[i].Events {
			if e.Iter < 12 { // the third is not recorded by all
				m.Add(trace.Event{Kind: e.Kind, Begin: zero.Add(e.Begin), End: zero.Add(e.End)})
			}
		}
		got := m.Totals()
		x := r.Ranks[i].Times
		n := time.Duration(len(r.Iterations))
		if waits := n * (x[trace.InExposed] + x[trace.InSkew] + x[trace.InSync]); got.Exposed()+got.Sync != waits {
			t.Errorf("rank %d waited for %v, the report says %v", i, got.Exposed()+got.Sync, waits)
		}
		if got.Input != n*x[trace.InInput] {
			t.Errorf("rank %d read for %v, the report says %v", i, got.Input, n*x[trace.InInput])
		}
	}
}
