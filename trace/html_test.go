package trace_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/trace"
)

func page(t *testing.T, tr *trace.Trace) string {
	t.Helper()
	var b bytes.Buffer
	if err := tr.HTML(&b, trace.Span{}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The page needs nothing beside itself, says what the report says, and its data
// is what the trace holds.
func TestHTML(t *testing.T) {
	text := page(t, handTrace())
	if found := regexp.MustCompile(`(?i)https?:|src=|href=|@import|url\(`).FindString(text); found != "" {
		t.Errorf("the page asks for more: %q", found)
	}
	for _, words := range []string{"2 ranks on 2 nodes", "SC-OBR", "An iteration takes 100.000 ms", "Rank 1 (south) computes longest", "within ±3µs"} {
		if !strings.Contains(text, words) {
			t.Errorf("the page does not say %q", words)
		}
	}
	_, rest, _ := strings.Cut(text, `id="data">`)
	body, _, _ := strings.Cut(rest, "</script>")
	var data struct {
		Length int64
		Ranks  []struct{ Items, Periods []int64 }
		Paths  [][]int64
	}
	if err := json.Unmarshal([]byte(body), &data); err != nil {
		t.Fatal(err)
	}
	if data.Length != 3_000_000 || len(data.Ranks) != 2 || len(data.Ranks[0].Periods) != 6 || len(data.Paths) != 2 || data.Paths[0][1] != 220_000 {
		t.Errorf("the data is %+v", data)
	}
	// Rank 1 has 14 events that are drawn in each iteration; two of its waits are in two colors.
	if got := len(data.Ranks[1].Items) / 7; got != 2*(14+2) {
		t.Errorf("%d items", got)
	}
}

// Names come from files that other people write.
func TestHTMLHoldsWhatNamesSay(t *testing.T) {
	tr := handTrace()
	tr.Meta["net"] = `</script><script>alert(1)</script>`
	tr.Ranks[0].Host = `<img src=x>`
	for i := range tr.Ranks[0].Events {
		tr.Ranks[0].Events[i].Name = `</script><b>`
	}
	if text := page(t, tr); strings.Contains(text, "<script>alert") || strings.Contains(text, "<img") || strings.Contains(text, "</script><b>") {
		t.Error("a name became a part of the page")
	}
}

func TestHTMLOfManyEvents(t *testing.T) {
	defer trace.SetPageItems(trace.SetPageItems(500))
	if text := page(t, fakeTrace(2, 10, 30)); !strings.Contains(text, "too many events for a page") {
		t.Errorf("%d bytes, and no word on what is left out", len(text))
	}
}

func TestHTMLOfSomeIterations(t *testing.T) {
	var all, one bytes.Buffer
	tr := fakeTrace(2, 5, 20)
	if err := errors.Join(tr.HTML(&all, trace.Span{}), tr.HTML(&one, trace.Span{First: 5, End: 6})); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(one.String(), "iteration 5") || one.Len() >= all.Len() {
		t.Errorf("one iteration has %d bytes, all have %d", one.Len(), all.Len())
	}
	if err := tr.HTML(&one, trace.Span{First: 50, End: 60}); err == nil || !strings.Contains(err.Error(), "it has 0 to 19") {
		t.Error(err)
	}
}

func TestHTMLOfNothing(t *testing.T) {
	if text := page(t, &trace.Trace{}); !strings.Contains(text, "no such iteration") {
		t.Error("the page of nothing does not say so")
	}
}

// A trace that is good to look at, for whoever works on the pictures:
// SCAFFE_TEST_TRACE=FILE go test ./trace -run FakeTrace
func TestFakeTraceIsWhole(t *testing.T) {
	tr := fakeTrace(4, 12, 30)
	if file := os.Getenv("SCAFFE_TEST_TRACE"); file != "" {
		if err := tr.Write(file); err != nil {
			t.Fatal(err)
		}
	}
	r := trace.Analyze(tr)
	if len(r.Iterations) != 30 || r.Slowest != 2 || r.Path[trace.InSkew] == 0 || r.Path[trace.InExposed] == 0 {
		t.Errorf("the report of the fake trace:\n%s", r.Text())
	}
}
