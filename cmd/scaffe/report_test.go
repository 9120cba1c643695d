package main

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/scaffe/scaffe/exchange"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files in testdata again")

// events reads a JSON log.
func events(t *testing.T, text string) []map[string]any {
	t.Helper()
	var es []map[string]any
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		var e map[string]any
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			t.Fatalf("%v in the line\n%s", err, s.Text())
		}
		es = append(es, e)
	}
	return es
}

// kinds counts the events of each kind.
func kinds(es []map[string]any) map[string]int {
	n := map[string]int{}
	for _, e := range es {
		n[e["event"].(string)]++
	}
	return n
}

// keys are all fields of v, with those of objects within it.
func keys(v any, path string, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			into[path+k] = true
			keys(x, path+k+".", into)
		}
	case []any:
		for _, x := range v {
			keys(x, path, into)
		}
	}
}

// TestLogJSON: every event is there once for each thing that happened, with
// the fields that programs depend on (testdata/log_json_keys.txt), which
// docs/training.md describes.
func TestLogJSON(t *testing.T) {
	dir := workplace(t, 50)
	run := func(more ...string) result {
		return command(t, dir, scaffe, append([]string{"train", "--local", "2", "--solver", "solver.prototxt", "--scheme", "reduce"}, more...)...)
	}
	r := run("--log-json", "log.jsonl", "--checkpoint", "sets")
	loss := losses(t, r)
	text, err := os.ReadFile(filepath.Join(dir, "log.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	es := events(t, string(text))
	if n := kinds(es); !maps.Equal(n, map[string]int{"start": 1, "test": 3, "iteration": 50, "snapshot": 1, "checkpoint": 1, "end": 1}) {
		t.Errorf("events: %v", n)
	}
	if s := es[0]; s["event"] != "start" || s["ranks"] != 2.0 || s["design"] != exchange.SCOBR.String() || s["aggregate"] != "reduce" || s["spec"] != "tuned" ||
		s["parameters"] != 12226.0 || s["global_batch"] != 30.0 || s["max_iter"] != 50.0 {
		t.Errorf("%v", s)
	}
	iter := 0
	for _, e := range es {
		if e["event"] != "iteration" {
			continue
		}
		if got := e["loss"].(float64); e["iter"] != float64(iter) || strconv.FormatFloat(got, 'g', 5, 32) != strconv.FormatFloat(loss[iter], 'g', 5, 32) || e["skipped"] != false {
			t.Errorf("iteration %d, loss %v: %v", iter, loss[iter], e)
		}
		iter++
	}
	if e := es[len(es)-1]; e["event"] != "end" || e["iterations"] != 50.0 || e["images"] != 1500.0 || len(e["ranks"].([]any)) != 2 || e["error"] != nil || e["stopped"] != false {
		t.Errorf("%v", e)
	}
	if !strings.HasPrefix(r.stdout, "50 iterations, 1500 images in ") {
		t.Errorf("stdout is %q", r.stdout)
	}

	// A file is gone on with; - is stdout, which the summary then makes room on.
	if r := run("--log-json", "log.jsonl", "--snapshot", "s_iter_50.solverstate"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	if both, _ := os.ReadFile(filepath.Join(dir, "log.jsonl")); !bytes.HasPrefix(both, text) || kinds(events(t, string(both)))["start"] != 2 {
		t.Errorf("going on did not append:\n%s", both[len(text):])
	}
	write(t, dir, "huge.prototxt", `net: "net.prototxt" base_lr: 1e30 lr_policy: "fixed" max_iter: 8 snapshot_prefix: "s"`)
	r = command(t, dir, scaffe, "train", "--local", "2", "--solver", "huge.prototxt", "--scheme", "reduce", "--log-json", "-", "--on-nan", "skip")
	if !strings.Contains(r.stderr, "\n8 iterations, ") {
		t.Errorf("with --log-json - stderr has no summary:\n%s", r.stderr)
	}
	skips := events(t, r.stdout)
	n := kinds(skips)
	for _, e := range skips {
		if e["event"] == "iteration" && e["skipped"] == true {
			n["skipped"]++
		}
	}
	if n["iteration"] != 8 || n["skip"] == 0 || n["skip"] != n["skipped"] || float64(n["skip"]) != skips[len(skips)-1]["skipped"] {
		t.Errorf("events with a rate that leads to nowhere: %v\n%s", n, r.stdout)
	}
	write(t, dir, "short.prototxt", `net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 30 snapshot_prefix: "s"`)
	r = command(t, dir, scaffe, "train", "--local", "3", "--solver", "short.prototxt", "--log-json", "-", "--scheme", "ps", "--consistency", "drop:1ns")
	late := events(t, r.stdout)
	n = kinds(late)
	left := 0.0
	for _, rank := range late[len(late)-1]["ranks"].([]any) {
		left += rank.(map[string]any)["left_out"].(float64)
	}
	if n["iteration"] != 30 || n["dropped"] == 0 || float64(n["dropped"]) != left || !strings.Contains(r.stderr, ": left out for being late: rank ") {
		t.Errorf("where the third of three is late whenever it comes: %v, left out of %v\n%s", n, left, r.stderr)
	}
	r = command(t, dir, scaffe, "train", "--local", "3", "--solver", "short.prototxt", "--log-json", "-", "--scheme", "ps", "--consistency", "ssp:1")
	apart := events(t, r.stdout)
	if n = kinds(apart); r.code != 0 || n["iteration"] != 30 || apart[0]["consistency"] != "ssp:1" {
		t.Errorf("workers that are apart: %v, started as %v\n%s", n, apart[0], r.stderr)
	}
	if n["behind"] == 0 { // which is chance
		apart = append(apart, map[string]any{"event": "behind", "time": "", "iter": 0., "by": []any{0., 1., 0.}})
	}
	golden(t, slices.Concat(es, skips, late, apart))
}

// golden holds the fields of events against the list of them.
func golden(t *testing.T, es []map[string]any) {
	t.Helper()
	found := map[string]map[string]bool{}
	for _, e := range es {
		kind := e["event"].(string)
		if found[kind] == nil {
			found[kind] = map[string]bool{}
		}
		keys(e, "", found[kind])
		// Whether there is a straggler is chance; its fields are train/report's to test.
		maps.DeleteFunc(found[kind], func(k string, _ bool) bool { return strings.HasPrefix(k, "straggler.") })
	}
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintf(&b, "%s: %s\n", kind, strings.Join(slices.Sorted(maps.Keys(found[kind])), " "))
	}
	path := filepath.Join("testdata", "log_json_keys.txt")
	if *rewrite {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the fields of events are\n%s\nwant\n%s", &b, want)
	}
	docs, err := os.ReadFile("../../docs/training.md")
	if err != nil {
		t.Fatal(err)
	}
	for kind, fields := range found {
		for f := range fields {
			if name := f[strings.LastIndexByte(f, '.')+1:]; !strings.Contains(string(docs), "`"+name+"`") {
				t.Errorf("docs/training.md does not mention %s of event %s", name, kind)
			}
		}
	}
}

// TestLogJSONStopped: a log is whole to the last line when training is stopped,
// and says so.
func TestLogJSONStopped(t *testing.T) {
	dir := endless(t)
	r := begin(t, dir, scaffe, "train", "--local", "2", "--solver", "endless.prototxt", "--log-json", "log.jsonl")
	r.until("^iteration 20:")
	r.signal(syscall.SIGTERM, "mpirun")
	if got := r.end(); got.code != 0 {
		t.Fatalf("it ended with %d\n%s", got.code, last(got.stderr))
	}
	text, err := os.ReadFile(filepath.Join(dir, "log.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	es := events(t, string(text))
	if e := es[len(es)-1]; e["event"] != "end" || e["stopped"] != true || e["error"] != nil {
		t.Errorf("the last event is %v", e)
	}
}

// TestMetrics: Prometheus sees the run while it goes on.
func TestMetrics(t *testing.T) {
	for name, way := range launches(t) {
		t.Run(name, func(t *testing.T) {
			dir := endless(t)
			write(t, dir, "endless.prototxt", fmt.Sprintf(longSolver, 1_000_000, "s")+"\nsnapshot: 5 test_iter: 2 test_interval: 5")
			r := begin(t, dir, way[0], append(slices.Clone(way[1:]), "--solver", "endless.prototxt", "--metrics", ":0", "--checkpoint", "sets", "--checkpoint-every", "1")...)
			url := r.until(`^metrics at (http://127\.0\.0\.1:\d+/metrics)$`)[1]
			r.until("^iteration 20:")
			r.until(`^iteration ([2-9]|\d\d+): checkpoint sets/iter_\d+\.manifest, 0\.1 MB$`) // the second, or a later one
			values := scrape(t, url)
			for _, name := range documented(t) {
				if !slices.ContainsFunc(slices.Collect(maps.Keys(values)), func(k string) bool { return k == name || strings.HasPrefix(k, name+"{") }) {
					t.Errorf("%s is not there: %v", name, values)
				}
			}
			for name, least := range map[string]float64{
				"scaffe_iterations_total": 20, "scaffe_images_total": 600, "scaffe_snapshots_total": 3, "scaffe_checkpoints_total": 1, "scaffe_images_per_second": 1e-9,
				`scaffe_info{aggregate="auto",design="SC-OBR",net=""}`: 1, `scaffe_seconds_total{part="compute"}`: 1e-9,
				`scaffe_collective_seconds_total{direction="push"}`: 1e-9, `scaffe_test_score{name="loss"}`: 1e-9, "scaffe_ranks": 2,
			} {
				if values[name] < least {
					t.Errorf("%s is %v", name, values[name])
				}
			}
			if values["scaffe_loss"] <= 0 || values["scaffe_learning_rate"] != float64(float32(0.01)) {
				t.Errorf("loss %v at rate %v", values["scaffe_loss"], values["scaffe_learning_rate"])
			}

			// Somebody else cannot have the same address, and says so before training.
			address := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/metrics")
			second := command(t, dir, way[0], append(slices.Clone(way[1:]), "--solver", "solver.prototxt", "--metrics", address)...)
			if second.code == 0 || strings.Count(second.stderr, "scaffe: ") != 1 || !strings.Contains(second.stderr, address) || strings.Contains(second.stderr, "iteration") {
				t.Errorf("with a busy address it ended with status %d\n%s", second.code, second.stderr)
			}
			r.signal(syscall.SIGTERM, "mpirun")
			if got := r.end(); got.code != 0 {
				t.Errorf("it ended with %d\n%s", got.code, last(got.stderr))
			}
		})
	}
}

// scrape reads metrics as Prometheus does.
func scrape(t *testing.T, url string) map[string]float64 {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if at := strings.LastIndexByte(line, ' '); !strings.HasPrefix(line, "#") && at > 0 {
			if values[line[:at]], err = strconv.ParseFloat(strings.TrimSpace(line[at:]), 64); err != nil {
				t.Errorf("%v in %q", err, line)
			}
		}
	}
	return values
}

// documented returns the names of all metrics in docs/training.md.
func documented(t *testing.T) (names []string) {
	t.Helper()
	docs, err := os.ReadFile("../../docs/training.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(scaffe_[a-z_]+)").FindAllStringSubmatch(string(docs), -1) {
		names = append(names, m[1])
	}
	if len(names) < 10 {
		t.Fatalf("docs/training.md has only the metrics %v", names)
	}
	return names
}

// TestReportFlags: what cannot be had is an error before anything begins.
func TestReportFlags(t *testing.T) {
	dir := workplace(t, 3)
	for _, c := range []struct{ want, args string }{
		{`"9100"`, "--metrics 9100"},
		{"256.1.1.1", "--metrics 256.1.1.1:9100"},
		{"no/such/folder", "--log-json no/such/folder/log"},
		{`"sometimes"`, "--progress sometimes"},
		{`"table3"`, "--report table3"},
		{"--algorithms needs --report table2", "--specs CB-8"},
		{"--report and --design cannot be used together", "--report table2 --design SC-B"},
		{"--report-iterations must be at least 1 (got 0)", "--report table2 --report-iterations 0"},
		{`"yaml"`, "--report table2 --format yaml"},
		{`"SC-D"`, "--report table2 --designs SC-B,SC-D"},
		{`"bush"`, "--report table2 --specs bush"},
		{"one rank", "--report table2 --local 1"},
	} {
		r := command(t, dir, scaffe, append([]string{"train", "--solver", "solver.prototxt"}, strings.Fields(c.args)...)...)
		if r.code == 0 || !strings.Contains(r.stderr, c.want) || strings.Contains(r.stderr, "iteration 0") {
			t.Errorf("scaffe train %s ended with status %d and %q, without %q", c.args, r.code, r.stderr, c.want)
		}
	}
}

// TestProgressBar: the bar says how fast it goes, and the log's lines are as
// without it.
func TestProgressBar(t *testing.T) {
	dir := workplace(t, 30)
	r := command(t, dir, scaffe, "train", "--local", "2", "--solver", "solver.prototxt", "--progress", "always")
	if bar := regexp.MustCompile(`loss [\d.]+, \d+ images/s, \d+ % exposed .*\(\d+/30\)`); r.code != 0 || !bar.MatchString(r.stderr) {
		t.Errorf("no bar was seen (status %d)\n%q", r.code, r.stderr)
	}
	if strings.Contains(r.stdout, "images/s, ") && strings.Contains(r.stdout, "|") {
		t.Errorf("the bar is in stdout:\n%s", r.stdout)
	}
	r = command(t, dir, scaffe, "train", "--local", "2", "--solver", "solver.prototxt")
	if strings.Contains(r.stderr, "\r") {
		t.Errorf("a bar where there is no terminal:\n%q", r.stderr)
	}
	if log := regexp.MustCompile(`(?m)^iteration 7: loss [\d.]+, lr 0.01, \d+ images/s, compute \d+ %, exposed communication \d+ %, input \d+ %`); !log.MatchString(r.stderr) {
		t.Errorf("the log is\n%s", r.stderr)
	}
}

// TestTable2: S-Caffe's Table 2 as a command, which leaves nothing behind.
func TestTable2(t *testing.T) {
	dir := workplace(t, 3)
	for name, way := range launches(t) {
		args := append(slices.Clone(way[1:]), "--solver", "solver.prototxt", "--report", "table2", "--report-iterations", "3", "--format", "csv")
		r := command(t, dir, way[0], args...)
		table, err := csv.NewReader(strings.NewReader(r.stdout)).ReadAll()
		if r.code != 0 || err != nil {
			t.Fatalf("%s: it ended with %d (%v)\n%s%s", name, r.code, err, r.stdout, r.stderr)
		}
		column := map[string]int{}
		for i, n := range table[0] {
			column[n] = i
		}
		var got []string
		for _, row := range table[1:] {
			got = append(got, row[column["design"]]+" "+row[column["algorithm"]])
			if total, err := strconv.ParseFloat(row[column["total_ms"]], 64); err != nil || total <= 0 || row[column["ranks"]] != "2" {
				t.Errorf("%s: %v", name, row)
			}
		}
		want := []string{"SC-B CC-8", "SC-B CB-4", "SC-B CB-8", "SC-B tuned", "SC-OB tuned", "SC-OBR tuned"}
		if name == "mpirun" {
			want = slices.Insert(want, 0, "SC-B mpi")
		}
		if !slices.Equal(got, want) || table[1][column["aggregation_speedup"]] != "1" || table[1][column["overall_speedup"]] != "1" {
			t.Errorf("%s: the table is\n%s", name, r.stdout)
		}
	}
	r := command(t, dir, scaffe, "train", "--local", "3", "--solver", "solver.prototxt", "--report", "table2", "--report-iterations", "2",
		"--designs", "SC-OB-naive", "--specs", "chain:2,chunk=4K/binomial,ring", "--aggregate", "allreduce", "--bucket", "1")
	if r.code != 0 || !regexp.MustCompile(`(?m)^chain:2,chunk=4K/binomial +SC-OB-naive( +[\d.]+)+( +hidden)?`).MatchString(r.stdout) || !strings.Contains(r.stdout, "aggregate allreduce") {
		t.Errorf("it ended with %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "s_iter*")); len(left) > 0 {
		t.Errorf("it has written %v", left)
	}
}

// TestSummaryLost: a summary that cannot be written is an error.
func TestSummaryLost(t *testing.T) {
	dir := workplace(t, 3)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	cmd := exec.Command(scaffe, "train", "--local", "2", "--solver", "solver.prototxt")
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, full, &stderr
	if err := cmd.Run(); err == nil || strings.Count(stderr.String(), "the summary is lost: cannot write to stdout: no space left on device") != 1 {
		t.Errorf("%v\n%s", err, &stderr)
	}
}
