package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/caffe/data"
	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/metrics"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/trace"
	"github.com/scaffe/scaffe/train"
)

// TestJSONEnd: the last event names the straggler and why a run failed.
func TestJSONEnd(t *testing.T) {
	var b bytes.Buffer
	l := &jsonLog{out: &b}
	order := nbc.Order{Inversions: 1, Sums: 2, Patience: 3, Longest: 4 * time.Millisecond}
	l.end(train.Summary{Iterations: 1, Order: order, Ranks: []train.RankTimes{{Rank: 0, Compute: 1}, {Rank: 1, Compute: 8, Order: order}}}, false, errors.New("why"))
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	var e struct {
		Event     string
		Error     string
		Straggler map[string]float64
		Order     map[string]float64
		Ranks     []struct{ Order map[string]float64 }
	}
	if err := json.Unmarshal(b.Bytes(), &e); err != nil {
		t.Fatal(err)
	}
	if e.Event != "end" || e.Error != "why" || len(e.Straggler) != 2 || e.Straggler["rank"] != 1 || e.Straggler["times"] != 8 {
		t.Errorf("%s", &b)
	}
	want := map[string]float64{"inversions": 1, "sum_inversions": 2, "let_go_by_patience": 3, "longest_wait_ms": 4}
	if !maps.Equal(e.Order, want) || !maps.Equal(e.Ranks[1].Order, want) || e.Ranks[0].Order["longest_wait_ms"] != 0 {
		t.Errorf("the order is %v, and %v of ranks", e.Order, e.Ranks)
	}
}

// TestGPUUse: what a run takes of a GPU is in the summary, in the JSON log and among the metrics.
func TestGPUUse(t *testing.T) {
	use := &train.GPUUse{
		Name: "cuda:0 (a GPU)", Memory: 3e6, Pinned: 2e6, Inside: 5,
		Counts: gpu.Counts{Up: 4e6, Down: 1e6, Fetches: 20, Waits: 7},
	}
	s := train.Summary{Iterations: 10, Total: time.Second, GPU: use}
	var text, log bytes.Buffer
	if err := writeSummary(&text, s); err != nil {
		t.Fatal(err)
	}
	want := "cuda:0 (a GPU): 3.0 MB of its memory, 2.0 MB pinned; an iteration: 0.400 MB up, 0.100 MB down, waits 2.0 for the loss and what goes with it, 0.5 others (in all, with tests and snapshots: 7)"
	if !strings.Contains(text.String(), want) {
		t.Errorf("the summary does not say %q:\n%s", want, &text)
	}
	l := &jsonLog{out: &log}
	l.end(s, false, nil)
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	want = `"gpu":{"name":"cuda:0 (a GPU)","memory_bytes":3000000,"pinned_bytes":2000000,"up_bytes":4000000,"down_bytes":1000000,"fetches":20,"waits":7,"iteration_waits":5}`
	if !strings.Contains(log.String(), want) {
		t.Errorf("the log does not have %s:\n%s", want, &log)
	}
	m := &metricsReport{to: metrics.NewTraining()}
	m.progress(train.Progress{Summary: s}, 0)
	families, err := m.to.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, v := range f.GetMetric() {
			if strings.HasPrefix(f.GetName(), "scaffe_gpu_") {
				got[f.GetName()+" "+v.GetLabel()[0].GetValue()] = v.GetGauge().GetValue() + v.GetCounter().GetValue()
			}
		}
	}
	if all := map[string]float64{
		"scaffe_gpu_memory_bytes device": 3e6, "scaffe_gpu_memory_bytes pinned": 2e6, "scaffe_gpu_copied_bytes_total up": 4e6, "scaffe_gpu_copied_bytes_total down": 1e6,
		"scaffe_gpu_waits_total loss": 20, "scaffe_gpu_waits_total other": 7,
	}; !maps.Equal(got, all) {
		t.Errorf("metrics %v", got)
	}
}

// TestSummary: the summary lists all ranks, or the ones that matter, and marks
// the straggler.
func TestSummary(t *testing.T) {
	s := train.Summary{Iterations: 10, Images: 100, Total: time.Second, Skipped: 3, Collectives: trace.Totals{
		Push: 30 * time.Millisecond, Pull: 20 * time.Millisecond, Communication: 40 * time.Millisecond, ExposedPush: 10 * time.Millisecond,
	}, Order: nbc.Order{Inversions: 1, Sums: 2, Patience: 3, Longest: 4 * time.Millisecond}}
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
	has(lines, 8, "order: 1 inversions at ports, 2 among additions; patience let 3 messages go; the longest wait at a port was 4.00 ms")
	has(lines, 9, "skipped: 3 updates, for numbers that were not finite")
	s.Ranks = ranks(40, 17)
	lines = write()
	has(lines, 2, "fastest: 0 50.0 49.0 1.00 3.5 of 4 2 of 10 9.00")
	has(lines, 4, "slowest: 17 500 49.0 1.00 - 0 of 0 0.00 straggler: 9.8 × the median rank")
	s.Ranks, s.Skipped = ranks(2, -1), 0
	if text := strings.Join(write(), "\n"); strings.Contains(text, "straggler") || strings.Contains(text, "skipped") {
		t.Errorf("among equals:\n%s", text)
	}
}

// What buckets cost is a table of the summary, and its rows are in the JSON log.
func TestBuckets(t *testing.T) {
	s := train.Summary{Iterations: 1, Ranks: make([]train.RankTimes, 2), Buckets: []train.BucketCost{
		{Name: "conv1…conv3", Scheme: exchange.PS, PredictedBytes: 2.4e6, Payload: 4812345, Predicted: 7 * time.Millisecond, Least: 8 * time.Millisecond, Most: 9500 * time.Microsecond},
		{Name: "fc6", Scheme: exchange.Reduce, PredictedBytes: 1e3, Predicted: time.Microsecond, Least: 2 * time.Microsecond, Most: 3 * time.Microsecond},
	}}
	var b bytes.Buffer
	if err := writeSummary(&b, s); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, l := range strings.Split(b.String(), "\n") {
		lines = append(lines, strings.Join(strings.Fields(l), " "))
	}
	text := strings.Join(lines, "\n")
	want := "\n\nbucket scheme predicted MB MB predicted ms least ms most ms\nconv1…conv3 ps 2.4 4.812 7.000 8.000 9.500\nfc6 reduce 0.001 - 0.001 0.002 0.003\n"
	if !strings.Contains(text, want) {
		t.Errorf("%s\nis without%s", text, want)
	}

	b.Reset()
	l := &jsonLog{out: &b}
	l.end(s, false, nil)
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	var e struct{ Buckets []map[string]any }
	if err := json.Unmarshal(b.Bytes(), &e); err != nil {
		t.Fatal(err)
	}
	wantRows := []map[string]any{
		{"name": "conv1…conv3", "scheme": "ps", "predicted_bytes": 2.4e6, "payload_bytes": 4812345., "predicted_ms": 7., "least_ms": 8., "most_ms": 9.5},
		{"name": "fc6", "scheme": "reduce", "predicted_bytes": 1e3, "payload_bytes": nil, "predicted_ms": .001, "least_ms": .002, "most_ms": .003},
	}
	if !reflect.DeepEqual(e.Buckets, wantRows) {
		t.Errorf("%v, want %v", e.Buckets, wantRows)
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
