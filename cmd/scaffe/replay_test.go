package main

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/replay/workload"
	"github.com/scaffe/scaffe/trace"
)

// scaffe replay compares designs from a profile that scaffe time wrote, checks
// all sums, and draws a timeline.
func TestReplay(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "net.prototxt", testNet)
	if r := command(t, dir, scaffe, "time", "--model", "net.prototxt", "--shape", "1x28x28", "--iterations", "2", "--batch", "2", "--out", "p"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	r := command(t, dir, scaffe, "replay", "--profile", "p", "--local", "3", "--designs", "all", "--check", "--iterations", "3", "--bucket", "1K", "--format", "csv",
		"--straggler", "1:2", "--jitter", "0.1", "--compute-scale", "0.5", "--aggregate", "allreduce", "--algorithm", "chain")
	rows, err := csv.NewReader(strings.NewReader(r.stdout)).ReadAll()
	if r.code != 0 || err != nil || len(rows) != 5 {
		t.Fatalf("status %d, %v\n%s%s", r.code, err, r.stdout, r.stderr)
	}
	if rows[1][0] != "p" || !strings.Contains(strings.Join(rows[1], " "), " allreduce chain ") {
		t.Errorf("%q", rows[1])
	}
	r = command(t, dir, scaffe, "replay", "--profile", "p", "--local", "2", "--iterations", "3", "--trace", "t.json", "--ratio", "0.5")
	if r.code != 0 || !strings.Contains(r.stdout, "SC-OBR") || strings.Contains(r.stdout, "naive") {
		t.Fatalf("status %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if tr, err := trace.ReadFile(filepath.Join(dir, "t.json")); err != nil || len(tr.Ranks) != 2 {
		t.Errorf("the timeline: %v", err)
	}
}

// TestReplaySchemes: layers go by schemes of their own, which the report names.
func TestReplaySchemes(t *testing.T) {
	long(t)
	dir := t.TempDir()
	write(t, dir, "net.prototxt", testNet)
	if r := command(t, dir, scaffe, "time", "--model", "net.prototxt", "--shape", "1x28x28", "--iterations", "1", "--batch", "2", "--out", "p"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	replay := func(args ...string) result {
		return command(t, dir, scaffe, append([]string{"replay", "--profile", "p", "--local", "3", "--check", "--iterations", "2"}, args...)...)
	}
	r := replay("--scheme", "reduce,ip*=sfb", "--bucket", "1K")
	if r.code != 0 || !strings.Contains(r.stdout, "\n# ip1    10x") || !strings.Contains(r.stdout, "  sfb     linear ") || !strings.Contains(r.stdout, "\n# products ") {
		t.Errorf("status %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	r = replay("--scheme", "poseidon", "--designs", "SC-B,WFBP", "--format", "json")
	var doc struct {
		Aggregate, Schemes string
		Checked            bool
		Rows               []struct{ Design string }
	}
	if err := json.Unmarshal([]byte(r.stdout), &doc); r.code != 0 || err != nil || doc.Aggregate != "poseidon" || !strings.Contains(doc.Schemes, "sfb") || !doc.Checked || len(doc.Rows) != 2 {
		t.Errorf("status %d, %v, %+v\n%s%s", r.code, err, doc, r.stdout, r.stderr)
	}
}

// TestReplaySystems: systems take turns, and their rows name them.
func TestReplaySystems(t *testing.T) {
	r := command(t, "", scaffe, "replay", "--profile", "alexnet-k80", "--local", "2", "--size-scale", "0.001", "--systems", "caffe+wfbp,poseidon,tensorflow",
		"--iterations", "2", "--warmup", "1", "--check", "--format", "csv")
	rows, err := csv.NewReader(strings.NewReader(r.stdout)).ReadAll()
	if r.code != 0 || err != nil || len(rows) != 4 {
		t.Fatalf("status %d, %v\n%s%s", r.code, err, r.stdout, r.stderr)
	}
	at := slices.Index(rows[0], "system")
	if at < 0 || rows[1][at] != "caffe+wfbp" || rows[3][at] != "tensorflow" || rows[3][at+2] != "TF" || !strings.Contains(rows[2][at+1], "=sfb") {
		t.Errorf("%q", rows)
	}
}

// The list names every built-in profile, and --show prints one as a file.
func TestReplayProfiles(t *testing.T) {
	r := command(t, "", scaffe, "replay", "--list")
	for _, name := range workload.Builtins() {
		if !strings.Contains(r.stdout, name+" ") {
			t.Errorf("%s is not in the list\n%s", name, r.stdout)
		}
	}
	r = command(t, "", scaffe, "replay", "--profile", "vgg19-titanx", "--show", "--size-scale", "0.25")
	p, err := workload.Parse("x", r.stdout)
	// Biases of the fully connected layers shrink as the sides of their weights do, by half.
	want := (143667240-9192)/4 + 9192/2
	if err != nil || p.Elements() < want-100 || p.Elements() > want+100 || !strings.Contains(p.Source, "--size-scale") {
		t.Errorf("%v\n%s%s", err, r.stdout, r.stderr)
	}
}

// Mistakes are named before ranks start: those of the command line with
// status 2, others with status 1.
func TestReplayMistakes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "bad", "batch 1\nlayer a")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", 2, "missing --profile"},
		{"--profile none", 1, "neither a file nor a built-in profile"},
		{"--profile bad", 1, "bad:2: missing layer type"},
		{"--profile alexnet-k80 more", 2, `unexpected argument "more"`},
		{"--profile alexnet-k80 --design SC-X", 2, `invalid --design "SC-X": want SC-B, SC-OB-naive, SC-OB, SC-OBR, WFBP or TF`},
		{"--profile alexnet-k80 --design SC-B --designs all,SC-B", 2, "invalid --designs"},
		{"--profile alexnet-k80 --design SC-B --designs all", 2, "--design and --designs cannot be used together"},
		{"--profile alexnet-k80 --systems mxnet", 2, `invalid --systems "mxnet": want caffe+ps, caffe+wfbp,`},
		{"--profile alexnet-k80 --systems auto --scheme ps", 2, "--systems and --scheme cannot be used together"},
		{"--profile alexnet-k80 --systems auto --designs all", 2, "--systems and --designs cannot be used together"},
		{"--profile alexnet-k80 --trace x --systems auto,poseidon", 2, "--trace needs a single design"},
		{"--profile alexnet-k80 --aggregate sum", 2, `invalid --aggregate "sum": want auto, poseidon, reduce,`},
		{"--profile alexnet-k80 --size-scale 0.001 --scheme conv1=sfb", 1, `layer "conv1" (Convolution) cannot: only InnerProduct layers have sufficient factors`},
		{"--profile alexnet-k80 --size-scale 0.001 --scheme fc9=ps", 1, "scheme fc9=ps: no layer with parameters has such a name; there are conv1, "},
		{"--profile alexnet-k80 --ratio 1 --compute-scale 2", 2, "--ratio and --compute-scale cannot be used together"},
		{"--profile alexnet-k80 --size-scale 2", 2, "--size-scale: invalid factor 2 of sizes"},
		{"--profile alexnet-k80 --compute-scale -1", 2, "--compute-scale must be at least 0 (got -1)"},
		{"--profile alexnet-k80 --straggler 1", 2, `invalid --straggler "1": want RANK:FACTOR`},
		{"--profile alexnet-k80 --trace x --designs all", 2, "--trace needs a single design"},
		{"--profile alexnet-k80 --format xml", 2, `invalid --format "xml": want text, csv or json`},
		{"--profile alexnet-k80 --algorithm tree", 2, `invalid --algorithm "tree"`},
		{"--profile alexnet-k80 --slice 0", 2, `invalid --slice "0": want at least 1024 elements, such as 50000, or auto, or layer to cut nothing`},
		{"--profile alexnet-k80 --slice 50000 --pair 2M", 2, "--slice and --pair cannot be used together"},
		{"--profile alexnet-k80 --placement odd", 2, `invalid --placement "odd": want even, round-robin, kvstore or tensor`},
		{"--profile alexnet-k80 --placement kvstore --scheme reduce", 2, "--placement is of servers, which --scheme reduce has not: use --scheme ps"},
		{"--profile alexnet-k80 --pull later", 2, `invalid --pull "later": want broadcast or request`},
		{"--profile alexnet-k80 --pull request --scheme allreduce", 2, "--pull is of servers, which --scheme allreduce has not: use --scheme ps"},
		{"--profile alexnet-k80 --credit 0", 2, `invalid --credit "0": want a number of messages, such as 4, or off to bind each link by itself`},
		{"--profile alexnet-k80 --bucket 1X", 2, `invalid --bucket "1X": want a size such as 256K or 4M, or auto`},
		{"--profile alexnet-k80 --size-scale 0.001 --ratio 1", 1, "a ratio of communication to computation needs at least 2 ranks"},
		{"--profile alexnet-k80 --size-scale 0.001 --straggler 3:2", 1, "must be less than the number of ranks (got 3 of 1)"},
	} {
		r := command(t, dir, scaffe, append([]string{"replay"}, strings.Fields(c.args)...)...)
		if r.code != c.code || !strings.Contains(r.stderr, c.want) || r.stdout != "" {
			t.Errorf("%s: status %d, %q, %s; want status %d and %s", c.args, r.code, r.stdout, r.stderr, c.code, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "x")); err == nil {
		t.Error("a timeline was written")
	}
}

// TestReplayWithFewTags: 160 buckets under way together between two
// processes, whose messages through MPI are told apart with next to no tags.
func TestReplayWithFewTags(t *testing.T) {
	long(t)
	run := mpirun(t)
	t.Setenv("SCAFFE_SHM", "off")
	t.Setenv("SCAFFE_TAG_BOUND", "3")
	r := command(t, t.TempDir(), run, "-np", "2", scaffe, "replay", "--profile", "resnet152-k80", "--size-scale", "0.1", "--bucket", "1K", "--scheme", "reduce", "--designs", "SC-OBR",
		"--check", "--compute-scale", "0.01", "--iterations", "1", "--warmup", "0")
	if r.code != 0 || !strings.Contains(r.stdout, "SC-OBR") {
		t.Errorf("status %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	t.Setenv("SCAFFE_TAG_BOUND", "none")
	if r := command(t, t.TempDir(), run, "-np", "1", scaffe, "replay", "--profile", "resnet152-k80"); r.code == 0 || !strings.Contains(r.stderr, `invalid SCAFFE_TAG_BOUND="none"`) {
		t.Errorf("a bound that is no number: status %d\n%s", r.code, r.stderr)
	}
}
