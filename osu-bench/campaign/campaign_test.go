package campaign

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scaffe/scaffe/internal/host"
)

func TestParseLayouts(t *testing.T) {
	got, err := ParseLayouts("2,8,4x1,3x2")
	if d := cmp.Diff([]Layout{{1, 2}, {1, 8}, {4, 1}, {3, 2}}, got); d != "" || err != nil {
		t.Error(err, d)
	}
	for _, s := range []string{"", "1", "x", "4x", "0x2", "2,,4", "1x1", "2 4"} {
		if _, err := ParseLayouts(s); err == nil {
			t.Errorf("%q is a layout", s)
		}
	}
	for _, s := range []string{"", "reduce,", "scatter"} {
		if _, err := ParseCollectives(s); err == nil {
			t.Errorf("%q are collectives", s)
		}
	}
}

// Every size is in one band, and no interval is asked of fewer than six repetitions.
func TestBands(t *testing.T) {
	for _, c := range []Config{{Min: 4, Max: 64 << 20, Factor: 4}, {Min: 4, Max: 64 << 20, Factor: 4, Quick: true}, {Min: 8 << 20, Max: 8 << 20, Factor: 2}} {
		for _, l := range []Layout{{1, 2}, {1, 8}, {4, 2}} {
			var sizes []int
			for _, b := range c.bands("reduce", l, 2, 0) {
				sizes = append(sizes, b.sizes...)
				if b.often < 6 {
					t.Errorf("%+v, %v: %d repetitions", c, l, b.often)
				}
			}
			if d := cmp.Diff(c.sizes(0, atAll), sizes); d != "" {
				t.Errorf("%+v: %s", c, d)
			}
		}
		if b := c.bands("barrier", Layout{1, 2}, 2, 0); len(b) != 1 || len(b[0].sizes) != 1 || b[0].sizes[0] != 0 {
			t.Errorf("a barrier's bands are %v", b)
		}
	}
}

func row(job, collective string, l Layout, size int, asked string, time float64) Row {
	return Row{
		Job: job, Collective: collective, Nodes: l.Nodes, Ranks: l.Ranks(), Size: size, Buffers: "registered", Asked: asked, Algorithm: asked,
		Time: time, Low: time * 0.9, High: time * 1.1, Predicted: time * 2, Iterations: 7, Machine: "a processor, 2 cores", MPI: "MPI 1.0", Version: "devel",
	}
}

func TestRowsComeBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.csv")
	want := []Row{
		row("regret", "reduce", Layout{4, 2}, 1<<20, "direct,chunk=1M/chain", 12.5),
		{Job: "ucc", Collective: "barrier", Nodes: 1, Ranks: 2, Buffers: "unregistered", Asked: "ucc", Algorithm: "ucc", Time: 0.28, Version: "v1"},
	}
	want[0].High = 13.75
	if err := write(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := read(path)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(err, d)
	}
	if rows, err := read(filepath.Join(t.TempDir(), "none.csv")); err != nil || len(rows) != 0 {
		t.Errorf("a file that is not there: %v, %v", rows, err)
	}
	for _, text := range []string{"a,b\n1,2\n", "\"", strings.Replace(csvOf(t, want), "12.5", "twelve", 1)} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := read(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

func csvOf(t *testing.T, rows []Row) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows.csv")
	if err := write(path, rows); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestRegrets(t *testing.T) {
	one, lab := Layout{1, 2}, Layout{4, 1}
	twin := row(regretJob, "allreduce", lab, 16, "tuned", 5)
	twin.Algorithm = "ring"
	c := &campaign{rows: []Row{
		row(regretJob, "reduce", one, 4, "tuned", 2), row(regretJob, "reduce", one, 4, "mpi", 1), row(regretJob, "reduce", one, 4, "chain", 3),
		row(regretJob, "reduce", one, 16, "tuned", 2), row(regretJob, "reduce", one, 16, "mpi", 5),
		row(regretJob, "bcast", lab, 16, "tuned", 3), row(regretJob, "bcast", lab, 16, "ring", 2.9),
		twin, row(regretJob, "allreduce", lab, 16, "ring", 3), row(regretJob, "allreduce", lab, 16, "chain", 4.5),
		row(regretJob, "bcast", lab, 64, "ring", 2.9), // interrupted before tuned
		row("registered", "bcast", lab, 256, "tuned", 7),
	}}
	all := regrets(c.rows)
	var got []string
	for _, r := range all {
		got = append(got, r.tuned.Collective+" "+r.best.Asked)
	}
	if d := cmp.Diff([]string{"reduce mpi", "reduce tuned", "bcast ring", "allreduce tuned"}, got); d != "" {
		t.Fatal(d)
	}
	if r := all[0]; r.ratio() != 2 || r.certain() < 1.6 || r.certain() > 1.7 {
		t.Errorf("regret %v, certain %v", r.ratio(), r.certain())
	}
	if r := all[2]; r.certain() != 1 {
		t.Errorf("a regret within the intervals is certain: %v", r.certain())
	}
	if r := all[3]; r.tuned.Time != 4 || r.ratio() != 1 {
		t.Errorf("of the same spec twice, %v µs count, and a regret of %v", r.tuned.Time, r.ratio())
	}
	if s := strings.Join(c.summary(all), "\n"); !strings.Contains(s, "4 cells: median 1.017, worst 2.000") || !strings.Contains(s, "regret of 2 ranks, 2 cells: median 1.500") || !strings.Contains(s, "factor of 2.00 in the median") {
		t.Error(s)
	}
}

func TestCells(t *testing.T) {
	one, lab := Layout{1, 2}, Layout{4, 2}
	c := &campaign{Config: Config{Min: 4, Max: 16, Factor: 4, Collectives: []string{"allreduce"}}, cores: 2, rows: []Row{
		row(registered, "allreduce", one, 4, "tuned", 2), row(registered, "allreduce", one, 4, "mpi", 4), row(unregistered, "allreduce", one, 4, "tuned", 6),
		row("library allreduce_algorithm=4", "allreduce", one, 4, "mpi", 3), row("library allreduce_algorithm=4", "allreduce", one, 4, "tuned", 99),
		row("floor", "allreduce", one, 4, "floor", 0.5), row("ucc", "allreduce", one, 4, "ucc", 1.5),
		row("wire", "latency", Layout{4, 1}, 4, "mpi", 30), row("wire", "bw", Layout{4, 1}, wireBytes, "mpi", 8192),
		row(registered, "allreduce", lab, 16, "tuned", 60),
	}}
	cells := c.cells([]Layout{one, lab})
	if len(cells) != 2 {
		t.Fatalf("%d cells", len(cells))
	}
	x := cells[0]
	if x.tuned.Time != 2 || x.library.Time != 4 || x.best.Time != 3 || x.ucc.Time != 1.5 || x.unregistered.Time != 6 || x.limit != 0.5 {
		t.Errorf("%+v", x)
	}
	if want := 30 + 1.5*16/float64(wireBytes)*8192; cells[1].limit != want {
		t.Errorf("the wire's limit is %v, want %v", cells[1].limit, want)
	}
	picture := draw(cells, "<a machine>")
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, picture)
		}
	}
	for _, has := range []string{"allreduce, 2 ranks", "allreduce, 4 × 2", "class=\"ucc\"", "&lt;a machine&gt;"} {
		if !strings.Contains(picture, has) {
			t.Errorf("the picture has no %q", has)
		}
	}
}

