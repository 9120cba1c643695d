package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/trace"
)

// traced writes a trace of two iterations of one rank.
func traced(t *testing.T) string {
	t.Helper()
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	tr := &trace.Trace{Start: time.Unix(1, 0).UTC(), Ranks: []trace.Rank{{Host: "north"}}}
	for i := range 2 {
		for _, e := range []trace.Record{
			{Kind: trace.Iteration, Layer: -1, Begin: ms(0), End: ms(20)},
			{Kind: trace.Forward, Name: "conv1", Layer: 3, Begin: ms(0), End: ms(12)},
			{Kind: trace.WaitPush, Name: "conv1", Layer: -1, Begin: ms(12), End: ms(20)},
		} {
			e.Iter, e.Begin, e.End = int32(10+i), e.Begin+ms(20*i), e.End+ms(20*i)
			tr.Ranks[0].Events = append(tr.Ranks[0].Events, e)
		}
	}
	file := filepath.Join(t.TempDir(), "out.json")
	if err := tr.Write(file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTraceCommands(t *testing.T) {
	file := traced(t)
	dir := filepath.Dir(file)
	for _, c := range []struct {
		args []string
		want string // on stdout, or on stderr after a failure
		file string // which is written
		fail bool
	}{
		{args: []string{"report", file}, want: "An iteration takes 20.000 ms"},
		{args: []string{"report", file, "--iterations", "11"}, want: "iteration 11"},
		{args: []string{"report", file, "--format", "csv", "--table", "ranks"}, want: "0,north,20,12,0,0,8,0"},
		{args: []string{"report", "--format", "json", file}, want: `"exposed_ms":8`},
		{args: []string{"html", file, "--out", filepath.Join(dir, "a.html")}, file: "a.html"},
		{args: []string{"html", file}, file: "out.html"},
		{args: []string{"svg", file, "--iterations", "10:12", "--out", filepath.Join(dir, "a.svg")}, file: "a.svg"},
		{args: []string{"svg", file, "--iterations", "10", "--ranks", "0", "--length", "30ms", "--out", filepath.Join(dir, "b.svg")}, file: "b.svg"},
		{args: []string{"svg", file, "--iterations", "10", "--ranks", "0,1"}, want: "the trace has no rank 1: it has 1 rank", fail: true},
		{args: []string{"svg", file, "--iterations", "10", "--ranks", "all"}, want: "want ranks such as 0,4", fail: true},
		{args: []string{"svg", file, "--iterations", "10", "--length", "0s"}, want: "want more than 0, such as 1.8s", fail: true},
		{args: []string{"svg", file}, want: "missing --iterations FIRST:END", fail: true},
		{args: []string{"svg", file, "--iterations", "90:95"}, want: "it has 10 to 11", fail: true},
		{args: []string{"report"}, want: "missing arguments: want FILE", fail: true},
		{args: []string{"report", file, "--format", "xml"}, want: "want text, csv or json", fail: true},
		{args: []string{"report", file, "--iterations", "9:3"}, want: "after the first", fail: true},
		{args: []string{"report", scaffe}, want: "not a trace of scaffe", fail: true},
	} {
		r := command(t, dir, scaffe, append([]string{"trace"}, c.args...)...)
		if (r.code != 0) != c.fail {
			t.Errorf("%v: status %d, %s", c.args, r.code, r.stderr)
		}
		if said := map[bool]string{false: r.stdout, true: r.stderr}[c.fail]; !strings.Contains(said, c.want) {
			t.Errorf("%v says\n%s\nwithout %q", c.args, said, c.want)
		}
		if c.file == "" {
			continue
		}
		if b, err := os.ReadFile(filepath.Join(dir, c.file)); err != nil || !bytes.Contains(b, []byte("conv1")) {
			t.Errorf("%v: %d bytes, %v", c.args, len(b), err)
		}
	}
	if r := command(t, dir, scaffe, "trace", "report", "--format", "json", file); !json.Valid([]byte(r.stdout)) {
		t.Errorf("no JSON:\n%s", r.stdout)
	}
}
