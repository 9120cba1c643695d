package tune_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
	"github.com/scaffe/scaffe/tune"
)

var here = selection.Machine{Host: "a test", MPI: "none"}

func config(dir string) tune.Config {
	return tune.Config{
		Collectives: []schedule.Collective{schedule.Reduce, schedule.Allreduce},
		Min:         1 << 10, Max: 64 << 10, Budget: time.Hour, Iterations: 3,
		Out: filepath.Join(dir, "table"), Machine: here,
		Now: func() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) },
	}
}

// sweep runs c on three ranks and returns rank 0's result.
func sweep(t *testing.T, ctx context.Context, c tune.Config) (r *tune.Result, err error) {
	t.Helper()
	t.Setenv(selection.EnvTable, "none")
	err = launch.Run(ctx, launch.Options{Local: 3}, func(ctx context.Context, comm *collectives.Comm) error {
		mine, err := tune.Sweep(ctx, comm, c)
		if comm.Rank() == 0 {
			r = mine
		}
		return err
	})
	return r, err
}

// A sweep ends in a table without anything wrong that serves every size, and a
// page that needs nothing else; nothing partial stays.
func TestSweep(t *testing.T) {
	c := config(t.TempDir())
	var last tune.Progress
	c.OnProgress = func(p tune.Progress) {
		if p.Part < last.Part || p.Done < last.Done {
			t.Errorf("progress goes back from %+v to %+v", last, p)
		}
		last = p
	}
	r, err := sweep(t, context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Jobs != 2*7 || !r.Complete() || last.Part != 1 {
		t.Errorf("%d of %d points, progress %+v", len(r.Points), r.Jobs, last)
	}
	report, err := r.Write()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(c.Out)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range selection.Lint("table", string(text)) {
		t.Error(err)
	}
	tb, err := selection.ParseTable("table", string(text))
	if err != nil {
		t.Fatal(err)
	}
	three := spec.LayoutOf([]int{0, 0, 0})
	for _, v := range c.Collectives {
		for _, bytes := range []int{0, 1, 1 << 10, 5000, 64 << 10, 1 << 30} {
			if tb.Find(three, selection.Query{Collective: v, Bytes: bytes}) == nil {
				t.Errorf("no rule for %v of %d bytes in\n%s", v, bytes, text)
			}
		}
	}
	if w := tb.Warnings(here, three); len(w) != 0 {
		t.Errorf("where it was made the table is warned of: %q", w)
	}
	page, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, foreign := range []string{"http://", "https://", "<script", "<link", "@import", "url("} {
		if strings.Contains(string(page), foreign) {
			t.Errorf("the page asks for something outside: %s", foreign)
		}
	}
	if _, err := os.Stat(c.Partial()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the partial file is still there: %v", err)
	}
}

// A sweep that is interrupted keeps what it has, and the next one does only
// the rest; one elsewhere refuses.
func TestResume(t *testing.T) {
	c := config(t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c.OnProgress = func(p tune.Progress) {
		if p.Done == 5 {
			cancel()
		}
	}
	if _, err := sweep(t, ctx, c); err == nil {
		t.Fatal("it was not interrupted")
	}
	c.OnProgress = nil
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	other := c
	other.Machine.Host = "another"
	if _, err := sweep(t, context.Background(), other); err == nil || !strings.Contains(err.Error(), "remove it or choose another --out") {
		t.Errorf("on another machine it ends with %v", err)
	}
	other = c
	other.Machine.GPU = "another"
	if _, err := sweep(t, context.Background(), other); err == nil || !strings.Contains(err.Error(), "and a GPU (another)") {
		t.Errorf("with another GPU it ends with %v", err)
	}
	r, err := sweep(t, context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Resumed != 5 || !r.Complete() {
		t.Errorf("resumed %d points, complete %v", r.Resumed, r.Complete())
	}
	if err := os.WriteFile(c.Partial(), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := sweep(t, context.Background(), c); err == nil || !strings.Contains(err.Error(), "is not the partial result of a sweep") {
		t.Errorf("with a broken file it ends with %v", err)
	}
}

// A sweep comes to each size twice; one that is interrupted in between is gone on with where it was.
func TestPasses(t *testing.T) {
	c := config(t.TempDir())
	c.Iterations, c.Max = 8, 4<<10
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c.OnProgress = func(p tune.Progress) {
		if strings.HasSuffix(p.Job, " again") {
			cancel()
		}
	}
	if _, err := sweep(t, ctx, c); err == nil {
		t.Fatal("no size was come to again")
	}
	c.OnProgress = nil
	r, err := sweep(t, context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Resumed != r.Jobs || !r.Complete() {
		t.Errorf("resumed %d points of %d, complete %v", r.Resumed, r.Jobs, r.Complete())
	}
	for _, p := range r.Points {
		most := 0
		for _, m := range p.Specs {
			most = max(most, m.Iterations)
		}
		if most != c.Iterations {
			t.Errorf("%s of %d: measured %d times, not %d", p.Collective, p.Bytes, most, c.Iterations)
		}
	}
}

// A budget that is used up leaves a table of what was measured, coarse sizes
// first, and the rest for the next time.
func TestBudget(t *testing.T) {
	c := config(t.TempDir())
	c.Budget = time.Nanosecond
	r, err := sweep(t, context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Points) != 1 || r.Complete() {
		t.Errorf("%d points of %d", len(r.Points), r.Jobs)
	}
	if _, err := r.Write(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(c.Partial()); err != nil {
		t.Errorf("what was measured is not kept: %v", err)
	}
}

// measured makes a result by hand: reduce on four nodes, where the library is
// best for little, and noise decides between two specs in the middle.
func measured(t *testing.T) *tune.Result {
	t.Helper()
	var points []tune.Point
	if err := json.Unmarshal([]byte(`[
 {"collective":"reduce","bytes":4096,"specs":[{"spec":"mpi","median":1e-5,"spread":0.01,"iterations":9},{"spec":"binomial","median":2e-5,"spread":0.01,"iterations":9}]},
 {"collective":"reduce","bytes":8192,"specs":[{"spec":"binomial","median":3e-5,"spread":0.02,"iterations":9},{"spec":"mpi","median":4e-5,"spread":0.02,"iterations":9}]},
 {"collective":"reduce","bytes":65536,"specs":[{"spec":"chain:2/binomial","median":9.9e-5,"spread":0.05,"iterations":9},{"spec":"binomial","median":1e-4,"spread":0.05,"iterations":9},{"spec":"chain,chunk=64K","median":2e-4,"spread":0,"iterations":3}]},
 {"collective":"reduce","bytes":1048576,"specs":[{"spec":"chain,chunk=64K","median":1e-3,"spread":0.01,"iterations":9},{"spec":"chain:2/binomial","median":2e-3,"spread":0.01,"iterations":9},{"spec":"binomial","median":3e-3,"spread":0.01,"iterations":3},{"spec":"mpi","median":4e-3,"spread":0,"iterations":1}]}
]`), &points); err != nil {
		t.Fatal(err)
	}
	c := config(t.TempDir())
	c.Collectives = c.Collectives[:1]
	return &tune.Result{
		Config: c, Layout: spec.LayoutOf(spec.NodesOf(4, 1)), Points: points, Jobs: 4,
		Selector: &selection.Selector{Model: sim.Default(), From: "default parameters"},
	}
}

// What the rules of a table come to.
func TestTable(t *testing.T) {
	want := `collective=reduce nodes=4 ppn=1 bytes=0..6K buffer=registered spec=mpi # 10.0 µs at 4K
collective=reduce nodes=4 ppn=1 bytes=0..544K buffer=registered spec=binomial # 20.0 µs at 4K, 30.0 µs at 8K, 100 µs at 64K
collective=reduce nodes=4 ppn=1 bytes=544K.. buffer=registered spec=chain,chunk=64K # 1.00 ms at 1M
`
	got := measured(t).Table().String()
	if _, rules, _ := strings.Cut(got, "collective="); "collective="+rules != want {
		t.Errorf("the table is\n%s", got)
	}
	for _, line := range []string{"host a test\n", "mpi none\n", "layout nodes=4 ppn=1 ranks=4\n", "date 2026-11-20T12:00:00Z\n", "iterations 9\n", "spread 1.5%\n", "model inter.latency="} {
		if !strings.Contains(got, line) {
			t.Errorf("no %q in\n%s", line, got)
		}
	}
}

// The page says who won, by how much over the library, and shows every line.
func TestReport(t *testing.T) {
	b, err := measured(t).Report()
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	for _, want := range []string{
		"Tuning of 4 nodes × 1 rank", "1.3×", "4.0×", "<td><code>chain,chunk=64K</code></td>", "4.00 ms (4.00 ×)",
		"reduce of 1M: 1.00 ms by chain,chunk=64K, spread 1 %", ">limit</text>", "stroke:var(--c1)", "prefers-color-scheme: dark",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in the page", want)
		}
	}
}

// A page of what logarithms cannot show, as a kept file may hold it: no time,
// one size.
func TestReportOfOddTimes(t *testing.T) {
	r := measured(t)
	r.Points = r.Points[2:3]
	r.Points[0].Specs[0].Median = 0
	if page, err := r.Report(); err != nil || strings.Contains(string(page), "NaN") {
		t.Errorf("%v\n%s", err, page)
	}
	for i := range r.Points[0].Specs {
		r.Points[0].Specs[i].Median = 0
	}
	if _, err := r.Report(); err != nil {
		t.Error(err)
	}
}

// An explanation names the spec, its source, the runner-up, and what unregistered
// buffers cost.
func TestExplain(t *testing.T) {
	tb, err := selection.ParseTable("lab.table", "scaffe-table 2\ncollective=reduce nodes=4 bytes=1M.. spec=CB-2")
	if err != nil {
		t.Fatal(err)
	}
	s := &selection.Selector{Sources: []selection.Source{{Name: "lab.table", Table: tb}}, Model: sim.Default(), From: "default parameters"}
	for _, c := range []struct {
		nodes, ppn   int
		bytes        int
		unregistered bool
		want         []string
	}{
		{4, 2, 64 << 20, true, []string{"chain:2/binomial", "lab.table:2: collective=reduce nodes=4", "runner-up", "limit", "process_vm_readv", "simulated"}},
		{4, 2, 64 << 10, false, []string{"the built-in cost model (default parameters)"}},
		{1, 4, 64 << 20, false, []string{"direct", "memory, over its bandwidth"}},
	} {
		q := tune.Question{Nodes: spec.NodesOf(c.nodes, c.ppn), Simulate: true}
		q.Query = selection.Query{Collective: schedule.Reduce, Bytes: c.bytes, Blocking: true}
		if c.unregistered {
			q.Query.Buffers = selection.Unregistered
		}
		var b strings.Builder
		if err := tune.Explain(&b, s, q); err != nil {
			t.Fatal(err)
		}
		for _, w := range c.want {
			if !strings.Contains(b.String(), w) {
				t.Errorf("no %q in\n%s", w, &b)
			}
		}
		if !c.unregistered && strings.Contains(b.String(), "process_vm") {
			t.Errorf("registered buffers are said to be copied:\n%s", &b)
		}
	}
}

// Of buffers in GPUs' memory it says what the model knows.
func TestExplainGPUs(t *testing.T) {
	known := sim.Default()
	known.GPU = sim.GPU{Launch: 1e-5, Memory: 1e12, Down: sim.Copies{Bandwidth: 1e10}, Up: sim.Copies{Bandwidth: 1e10}, Devices: 2, Lends: sim.LendsOwn, Turns: 1}
	for _, c := range []struct {
		m    sim.Model
		want []string
		not  string
	}{
		{sim.Default(), []string{"takes them for unregistered ones of the host", "nobody has measured a GPU"}, "limit"},
		{known, []string{
			"limit       268 µs: what must pass memory", // 2 · 64 MiB · 4 ranks, of two GPUs
			"gpu.launch=1e-05", "a rank on the same GPU are read in place, others staged", "share 2 GPUs, where kernels take turns", "simulated",
		}, "unregistered ones"},
	} {
		q := tune.Question{Nodes: spec.NodesOf(1, 4), Simulate: true}
		q.Query = selection.Query{Collective: schedule.Allreduce, Bytes: 64 << 20, Blocking: true, Buffers: selection.CUDA}
		var b strings.Builder
		if err := tune.Explain(&b, &selection.Selector{Model: c.m, From: "a test"}, q); err != nil {
			t.Fatal(err)
		}
		for _, w := range c.want {
			if !strings.Contains(b.String(), w) {
				t.Errorf("no %q in\n%s", w, &b)
			}
		}
		if strings.Contains(b.String(), c.not) {
			t.Errorf("%q in\n%s", c.not, &b)
		}
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1500 * time.Millisecond: "1.50 s", 537 * time.Millisecond: "537 ms", 12340 * time.Microsecond: "12.3 ms", 999 * time.Nanosecond: "1.00 µs",
	} {
		if got := tune.Duration(d); got != want {
			t.Errorf("%v is written %q, not %q", d, got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	for want, f := range map[string]func(*tune.Config){
		"whole elements": func(c *tune.Config) { c.Min = 1022 },
		"want at least one element, smallest first": func(c *tune.Config) { c.Max = 512 },
		"iterations must be at least 3 (got 1)":     func(c *tune.Config) { c.Iterations = 1 },
		"missing name of the tabl":                  func(c *tune.Config) { c.Out = "" },
	} {
		c := config("x")
		f(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it is %v, without %q", err, want)
		}
	}
}
