package replay

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/replay/workload"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tiny has layers with several parameters, with one element, and without any;
// its first and its last have none.
const tiny = `
net tiny
source nowhere
batch 3
update_ms 0.3
layer data Data 0 0
layer a Convolution 0.2 0.3 100 7
layer r ReLU 0.05 0.1
layer b Convolution 0 0.4 1
layer c InnerProduct 0.1 0.1 5000 16
layer d InnerProduct 0.1 0 33
layer loss SoftmaxWithLoss 0.01 0.02
`

func tinyProfile(t *testing.T) *workload.Profile {
	t.Helper()
	p, err := workload.Parse("tiny", tiny)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// replayed runs a replay on n ranks of this process, and returns rank 0's
// result; all ranks must have the same.
func replayed(t *testing.T, n int, c Config) (*Result, error) {
	t.Helper()
	all := make([]*Result, n)
	opts := launch.Options{Local: n, Engine: nbc.Options{Deadline: 60 * time.Second}}
	err := launch.Run(context.Background(), opts, func(ctx context.Context, comm *collectives.Comm) error {
		var err error
		all[comm.Rank()], err = Run(ctx, comm, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	for r := range all {
		if a, b := fmt.Sprintf("%+v", all[0]), fmt.Sprintf("%+v", all[r]); a != b {
			t.Errorf("rank 0 has\n%s\nrank %d\n%s", a, r, b)
		}
	}
	return all[0], nil
}

// Every design brings every gradient and every parameter, whatever the scheme,
// the buckets, the algorithm and the number of ranks.
func TestReplayChecks(t *testing.T) {
	for _, ranks := range []int{1, 2, 3} {
		if testing.Short() && ranks != 3 {
			continue
		}
		for _, scheme := range []exchange.Scheme{exchange.Reduce, exchange.Allreduce, exchange.PS} {
			for _, bucket := range []int{1, 100, 1 << 20} {
				t.Run(fmt.Sprintf("%d/%v/%d", ranks, scheme, bucket), func(t *testing.T) {
					res, err := replayed(t, ranks, Config{
						Profile: tinyProfile(t), Designs: append(exchange.All(), exchange.WFBP), Scheme: scheme, Bucket: bucket,
						Iterations: 3, Warmup: 1, Turn: 2, Check: true, Jitter: 0.5, Straggler: Straggler{0, 2},
					})
					if err != nil {
						t.Fatal(err)
					}
					if want := map[int]int{1: 4, 100: 3, 1 << 20: 1}[bucket]; res.Buckets != want {
						t.Errorf("%d buckets, want %d", res.Buckets, want)
					}
					if len(res.Rows) != 5 || !res.Checked || res.Elements != 5157 || res.Ranks != ranks {
						t.Errorf("%+v", res)
					}
					for _, r := range res.Rows {
						if r.Iterations != 3 || r.Iteration.Median <= 0 {
							t.Errorf("%+v", r)
						}
					}
				})
			}
		}
	}
}

// Ranks that only serve bring every gradient and every parameter, of layers that go by ps and
// by others, and make no images.
func TestReplayWithServersApart(t *testing.T) {
	profile, err := workload.Parse("tiny", strings.Replace(tiny, "5000 16", "16x312 16", 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"ps", "allreduce", "ps,c=sfb,a=reduce", "adam"} {
		asked, err := coordinator.ParseAsked(text)
		if err != nil {
			t.Fatal(err)
		}
		res, err := replayed(t, 4, Config{
			Profile: profile, Designs: append(exchange.All(), exchange.WFBP), Asked: &asked, Bucket: 1, Pair: 4096,
			Workers: coordinator.Places{Ranks: []int{1, 3}}, Servers: coordinator.Places{Ranks: []int{0, 2, 3}},
			Iterations: 3, Warmup: 1, Turn: 2, Check: true, Straggler: Straggler{2, 2},
		})
		if err != nil {
			t.Fatal(err)
		}
		if res.Ranks != 4 || res.Workers != 2 || !res.Checked {
			t.Errorf("%s: %+v", text, res)
		}
		for _, r := range res.Rows {
			if want := float64(2*res.Batch) / r.Iteration.Median * 1e3; r.Rate != want {
				t.Errorf("%s, %s: %v images/s, want %v", text, r.Design, r.Rate, want)
			}
		}
	}
	_, err = replayed(t, 3, Config{
		Profile: profile, Designs: exchange.All(), Iterations: 1,
		Workers: coordinator.Places{Count: 1}, Servers: coordinator.Places{Count: 1},
	})
	if err == nil || strings.Count(err.Error(), "is neither a worker nor a server") != 1 {
		t.Errorf("a rank without work: %v", err)
	}
}

// One design alone, an algorithm that is asked for, and a ratio.
func TestReplayRatio(t *testing.T) {
	spec, err := spec.Parse("chain:2/binomial")
	if err != nil {
		t.Fatal(err)
	}
	res, err := replayed(t, 4, Config{
		Profile: tinyProfile(t), Designs: []exchange.Design{exchange.SCOBR}, Spec: spec, Iterations: 5, Ratio: 0.5, Budget: 1e-9,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := res.Communication.Median / res.Compute; got < 0.499 || got > 0.501 {
		t.Errorf("communication is %v of computation, not half", got)
	}
	if len(res.Rows) != 1 || res.Rows[0].Iterations != 5 || res.Rows[0].OverBasic != 0 || res.Spec != "chain:2/binomial" {
		t.Errorf("%+v", res)
	}
}

// A timeline has what was computed, moved and waited for, of the iterations
// that count.
func TestReplayTrace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.json")
	p := tinyProfile(t)
	err := launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
		rec := trace.New(comm.Rank(), trace.Options{})
		if err := trace.Align(ctx, comm, rec); err != nil {
			return err
		}
		if _, err := Run(ctx, comm, Config{Profile: p, Designs: []exchange.Design{exchange.SCOBR}, Bucket: 1, Iterations: 2, Trace: rec}); err != nil {
			return err
		}
		got, err := trace.Gather(ctx, comm, rec)
		if err != nil || comm.Rank() != 0 {
			return err
		}
		return got.Write(file)
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := trace.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if order := got.Meta["order"]; !strings.HasPrefix(order, "0 inversions at ports, 0 among additions") {
		t.Errorf("the order is %q", order)
	}
	for _, r := range got.Ranks {
		count := map[trace.Kind]int{}
		for _, e := range r.Events {
			count[e.Kind]++
		}
		// The iteration that does not count is in the picture too.
		if count[trace.Forward] != 3*5 || count[trace.Backward] != 3*5 || count[trace.Push] != 3*4 || count[trace.Iteration] != 2 {
			t.Errorf("rank %d has %v", r.Rank, count)
		}
	}
}

// What cannot be replayed is said before anything starts.
func TestReplayMistakes(t *testing.T) {
	good := func() Config {
		return Config{Profile: tinyProfile(t), Designs: []exchange.Design{exchange.SCB}, Iterations: 1}
	}
	for want, change := range map[string]func(*Config){
		"missing profile":                            func(c *Config) { c.Profile = nil },
		"missing design":                             func(c *Config) { c.Designs = nil },
		"(got 0, 0 and 1)":                           func(c *Config) { c.Iterations = 0 },
		"either designs or systems":                  func(c *Config) { c.Systems = systems[:1] },
		"duplicate system caffe+wfbp":                func(c *Config) { c.Designs, c.Systems = nil, []System{systems[1], systems[1]} },
		"duplicate design SC-B":                      func(c *Config) { c.Designs = append(c.Designs, exchange.SCB) },
		"jitter must be between 0 and 1 (got 2)":     func(c *Config) { c.Jitter = 2 },
		"less than the number of ranks (got 2 of 2)": func(c *Config) { c.Straggler = Straggler{2, 3} },
		"has no parameters":                          func(c *Config) { c.Profile.Layers = c.Profile.Layers[:1] },
		"(got -1 and 0)":                             func(c *Config) { c.Ratio = -1 },
		"a ratio of communication to computation needs at least 2 ranks": func(c *Config) { c.Ratio = 1; c.Profile, _ = c.Profile.Scale(0) },
		"bucket size must be at least 0 (got -1)":                        func(c *Config) { c.Bucket = -1 },
		"batch must be between 1 and 16777216 (got 0)":                   func(c *Config) { c.Profile.Batch = 0 },
		"at most 131072 iterations can":                                  func(c *Config) { c.Check, c.Iterations = true, 1<<18 },
		"(got -1, 0 and 1)":                                              func(c *Config) { c.Iterations = -1 },
	} {
		c := good()
		change(&c)
		if _, err := replayed(t, 2, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, s := range []string{"", "1", "1:", "x:2", "1:0", "-1:2", "1:nan"} {
		if _, err := ParseStraggler(s); err == nil {
			t.Errorf("ParseStraggler(%q) is no error", s)
		}
	}
	if s, err := ParseStraggler("2:1.5"); err != nil || s != (Straggler{2, 1.5}) {
		t.Error(s, err)
	}
}

// The layout is that of a net, whose packed buffers begin every parameter at
// such a place.
func TestLayout(t *testing.T) {
	if alignment != net.Alignment {
		t.Errorf("alignment %d, that of a net is %d", alignment, net.Alignment)
	}
	layers, count := layout(tinyProfile(t))
	if count != 112+16+16+5008+16+48 || len(layers) != 7 || layers[1].Params[1].Off != 112 || layers[5].Params[0].Len != 33 {
		t.Errorf("%d elements, %+v", count, layers)
	}
}

// The checker sees a sum that lacks a rank, or has one twice, and a parameter
// that was not brought.
func TestCheckerSees(t *testing.T) {
	layers, count := layout(tinyProfile(t))
	var all []exchange.Bucket
	for i, l := range layers {
		for _, p := range l.Params {
			all = append(all, exchange.Bucket{Layers: []int{i}, Range: p})
		}
	}
	fresh := func() *checker {
		c := &checker{size: 3, data: make([]float32, count), diff: make([]float32, count), want: make([]float32, count), layers: layers}
		for k, l := range layers {
			for _, p := range l.Params {
				for i := p.Off; i < p.End(); i++ {
					c.diff[i] = c.sum(k, i, 7)
				}
			}
		}
		return c
	}
	c := fresh()
	for i := range layers {
		if len(layers[i].Params) > 0 {
			// In two parts, which cut parameters.
			for _, part := range []exchange.Range{{Len: 7}, {Off: 7, Len: count - 7}} {
				if err := c.update(exchange.Sum{Bucket: &exchange.Bucket{Layers: []int{i}}, Range: part}, 7); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := c.verify("SC-B", 7, 8); err != nil {
		t.Error(err)
	}
	c.data[150] += 1
	if err := c.verify("SC-B", 8, 8); err == nil || !strings.Contains(err.Error(), `parameter 150 (layer "c")`) {
		t.Error(err)
	}
	for r := range 3 {
		at := 0
		for gradient(r, at, 7) == 0 {
			at++
		}
		for _, sign := range []float32{-1, 1} {
			c := fresh()
			c.diff[at] += sign * gradient(r, at, 7)
			if err := c.update(exchange.Sum{Bucket: &all[0], Range: all[0].Range}, 7); err == nil {
				t.Errorf("rank %d's gradient %v times more is not seen", r, sign)
			}
		}
	}
}

// A wait does not end early, and a point that has passed is not waited for.
func TestWaiter(t *testing.T) {
	w, err := newWaiter()
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	for _, d := range []time.Duration{-time.Hour, 0, time.Microsecond, 100 * time.Microsecond, 101 * time.Microsecond, 3 * time.Millisecond} {
		end := time.Now().Add(d)
		if err := w.until(end); err != nil || time.Now().Before(end) {
			t.Errorf("%v: %v, %v too early", d, err, time.Until(end))
		}
	}
}

// What is printed is what was measured.
func TestResultWrite(t *testing.T) {
	res, err := replayed(t, 2, Config{Profile: tinyProfile(t), Designs: exchange.All(), Iterations: 6, Warmup: 1, Turn: 3})
	if err != nil {
		t.Fatal(err)
	}
	res.Rows[1].Order = nbc.Order{Inversions: 1, Sums: 2, Patience: 3, Longest: 4 * time.Millisecond}
	var b bytes.Buffer
	if err := res.Write(&b, report.Text); err != nil || !strings.Contains(b.String(), "SC-OB-naive") || !strings.Contains(b.String(), "# times: nowhere") || !strings.Contains(b.String(), "\n# order: "+res.Rows[1].Order.String()+"\n") {
		t.Errorf("%v\n%s", err, &b)
	}
	b.Reset()
	var doc struct {
		Profile string
		Ratio   *float64
		Compute float64 `json:"compute_ms"`
		Rows    []struct {
			Design   string
			WaitPush float64 `json:"wait_push_ms"`

			Inversions int64   `json:"inversions"`
			Sums       int64   `json:"sum_inversions"`
			Patience   int64   `json:"let_go_by_patience"`
			Longest    float64 `json:"longest_wait_ms"`
		}
	}
	if err := res.Write(&b, report.JSON); err != nil || json.Unmarshal(b.Bytes(), &doc) != nil {
		t.Fatalf("%v\n%s", err, &b)
	}
	last := len(res.Rows) - 1
	if doc.Profile != "tiny" || doc.Ratio != nil || math.Abs(doc.Compute-res.Compute) > 1e-6 || len(doc.Rows) != 4 ||
		doc.Rows[last].Design != res.Rows[last].Design || math.Abs(doc.Rows[last].WaitPush-res.Rows[last].WaitPush) > 1e-6 {
		t.Errorf("%+v\n%+v", doc, res)
	}
	if r := doc.Rows[1]; r.Inversions != 1 || r.Sums != 2 || r.Patience != 3 || r.Longest != 4 || doc.Rows[0].Sums != 0 {
		t.Errorf("%+v", doc.Rows)
	}
	b.Reset()
	if err := res.Write(&b, report.CSV); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(rows) != 5 || rows[0][0] != "profile" || rows[1][0] != "tiny" {
		t.Errorf("%v %v", err, rows)
	}
}

// What follows from the times, for times that are given.
func TestJudge(t *testing.T) {
	res := &Result{Compute: 100, Batch: 8, Ranks: 3, Workers: 2}
	res.Communication.Median, res.Tail.Median = 90, 10
	for _, d := range []struct {
		name string
		ms   float64
	}{{"SC-B", 190}, {"SC-OB", 145}, {"SC-OBR", 118}, {"x", 119}} {
		r := Row{Design: d.name, Iterations: 1}
		r.Iteration.Median = d.ms
		res.Rows = append(res.Rows, r)
	}
	res.judge()
	for i, want := range []Row{
		{Exposed: 90, Hidden: 0, OverMax: 1.9, OverBasic: 1},
		{Exposed: 45, Hidden: 0.5, OverMax: 1.45, OverBasic: 145. / 190},
		{Exposed: 18, Hidden: 0.8, OverMax: 1.18, OverBasic: 118. / 190, Met: true},
		{Exposed: 19, Hidden: 1 - 19./90, OverMax: 1.19, OverBasic: 119. / 190},
	} {
		got := res.Rows[i]
		if got.Exposed != want.Exposed || got.Hidden != want.Hidden || got.OverMax != want.OverMax || got.OverBasic != want.OverBasic || got.Met != want.Met {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if got := res.Rows[0]; math.Abs(got.Stall-90./190) > 1e-9 || math.Abs(got.Speedup-200./190) > 1e-9 {
		t.Errorf("%+v", got)
	}
	predicted := &Result{Compute: 100, Batch: 8, Ranks: 3, Workers: 2, Rows: []Row{{Nodes: 5, Ranks: 10, Predicted: 125}}}
	predicted.judge()
	if got := predicted.Rows[0]; math.Abs(got.Speedup-8) > 1e-9 || math.Abs(got.Rate-80/0.125) > 1e-9 || math.Abs(got.Stall-0.2) > 1e-9 {
		t.Errorf("%+v", got)
	}
	if res.Target != 118 || math.Abs(res.Rows[0].Rate-16/0.19) > 1e-9 {
		t.Errorf("target %v, %v images/s", res.Target, res.Rows[0].Rate)
	}
}
