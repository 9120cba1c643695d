package trace_test

import (
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scaffe/scaffe/trace"
)

// Off is a nil recorder, on which everything works.
func TestNilRecorder(t *testing.T) {
	var r *trace.Recorder
	r.Add(trace.Event{Kind: trace.Forward})
	r.SetBuckets(nil)
	r.Describe("a", "b")
	if kept, outside, dropped := r.Counts(); kept != 0 || outside != 0 || dropped != 0 {
		t.Error("a nil recorder counts")
	}
	if !r.Now().IsZero() || r.Keeps(0) {
		t.Error("a nil recorder has a clock, or keeps")
	}
	if err := trace.Align(t.Context(), nil, r); err != nil {
		t.Error(err)
	}
	if tr, err := trace.Gather(t.Context(), nil, r); tr != nil || err != nil {
		t.Error(tr, err)
	}
	if n := testing.AllocsPerRun(100, func() { r.Add(trace.Event{Begin: r.Now(), End: r.Now()}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestRecorderKeepsIterations(t *testing.T) {
	for _, c := range []struct {
		span          trace.Span
		first         int
		kept, outside int64
	}{
		{trace.Span{First: 10, End: 60}, 0, 50, 250},
		{trace.Span{}, 0, 200, 100},
		{trace.Span{}, 5000, 200, 100}, // a run that goes on from a snapshot
	} {
		r := trace.New(0, trace.Options{Iterations: c.span})
		for i := range 300 {
			if on := r.Keeps(c.first + i); i > 0 && on != (int64(i)-int64(c.span.First) < c.kept && i >= c.span.First-1) {
				t.Errorf("%+v: Keeps(%d) is %v", c, c.first+i, on)
			}
			r.Add(trace.Event{Iter: int32(c.first + i), Begin: r.Now(), End: r.Now()})
		}
		if kept, outside, dropped := r.Counts(); int64(kept) != c.kept || outside != c.outside || dropped != 0 {
			t.Errorf("%+v: kept %d, outside %d, dropped %d", c, kept, outside, dropped)
		}
	}
}

// Of the iteration before, what the first one to keep waits for is kept too.
func TestRecorderKeepsPullsOfTheIterationBefore(t *testing.T) {
	for kind := trace.Forward; kind <= trace.Sync; kind++ {
		r := trace.New(0, trace.Options{Iterations: trace.Span{First: 10, End: 20}})
		for _, iter := range []int32{8, 9} {
			r.Add(trace.Event{Kind: kind, Iter: iter, Begin: r.Now(), End: r.Now()})
		}
		kept, _, _ := r.Counts()
		if want := kind == trace.Pull || kind == trace.WaitPull; want != (kept == 1) {
			t.Errorf("%v: %d kept", kind, kept)
		}
	}
}

func TestRecorderIsBounded(t *testing.T) {
	r := trace.New(0, trace.Options{Events: 5000})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				r.Add(trace.Event{Kind: trace.Read, Begin: r.Now(), End: r.Now()})
			}
		})
	}
	wg.Wait()
	if kept, _, dropped := r.Counts(); kept != 5000 || dropped != 3000 {
		t.Errorf("kept %d, dropped %d", kept, dropped)
	}
}

// Blocks: an event allocates when a block is full, and not otherwise.
func TestAddDoesNotAllocate(t *testing.T) {
	r := trace.New(0, trace.Options{})
	e := trace.Event{Kind: trace.Forward, Name: "conv1"}
	if n := testing.AllocsPerRun(4000, func() {
		e.Begin, e.End = r.Now(), r.Now()
		r.Add(e)
	}); n != 0 {
		t.Errorf("%v allocations an event", n)
	}
}

func TestParseSpan(t *testing.T) {
	for text, want := range map[string]trace.Span{
		"10:60": {First: 10, End: 60}, "7": {First: 7, End: 8}, "5:": {First: 5, End: math.MaxInt}, ":60": {First: 0, End: 60},
	} {
		got, err := trace.ParseSpan(text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		if again, err := trace.ParseSpan(got.String()); err != nil || again != want {
			t.Errorf("%q: its text %q is %v, %v", text, got.String(), again, err)
		}
	}
	for _, text := range []string{"", "a", "5:5", "9:3", "-1:4", "1:2:3", "99999999999999999999"} {
		if got, err := trace.ParseSpan(text); err == nil || !strings.Contains(err.Error(), "10:60") {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}

func TestKinds(t *testing.T) {
	for k := trace.Forward; k <= trace.Sync; k++ {
		if got, err := trace.ParseKind(k.String()); err != nil || got != k {
			t.Errorf("%v: %v, %v", k, got, err)
		}
	}
	if got, err := trace.ParseKind("lunch"); err == nil {
		t.Errorf("lunch is %v", got)
	}
}

func BenchmarkAdd(b *testing.B) {
	r := trace.New(0, trace.Options{Events: 1 << 30})
	e := trace.Event{Kind: trace.Forward, Name: "conv1", Begin: time.Now(), End: time.Now()}
	for b.Loop() {
		r.Add(e)
	}
}
