package trace_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/trace"
)

func encoded(t testing.TB, tr *trace.Trace) string {
	var b bytes.Buffer
	if err := tr.Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestWriteAndReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.json")
	want := handTrace()
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := trace.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if es, _ := os.ReadDir(filepath.Dir(path)); len(es) != 1 {
		t.Errorf("%d files", len(es))
	}
	golden(t, "hand.json", encoded(t, want))
}

// What viewers ask of the format: events of a thread hold each other or are
// apart, and all threads and processes have names.
func TestChromeFormat(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tr := randomTrace(rt)
		var file struct {
			TraceEvents []struct {
				Ph       string
				Pid, Tid int
				Ts, Dur  float64
				Name     string
				Cat      string
				Args     map[string]any
			}
		}
		if err := json.Unmarshal([]byte(encoded(t, tr)), &file); err != nil {
			rt.Fatal(err)
		}
		type thread struct{ pid, tid int }
		open := map[thread][]float64{}
		named := map[thread]bool{}
		for _, e := range file.TraceEvents {
			th := thread{e.Pid, e.Tid}
			if e.Ph == "M" {
				named[th] = named[th] || e.Name == "thread_name"
				continue
			}
			if e.Ph != "X" || !named[th] || e.Args["iter"] == nil {
				rt.Fatalf("event %+v", e)
			}
			const half = 0.0005 // ns, as the format's µs
			s := open[th]
			for len(s) > 0 && s[len(s)-1] <= e.Ts+half {
				s = s[:len(s)-1]
			}
			if len(s) > 0 && e.Ts+e.Dur > s[len(s)-1]+half {
				rt.Fatalf("%+v ends after what holds it, %v", e, s)
			}
			if len(s) > 0 && e.Tid >= 1000 {
				rt.Fatalf("%+v lies within another collective", e)
			}
			open[th] = append(s, e.Ts+e.Dur)
		}
		back, err := trace.Decode(strings.NewReader(encoded(t, tr)))
		if err != nil {
			rt.Fatal(err)
		}
		if again := encoded(t, back); again != encoded(t, tr) {
			rt.Fatalf("written again it is another:\n%s\n%s", encoded(t, tr), again)
		}
	})
}

// randomTrace has events at random places: overlapping, empty, together.
func randomTrace(rt *rapid.T) *trace.Trace {
	tr := &trace.Trace{Start: handTrace().Start}
	for r := range rapid.IntRange(1, 3).Draw(rt, "ranks") {
		k := trace.Rank{Rank: r, Host: rapid.SampledFrom([]string{"a", "\"ü<&"}).Draw(rt, "host")}
		var lines []line
		for range rapid.IntRange(0, 30).Draw(rt, "events") {
			begin := rapid.IntRange(-5, 40).Draw(rt, "begin")
			lines = append(lines, line{
				trace.Kind(rapid.IntRange(0, int(trace.LetGo)).Draw(rt, "kind")), rapid.SampledFrom([]string{"", "conv", "push x"}).Draw(rt, "name"),
				int32(rapid.IntRange(0, 3).Draw(rt, "number")), begin, begin + rapid.IntRange(0, 20).Draw(rt, "length"),
			})
		}
		k.Events = hand(int32(rapid.IntRange(0, 2).Draw(rt, "iter")), 0, lines)
		tr.Ranks = append(tr.Ranks, k)
	}
	// Reading sorts.
	sorted, err := trace.Decode(strings.NewReader(mustEncode(tr)))
	if err != nil {
		rt.Fatal(err)
	}
	return sorted
}

func mustEncode(tr *trace.Trace) string {
	var b bytes.Buffer
	if err := tr.Encode(&b); err != nil {
		panic(err)
	}
	return b.String()
}

func TestReadOtherFiles(t *testing.T) {
	whole := encoded(t, handTrace())
	for text, want := range map[string]string{
		"":                   "truncated file",
		"hello":              "not a trace of scaffe",
		"[]":                 "not a trace of scaffe",
		`{"traceEvents":[]}`: "not a trace of scaffe",
		whole[:len(whole)/2]: "truncated file",
		whole[:len(whole)-3]: "truncated file",
		whole[:100]:          "not a trace of scaffe",
		strings.Replace(whole, "trace/1", "trace/9", 1):                           "scaffe-trace/9",
		strings.Replace(whole, `"cat":"forward"`, `"cat":"lunch"`, 1):             "lunch",
		strings.Replace(whole, `"pid":1,"tid":1,"ts"`, `"pid":9,"tid":1,"ts"`, 1): "process 9 of 2 ranks",
		strings.Replace(whole, `"ts":2000.000`, `"ts":1e30`, 1):                   "invalid time",
		strings.Replace(whole, `"dur":10000.000`, `"dur":-1`, 1):                  "invalid duration",
	} {
		tr, err := trace.Decode(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: got %v, %v, want an error with %q", text, tr, err, want)
		}
	}
	if _, err := trace.ReadFile(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := trace.Decode(strings.NewReader(`{"a":1}`)); !errors.Is(err, trace.ErrFormat) {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	small := handTrace()
	small.Ranks[0].Events, small.Ranks[1].Events = small.Ranks[0].Events[5:13], small.Ranks[1].Events[6:10]
	f.Add(encoded(f, small))
	f.Add(encoded(f, &trace.Trace{}))
	f.Fuzz(func(t *testing.T, text string) {
		tr, err := trace.Decode(strings.NewReader(text))
		if err != nil {
			return
		}
		if err := tr.Encode(io.Discard); err != nil {
			t.Error(err)
		}
		_ = trace.Analyze(tr).Text()
	})
}
