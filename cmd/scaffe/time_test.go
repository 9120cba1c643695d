package main

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/replay/workload"
)

// scaffe time measures a net without its data set, in all formats, and writes
// a profile.
func TestTime(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "net.prototxt", testNet)
	args := []string{"time", "--model", "net.prototxt", "--shape", "1x28x28", "--iterations", "3", "--warmup", "1", "--batch", "4"}
	r := command(t, dir, scaffe, append(args, "--out", "net.profile")...)
	if r.code != 0 || !strings.Contains(r.stdout, "conv1 (Convolution)") || !strings.Contains(r.stdout, "batch 4, 3 iterations") {
		t.Fatalf("status %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	p, err := workload.Read(filepath.Join(dir, "net.profile"))
	if err != nil {
		t.Fatal(err)
	}
	if p.Batch != 4 || p.Elements() != 156+10*6*144+10 || p.Compute() <= 0 || !strings.Contains(p.Source, "scaffe time") {
		t.Errorf("the profile is\n%s", p)
	}
	r = command(t, dir, scaffe, append(args, "--format", "json")...)
	var got struct {
		Rows []struct {
			Layer      string
			Parameters int
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || len(got.Rows) != len(p.Layers)+1 || got.Rows[len(p.Layers)].Parameters != p.Elements() {
		t.Errorf("%v %+v in\n%s%s", err, got, r.stdout, r.stderr)
	}
	r = command(t, dir, scaffe, append(args, "--format", "csv")...)
	rows, err := csv.NewReader(strings.NewReader(r.stdout)).ReadAll()
	if err != nil || len(rows) != len(p.Layers)+2 {
		t.Errorf("%v: %d rows\n%s%s", err, len(rows), r.stdout, r.stderr)
	}
}

// What cannot be measured is said before anything is written.
func TestTimeMistakes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "net.prototxt", testNet)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", 2, "missing --model"},
		{"--model none.prototxt", 1, "no such file"},
		{"--model net.prototxt", 1, "net.prototxt:2:1: layer \"data\" (Data): it has no crop_size"},
		{"--model net.prototxt --shape 1x28", 2, `invalid --shape "1x28": want channels, height and width`},
		{"--model net.prototxt --phase TRIAL", 2, `invalid --phase "TRIAL": want TRAIN or TEST`},
		{"--model net.prototxt --format xml", 2, `invalid --format "xml": want text, csv or json`},
		{"--model net.prototxt --data", 1, "train_lmdb"},
		{"--model net.prototxt --shape 1x28x28 --iterations 0 --out x", 2, "--iterations must be at least 1 (got 0)"},
	} {
		r := command(t, dir, scaffe, append([]string{"time"}, strings.Fields(c.args)...)...)
		if r.code != c.code || !strings.Contains(r.stderr, c.want) || r.stdout != "" {
			t.Errorf("%s: status %d, %q, %s; want status %d and %s", c.args, r.code, r.stdout, r.stderr, c.code, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "x")); err == nil {
		t.Error("a profile was written")
	}
}