// A campaign over stand-ins for mpirun and the programs: what fails is reported and tried
// again, what is there is not measured twice.
func TestCampaignGoesOn(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "started")
	script := `#!/bin/sh
echo "$@" >>` + log + `
case "$*" in
*osu_bcast*) [ -e ` + dir + `/well ] || { echo "no such luck" >&2; exit 3; } ;;
esac
case "$*" in *4096:*|*64:*) ;; *) exit 4 ;; esac
for size in 64 4096; do
  for asked in tuned mpi ring; do
    echo '{"size":'$size',"asked":"'$asked'","algorithm":"'$asked'","iterations":9,"machine":"m","mpi":"M","time_us":'${#asked}',"time_low_us":null,"time_high_us":null,"predicted_us":7}'
  done
done
`
	if err := os.WriteFile(filepath.Join(dir, "mpirun"), []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("SCAFFE_MPI_DIR", "/nowhere/openmpi")
	config := Config{Layouts: []Layout{{1, 3}}, Collectives: []string{"barrier", "reduce", "bcast"}, Min: 64, Max: 4096, Factor: 64, Out: filepath.Join(dir, "regret.csv")}
	var stdout, stderr bytes.Buffer
	err := Regret(context.Background(), config, dir, &stdout, &stderr)
	if err == nil || !strings.Contains(err.Error(), "1 runs failed") || !strings.Contains(stderr.String(), "no such luck") {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	if !strings.Contains(stdout.String(), "regret of 2 cells: median 1.667, worst 1.667") {
		t.Errorf("stdout %s", &stdout)
	}
	if err := os.WriteFile(filepath.Join(dir, "well"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	stdout.Reset()
	if err := Regret(context.Background(), config, dir, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(stdout.String(), "regret of 4 cells") {
		t.Errorf("stdout %s", &stdout)
	}
	started, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(started), "osu_reduce"); got != 1 {
		t.Errorf("osu_reduce was started %d times:\n%s", got, started)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "regret-cells.csv")); err != nil || strings.Count(string(data), "\n") != 5 {
		t.Errorf("%v\n%s", err, data)
	}
}

// Ranks that share cores meet in the barrier that sleeps, as the lab's do however
// many cores each node believes to have.
func TestBarrierOfTheLab(t *testing.T) {
	c := &campaign{}
	for _, l := range []Layout{{1, 2}, {2, host.Cores()}} {
		args := c.osu("x", "bcast", l, "registered", band{sizes: []int{4}}, "mpi").command(4)
		if got := slices.Contains(args, "--barrier"); got != (l.Nodes > 1) {
			t.Errorf("%v: %v", l, args)
		}
	}
}

// ucc_perftest's table, as it prints it.
func TestReadUCC(t *testing.T) {
	j := &job{name: "ucc", collective: "allreduce", layout: Layout{1, 2}}
	rows, err := readUCC(j, `Collective:             Allreduce
  small                 1000

       Count        Size                Time, us                       Bus Bandwidth, GB/s
                                 avg         min         max         avg         max         min
           1           4        0.35        0.30        0.39        0.01        0.01        0.01
        1024        4096        2.48        2.44        2.53        1.65        1.68        1.62
Total time: 25.0589 ms
`)
	if err != nil || len(rows) != 2 || rows[1].Size != 4096 || rows[1].Time != 2.53 || rows[1].Ranks != 2 {
		t.Errorf("%v %+v", err, rows)
	}
	j.collective = "barrier"
	if rows, err = readUCC(j, "         N/A         N/A        0.28        0.23        0.32\n"); err != nil || len(rows) != 1 || rows[0].Time != 0.32 {
		t.Errorf("%v %+v", err, rows)
	}
	if _, err = readUCC(j, "nothing\n"); err == nil {
		t.Error("no rows, and no error")
	}
}

// Settings say which library they are for.
func TestVariants(t *testing.T) {
	for _, l := range []string{"openmpi", "mpich"} {
		for _, c := range Collectives {
			few, every := variants(l, c, true), variants(l, c, false)
			if len(few) == 0 || len(few) > len(every) {
				t.Errorf("%s, %s: %d of %d", l, c, len(few), len(every))
			}
		}
	}
	if v := variants("another", "reduce", false); v != nil {
		t.Errorf("%v", v)
	}
}
