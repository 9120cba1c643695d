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
	for args, want := range map[string]string{
		"time":                                                             `Required flag "model" not set`,
		"time --model none.prototxt":                                       "there is no such file",
		"time --model net.prototxt":                                        "net.prototxt:2:1: layer \"data\" (Data): it has no crop_size",
		"time --model net.prototxt --shape 1x28":                           `"1x28" is no shape`,
		"time --model net.prototxt --phase TRIAL":                          "use TRAIN or TEST",
		"time --model net.prototxt --format xml":                           `invalid --format "xml": want text, csv or json`,
		"time --model net.prototxt --data":                                 "train_lmdb",
		"time --model net.prototxt --shape 1x28x28 --iterations 0 --out x": "0 iterations",
	} {
		r := command(t, dir, scaffe, strings.Fields(args)...)
		if r.code != 1 || !strings.Contains(r.stderr, want) || r.stdout != "" && want[0] != 'R' {
			t.Errorf("%s: status %d, %s, want %s", args, r.code, r.stderr, want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "x")); err == nil {
		t.Error("a profile was written")
	}
}
