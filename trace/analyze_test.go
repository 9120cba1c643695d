package trace_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/cockroachdb/datadriven" // brings the flag -rewrite
	"github.com/google/go-cmp/cmp"

	"github.com/scaffe/scaffe/trace"
)

// golden compares text with a file of testdata, or writes it (-rewrite).
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; go test ./trace -rewrite makes it anew):\n%s", file, diff)
	}
}

// msOf makes times of ms.
func msOf(v float64) time.Duration { return time.Duration(v * 1e6) }

func times(v map[trace.Part]float64) trace.Times {
	var t trace.Times
	for p, x := range v {
		t[p] = msOf(x)
	}
	return t
}

// Every number of the hand-made trace, worked out by hand.
func TestAnalyzeByHand(t *testing.T) {
	r := trace.Analyze(handTrace())
	path := times(map[trace.Part]float64{
		// From the end: rank 0 until 65, since it waited for rank 1 then; before,
		// rank 1, whose last 5 ms of backward kept rank 0 waiting.
		trace.InOther: 2, trace.InSync: 2, trace.InExposed: 8 + 8 + 10, trace.InUpdate: 5,
		trace.InSkew: 5, trace.InBackward: 20 + 15, trace.InForward: 22, trace.InInput: 3,
	})
	comm := func(flight, hidden, behind, exposed, skew float64) trace.Communication {
		return trace.Communication{Flight: msOf(flight), Hidden: msOf(hidden), Behind: msOf(behind), Exposed: msOf(exposed), Skew: msOf(skew)}
	}
	want := &trace.Report{
		Meta:       map[string]string{"design": "SC-OBR", "net": "hand-made"},
		ClockBound: 3 * time.Microsecond,
		Ranks: []trace.RankReport{
			{Rank: 0, Host: "north", HeldUp: msOf(9), Times: times(map[trace.Part]float64{
				trace.InForward: 18, trace.InBackward: 25, trace.InUpdate: 5, trace.InExposed: 15 + 10 + 8 + 8,
				trace.InSkew: 5, trace.InInput: 2, trace.InSync: 2, trace.InOther: 2,
			})},
			{Rank: 1, Host: "south", HeldUp: msOf(5), Times: times(map[trace.Part]float64{
				trace.InForward: 22, trace.InBackward: 40, trace.InExposed: 7 + 10 + 5,
				trace.InSkew: 8 + 1, trace.InInput: 3, trace.InSync: 2, trace.InOther: 2,
			})},
		},
		Iterations: []trace.IterationReport{{Iter: 10, Path: path}, {Iter: 11, Path: path}},
		Path:       path,
		PathSkew:   []time.Duration{0, msOf(5)},
		Layers: []trace.LayerReport{
			{Layer: 0, Name: "conv", Forward: msOf(11), Backward: msOf(20), Slowest: 1, SlowestTime: msOf(37), Bucket: 0},
			{Layer: 1, Name: "fc", Forward: msOf(9), Backward: msOf(12.5), Slowest: 1, SlowestTime: msOf(25), Bucket: 1},
		},
		Buckets: []trace.BucketReport{
			{Bucket: 0, Name: "conv", Layers: []string{"conv"}, Bytes: 1 << 20, Push: comm(18.5, 0, 7.5, 8.5, 2.5), Pull: comm(13, 0, 0, 9, 4)},
			{Bucket: 1, Name: "fc", Layers: []string{"fc"}, Bytes: 4 << 20, Push: comm(22.5, 15, 0, 7.5, 0), Pull: comm(19.5, 0, 13, 6.5, 0)},
		},
		Slowest: 1,
		Notes:   []string{"7 events of other iterations were not recorded"},
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	golden(t, "report.txt", r.Text())
}

// The parts of a rank add up to its time, and flights to what they are made of.
func TestAnalyzeAddsUp(t *testing.T) {
	r := trace.Analyze(handTrace())
	if got := r.Path.Total(); got != msOf(100) {
		t.Errorf("the path takes %v", got)
	}
	for _, k := range r.Ranks {
		if k.Times.Total() != msOf(100) {
			t.Errorf("rank %d: the parts add up to %v", k.Rank, k.Times.Total())
		}
	}
	for _, b := range r.Buckets {
		for _, c := range []trace.Communication{b.Push, b.Pull} {
			if sum := c.Hidden + c.Behind + c.Exposed + c.Skew; sum != c.Flight {
				t.Errorf("bucket %d: %v of %v", b.Bucket, sum, c.Flight)
			}
		}
	}
}

// A bucket of several layers is shown once, with all of them.
func TestAnalyzeBucketOfSeveralLayers(t *testing.T) {
	tr := handTrace()
	tr.Buckets = []trace.Bucket{{Bucket: 0, Layers: []int{0, 1}}, {Bucket: 1, Layers: []int{7}}}
	r := trace.Analyze(tr)
	if got := r.Buckets[0].Layers; !slices.Equal(got, []string{"conv", "fc"}) {
		t.Errorf("bucket 0 holds %q", got)
	}
	if got := r.Buckets[1].Layers; !slices.Equal(got, []string{"layer 7"}) {
		t.Errorf("bucket 1 holds %q", got)
	}
	golden(t, "shared.txt", r.Text())
}

// Layers may share a name: a layer's bucket is found by its number.
func TestAnalyzeLayersOfOneName(t *testing.T) {
	tr := handTrace()
	for r := range tr.Ranks {
		for i := range tr.Ranks[r].Events {
			if e := &tr.Ranks[r].Events[i]; e.Kind == trace.Forward || e.Kind == trace.Backward {
				e.Name = "fc"
			}
		}
	}
	tr.Buckets = []trace.Bucket{{Bucket: 0, Layers: []int{0}}, {Bucket: 1, Layers: []int{1}}}
	r := trace.Analyze(tr)
	if len(r.Layers) != 2 || r.Layers[0].Bucket != 0 || r.Layers[1].Bucket != 1 {
		t.Errorf("layers %+v", r.Layers)
	}
}

// Without a word on buckets, a bucket is that of the layer of the same name.
func TestAnalyzeUndescribedBuckets(t *testing.T) {
	tr := handTrace()
	tr.Buckets = nil
	r := trace.Analyze(tr)
	if len(r.Buckets) != 2 || !slices.Equal(r.Buckets[1].Layers, []string{"fc"}) || r.Layers[1].Bucket != 1 {
		t.Errorf("buckets %+v, layers %+v", r.Buckets, r.Layers)
	}
}

// A straggler's compute is skew where the others wait for it, and it is named.
func TestAnalyzeStraggler(t *testing.T) {
	tr := &trace.Trace{}
	for r := range 3 {
		end := 10
		if r == 1 {
			end = 100
		}
		tr.Ranks = append(tr.Ranks, trace.Rank{Rank: r, Host: "north", Events: hand(0, 0, []line{
			{trace.Iteration, "", 0, 0, 120},
			{trace.Backward, "fc", 1, 0, end},
			{trace.Push, "fc", 1, end, 110},
			{trace.WaitPush, "fc", 1, end, 110},
			{trace.Update, "", 0, 110, 120},
		})})
	}
	r := trace.Analyze(tr)
	want := times(map[trace.Part]float64{trace.InBackward: 10, trace.InSkew: 90, trace.InExposed: 10, trace.InUpdate: 10})
	if diff := cmp.Diff(want, r.Path); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if r.Slowest != 1 || r.Ranks[1].HeldUp != msOf(180) || r.PathSkew[1] != msOf(90) {
		t.Errorf("the slowest is rank %d, which held up %v, path skew %v", r.Slowest, r.Ranks[1].HeldUp, r.PathSkew)
	}
	for _, words := range []string{"Rank 1 (north) computes longest: 100.000 ms", "100.0 % of it on rank 1"} {
		if !strings.Contains(r.Text(), words) {
			t.Errorf("the report does not say %q:\n%s", words, r.Text())
		}
	}
}

// Clocks that do not agree, and events within events that do not fit, may bend
// a report but nothing else: the walk ends.
func TestAnalyzeCrookedTraces(t *testing.T) {
	for _, shift := range []time.Duration{-time.Second, -30 * time.Millisecond, 30 * time.Millisecond, time.Second} {
		tr := handTrace()
		for i := range tr.Ranks[1].Events {
			tr.Ranks[1].Events[i].Begin += shift
			tr.Ranks[1].Events[i].End += shift
		}
		r := trace.Analyze(tr)
		for _, k := range r.Ranks {
			if got := k.Times.Total(); got != msOf(100) {
				t.Errorf("shifted by %v: rank %d's parts add up to %v", shift, k.Rank, got)
			}
		}
	}
}

// What an iteration waits for may be of the one before; where recording begins
// and ends with that, the iterations are still what they are.
func TestAnalyzeWaitsOfTheIterationBefore(t *testing.T) {
	tr := &trace.Trace{Ranks: []trace.Rank{{}}}
	add := func(iter int32, lines ...line) {
		tr.Ranks[0].Events = append(tr.Ranks[0].Events, hand(iter, 0, lines)...)
	}
	add(4, line{trace.Pull, "fc", 1, -20, 10}, line{trace.WaitPull, "fc", 1, -15, -5})
	add(5, line{trace.Iteration, "", 0, 0, 30})
	add(4, line{trace.WaitPull, "fc", 1, 0, 10})
	add(5, line{trace.Forward, "fc", 1, 10, 30}, line{trace.Pull, "fc", 1, 30, 45}, line{trace.WaitPull, "fc", 1, 40, 45})
	want := times(map[trace.Part]float64{trace.InForward: 20, trace.InExposed: 10})
	r := trace.Analyze(tr)
	if r.Path != want || r.Ranks[0].Times != want || len(r.Iterations) != 1 {
		t.Errorf("got %v and %v of %d iterations, want %v", r.Path, r.Ranks[0].Times, len(r.Iterations), want)
	}
}

// Nobody is called slow for nothing.
func TestAnalyzeEqualRanks(t *testing.T) {
	tr := handTrace()
	tr.Ranks[1].Events = slices.Clone(tr.Ranks[0].Events)
	if text := trace.Analyze(tr).Text(); !strings.Contains(text, "All ranks compute equally long, 43.000 ms") || strings.Contains(text, "holds the others up") {
		t.Errorf("the report of equal ranks:\n%s", text)
	}
}

// Without Iteration events, iterations are what else a rank does.
func TestAnalyzeUnmarkedIterations(t *testing.T) {
	tr := handTrace()
	for r := range tr.Ranks {
		tr.Ranks[r].Events = slices.DeleteFunc(tr.Ranks[r].Events, func(e trace.Record) bool { return e.Kind == trace.Iteration })
	}
	r := trace.Analyze(tr)
	if len(r.Iterations) != 2 || r.Iterations[0].Path[trace.InExposed] != msOf(26) || r.Ranks[0].Times.Total() != msOf(100) {
		t.Errorf("%+v", r)
	}
}

func TestAnalyzeIterations(t *testing.T) {
	r := trace.AnalyzeIterations(handTrace(), trace.Span{First: 11, End: 12})
	if len(r.Iterations) != 1 || r.Iterations[0].Iter != 11 || r.Path.Total() != msOf(100) || r.Ranks[1].Times[trace.InExposed] != msOf(22) {
		t.Errorf("%+v", r)
	}
	if text := trace.AnalyzeIterations(handTrace(), trace.Span{First: 90, End: 91}).Text(); !strings.Contains(text, "the trace has 10 to 12") {
		t.Error(text)
	}
}

// A helper's update does not keep a layer from computing; what is waited for
// during an update is the update. A rank that itself begins last waits for no
// other.
func TestAnalyzeUpdatesBeside(t *testing.T) {
	tr := &trace.Trace{Ranks: []trace.Rank{
		{Events: hand(0, 0, []line{
			{trace.Iteration, "", 0, 0, 40},
			{trace.Backward, "fc", 1, 0, 20},
			{trace.Update, "fc", 1, 5, 28},
			{trace.WaitPull, "fc", 1, 20, 40},
			{trace.Pull, "fc", 1, 30, 40},
		})},
		{Rank: 1, Events: hand(0, 0, []line{
			{trace.Iteration, "", 0, 0, 40},
			{trace.Backward, "fc", 1, 0, 40},
			{trace.Pull, "fc", 1, 10, 40},
		})},
	}}
	r := trace.Analyze(tr)
	want := times(map[trace.Part]float64{trace.InBackward: 20, trace.InUpdate: 8, trace.InExposed: 12})
	if diff := cmp.Diff(want, r.Ranks[0].Times); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if text := encoded(t, tr); !strings.Contains(text, `"updates beside"`) || strings.Contains(text, `"compute 2"`) {
		t.Error("the update has no track of its own")
	}
}

// Layers that run within a test phase are no training.
func TestAnalyzeTestPhase(t *testing.T) {
	tr := &trace.Trace{Ranks: []trace.Rank{{Events: hand(0, 0, []line{
		{trace.Iteration, "", 0, 0, 60},
		{trace.Test, "", 0, 0, 50},
		{trace.Forward, "fc", 1, 10, 20},
		{trace.Forward, "fc", 1, 50, 60},
	})}}}
	want := times(map[trace.Part]float64{trace.InTest: 50, trace.InForward: 10})
	if got := trace.Analyze(tr).Path; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAnalyzeNothing(t *testing.T) {
	for _, tr := range []*trace.Trace{{}, {Ranks: make([]trace.Rank, 2)}} {
		if text := trace.Analyze(tr).Text(); !strings.Contains(text, "no such iteration") {
			t.Errorf("the report of nothing is %q", text)
		}
	}
}

// An iteration during which a rank ran out of room is not analyzed.
func TestAnalyzeDroppedEvents(t *testing.T) {
	tr := handTrace()
	tr.Ranks[1].Dropped = 5
	r := trace.Analyze(tr)
	if len(r.Iterations) != 1 || !strings.Contains(r.Text(), "no room for 5 events") {
		t.Errorf("%d iterations; the report:\n%s", len(r.Iterations), r.Text())
	}
}

// TestOutOfOrder: what did not go in the order of urgency is counted for each rank in the iterations that are looked at, the one that
// was held back longest is named, and pictures have it in rows of its own.
func TestOutOfOrder(t *testing.T) {
	if note := trace.Analyze(handTrace()).OrderNote(); note != "" {
		t.Errorf("where all went in order: %q", note)
	}
	tr := handTrace()
	disorder := []line{{trace.Overtaken, "slice 3 of fc", 0, 41, 70}, {trace.Overtaken, "slice 4 of fc", 0, 42, 42}, {trace.LetGo, "slice 0 of conv", 0, 66, 99}}
	for i, iter := range []int32{10, 12} { // of the second only rank 0 has all
		tr.Ranks[1].Events = append(tr.Ranks[1].Events, hand(iter, 200*i, disorder)...)
	}
	slices.SortStableFunc(tr.Ranks[1].Events, func(a, b trace.Record) int { return int(a.Begin - b.Begin) })
	tr, err := trace.Decode(strings.NewReader(encoded(t, tr)))
	if err != nil {
		t.Fatal(err)
	}
	r := trace.Analyze(tr)
	if a, b := r.Ranks[0], r.Ranks[1]; a.Overtaken+a.LetGo != 0 || b.Overtaken != 2 || b.LetGo != 1 {
		t.Errorf("%+v\n%+v", a, b)
	}
	want := "Out of order in all: 2 overtaken by something less urgent, 1 let go by patience; the longest was slice 0 of conv, let go on rank 1 in iteration 10 after 33.000 ms."
	if got := r.OrderNote(); got != want || !strings.Contains(r.Text(), want) || !strings.Contains(page(t, tr), want) {
		t.Errorf("%q", got)
	}
	if r.Path != trace.Analyze(handTrace()).Path {
		t.Error("the critical path is another")
	}
	picture, err := tr.SVG(trace.Span{First: 10, End: 11}, trace.SVGOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"held back and overtaken", "held back, let go by patience", "slice 3 of fc", `class="k13"`, `class="k14"`} {
		if strings.Count(string(picture), words) == 0 {
			t.Errorf("the picture does not say %q", words)
		}
	}
	if file := encoded(t, tr); !strings.Contains(file, `"out of order"`) || !strings.Contains(file, `"cat":"let go"`) {
		t.Error("the file has no thread of it")
	}
}

// TestOnAGPU: what a GPU does and copies has rows of its own, and changes nothing of what the host's goroutine is told to have done.
func TestOnAGPU(t *testing.T) {
	tr := handTrace()
	gpu := []line{{trace.OnForward, "conv", 0, 12, 30}, {trace.OnBackward, "conv", 0, 30, 90}, {trace.CopyUp, "", 0, 14, 40}, {trace.CopyDown, "", 0, 80, 95}}
	tr.Ranks[1].Events = append(tr.Ranks[1].Events, hand(10, 0, gpu)...)
	slices.SortStableFunc(tr.Ranks[1].Events, func(a, b trace.Record) int { return int(a.Begin - b.Begin) })
	tr, err := trace.Decode(strings.NewReader(encoded(t, tr)))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := trace.Analyze(tr), trace.Analyze(handTrace()); a.Text() != b.Text() {
		t.Errorf("the report is another one:\n%s\n%s", a.Text(), b.Text())
	}
	picture, err := tr.SVG(trace.Span{First: 10, End: 11}, trace.SVGOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if text := string(picture); !strings.Contains(text, `class="k15"`) || !strings.Contains(text, ".k15{") || !strings.Contains(text, "copy between host and GPU") {
		t.Error("the picture has no copies")
	}
	file := encoded(t, tr)
	for _, words := range []string{`"GPU"`, `"copies to the GPU"`, `"copies from the GPU"`, `"cat":"gpu backward"`, `"cat":"copy down"`} {
		if !strings.Contains(file, words) {
			t.Errorf("the file does not have %s", words)
		}
	}
}

func TestReportForMachines(t *testing.T) {
	r := trace.Analyze(handTrace())
	var b bytes.Buffer
	if err := r.JSON(&b); err != nil {
		t.Fatal(err)
	}
	var back struct {
		Path  map[string]float64 `json:"critical_path"`
		Ranks []struct {
			Host   string
			HeldUp float64 `json:"held_up_ms"`
		}
		Buckets []struct {
			Way    string
			Layers []string
		}
	}
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || back.Path["exposed_ms"] != 26 || back.Path["total_ms"] != 100 {
		t.Errorf("the path is %v, %v", back.Path, err)
	}
	if len(back.Ranks) != 2 || back.Ranks[1].HeldUp != 5 || len(back.Buckets) != 4 || back.Buckets[1].Way != "pull" || !slices.Equal(back.Buckets[3].Layers, []string{"fc"}) {
		t.Errorf("%+v", back)
	}
	var all strings.Builder
	for _, name := range []string{"ranks", "layers", "buckets", "iterations"} {
		var w bytes.Buffer
		if err := r.CSV(&w, name); err != nil {
			t.Fatal(err)
		}
		all.WriteString(name + "\n" + w.String() + "\n")
	}
	golden(t, "report.csv", all.String())
	if err := r.CSV(&bytes.Buffer{}, "nets"); err == nil || !strings.Contains(err.Error(), "ranks, layers") {
		t.Errorf("another table: %v", err)
	}
}

// TestWarmUp: what a run's first iteration takes is in no mean, unless it is
// asked for, or there is nothing else.
func TestWarmUp(t *testing.T) {
	tr := handTrace()
	tr.WarmUp = 11
	var b bytes.Buffer
	if err := tr.Encode(&b); err != nil {
		t.Fatal(err)
	}
	read, err := trace.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tr, read); diff != "" {
		t.Errorf("written and read -want +got:\n%s", diff)
	}
	for i := range tr.Ranks { // the first one takes six times as long
		for k := range tr.Ranks[i].Events {
			e := &tr.Ranks[i].Events[k]
			if e.Begin -= 600 * time.Millisecond; e.Iter == 10 {
				e.Begin = 6*e.Begin + 2500*time.Millisecond
			}
			if e.End -= 600 * time.Millisecond; e.Iter == 10 {
				e.End = 6*e.End + 2500*time.Millisecond
			}
		}
	}
	whole := trace.Analyze(tr)
	if n := len(whole.Iterations); n != 1 || whole.Iterations[0].Iter != 11 || whole.Path.Total() != 100*time.Millisecond {
		t.Errorf("%d iterations of %v on average", n, whole.Path.Total())
	}
	if note := strings.Join(whole.Notes, "\n"); !strings.Contains(note, "iteration 10 is warm-up and not part of the means; --iterations 10 shows it") {
		t.Errorf("notes: %s", note)
	}
	for _, s := range []trace.Span{{First: 10, End: 11}, {First: 10, End: 12}} {
		asked := trace.AnalyzeIterations(tr, s)
		if len(asked.Iterations) != s.End-s.First || asked.Iterations[0].Iter != 10 || asked.Iterations[0].Path.Total() != 600*time.Millisecond {
			t.Errorf("asked for %v: %v", s, asked.Iterations)
		}
	}
	tr.WarmUp = 100
	if r := trace.Analyze(tr); len(r.Iterations) != 2 {
		t.Errorf("where all is warm-up: %v", r.Iterations)
	}
}
