package omb

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/mem"
)

// rowOf is a row with numbers that tell its columns apart.
func rowOf(p Program, size int, algorithm string) Row {
	row := Row{
		Program: p.Name, Asked: "tuned", Algorithm: algorithm, Size: size, Datatype: "MPI_CHAR", Ranks: 4, Buffers: "unregistered", Iterations: 100,
		Avg: 12.345, Min: 1.5, Max: 23.1, Time: Interval{Median: 20, Low: 19, High: 21, Certain: true}, Algbw: 3, Busbw: 4.5, Ratio: 1, Verdict: First, Bandwidth: 789.125,
	}
	if p.is(nonblocking) {
		row.Overlap = &Overlap{Overall: 12.345, Compute: 10, Begin: 1, Test: 2, Wait: 3, Pure: 9, MinComm: 8, MaxComm: 11, Percent: 73.94}
	}
	return row
}

func table(t *testing.T, name string, opts Options, sizes ...int) string {
	t.Helper()
	p := program(t, name)
	ran := make([]servedBy, len(sizes))
	for i, size := range sizes {
		ran[i] = servedBy{size, []string{"binomial", "binomial", "chain,chunk=256K"}[i]}
	}
	var b bytes.Buffer
	w := &ombWriter{to: &b, program: p, opts: &opts}
	w.begin(mpiTypes[0], ran)
	for i, size := range sizes {
		row := rowOf(p, size, ran[i].algorithm)
		row.validated = opts.Validate
		row.Wrong = i / 2
		for _, p := range opts.Percentiles {
			row.Percentiles = append(row.Percentiles, Percentile{p, float64(p) + 0.25})
		}
		w.rows([]Row{row})
	}
	return b.String()
}

// The tables are those of OMB 7.4, byte for byte, but for the line that says
// which algorithm ran. It stands above the header: scripts find their columns
// by the header, and skip as many lines below it as OMB has there, none.
func TestTables(t *testing.T) {
	const ran = "# Algorithm: binomial (1-1024), chain,chunk=256K (1048576)\n"
	for _, c := range []struct {
		program string
		opts    Options
		want    string
	}{
		{"osu_reduce", Options{}, `
# OSU MPI Reduce Latency Test v7.4
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)
1                      12.35
1024                   12.35
1048576                12.35
`},
		{"osu_allreduce", Options{Full: true, Validate: true, Percentiles: []int{5, 99}}, `
# OSU MPI Allreduce Latency Test v7.4
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations        Validation   P5 Tail Lat(us)  P99 Tail Lat(us)
1                      12.35              1.50             23.10         100              Pass              5.25             99.25
1024                   12.35              1.50             23.10         100              Pass              5.25             99.25
1048576                12.35              1.50             23.10         100              Fail              5.25             99.25
`},
		{"osu_iallreduce", Options{}, `
# OSU MPI Non-blocking Allreduce Latency Test v7.4
# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait

# Datatype: MPI_CHAR.
# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)
1                      12.35             10.00              9.00             73.94
1024                   12.35             10.00              9.00             73.94
1048576                12.35             10.00              9.00             73.94
`},
		{"osu_allgather", Options{}, `
# OSU MPI Allgather Latency Test v7.4
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)
1                      12.35
1024                   12.35
1048576                12.35
`},
		{"osu_reduce_scatter", Options{}, `
# OSU MPI Reduce_scatter Latency Test v7.4
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)
1                      12.35
1024                   12.35
1048576                12.35
`},
		{"osu_ibcast", Options{Full: true}, `
# OSU MPI Non-Blocking Broadcast Latency Test v7.4
# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait

# Datatype: MPI_CHAR.
# Size           Overall(us)       Compute(us)    Coll. Init(us)      MPI_Test(us)      MPI_Wait(us)    Pure Comm.(us)     Min Comm.(us)     Max Comm.(us)        Overlap(%)
1                      12.35             10.00              1.00              2.00              3.00              9.00              8.00             11.00             73.94
1024                   12.35             10.00              1.00              2.00              3.00              9.00              8.00             11.00             73.94
1048576                12.35             10.00              1.00              2.00              3.00              9.00              8.00             11.00             73.94
`},
		{"osu_barrier", Options{}, `
# OSU MPI Barrier Latency Test v7.4
# Avg Latency(us)
            12.35
`},
		{"osu_barrier", Options{Full: true}, `
# OSU MPI Barrier Latency Test v7.4
# Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
            12.35              1.50             23.10         100
`},
		{"osu_bw", Options{Percentiles: []int{50, 100}}, `
# OSU MPI Bandwidth Test v7.4
# Datatype: MPI_CHAR.
# Size      Bandwidth (MB/s) P50 Tail BW(MB/s) P100 Tail BW(MB/s)
1                     789.12             50.25            100.25
1024                  789.12             50.25            100.25
1048576               789.12             50.25            100.25
`},
	} {
		sizes, ran, next := []int{1, 1024, 1048576}, ran, "# Datatype"
		if program(t, c.program).is(barrier) {
			sizes, ran, next = []int{0}, "# Algorithm: binomial\n", "# Avg"
		}
		got := table(t, c.program, c.opts, sizes...)
		if !strings.Contains(got, ran+next) {
			t.Errorf("%s: no line %q in\n%s", c.program, ran, got)
		}
		if d := cmp.Diff(c.want, strings.Replace(got, ran, "", 1)); d != "" {
			t.Errorf("%s:\n%s", c.program, d)
		}
	}
}

func TestRanges(t *testing.T) {
	for _, c := range []struct {
		ran  []servedBy
		want string
	}{
		{[]servedBy{{4, "chain"}}, "chain"},
		{[]servedBy{{4, "chain"}, {8, "chain"}}, "chain"},
		{[]servedBy{{4, "mpi"}, {8, "chain"}}, "mpi (4), chain (8)"},
		{[]servedBy{{4, "mpi"}, {8, "mpi"}, {16, "chain"}, {32, "mpi"}}, "mpi (4-8), chain (16), mpi (32)"},
	} {
		if got := ranges(c.ran); got != c.want {
			t.Errorf("%v: %q, want %q", c.ran, got, c.want)
		}
	}
}

// awk parses a table as scripts do: lines that begin with # or hold nothing
// are skipped, columns end at blanks.
func awk(text string) [][]string {
	var rows [][]string
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 0 && !strings.HasPrefix(f[0], "#") {
			rows = append(rows, f)
		}
	}
	return rows
}

func TestScriptsCanParse(t *testing.T) {
	for _, p := range Programs {
		if p.is(barrier) {
			continue // it has no sizes, and its table is in TestTables
		}
		for _, opts := range []Options{{}, {Full: true}, {Full: true, Validate: true, Percentiles: []int{50, 99}}} {
			opts.Full = opts.Full && p.is(collective|local) // the others have no -f
			text := table(t, p.Name, opts, 1, 1024)
			rows := awk(text)
			columns := 1 + len((&ombWriter{program: p, opts: &opts}).columns())
			if len(rows) != 2 || len(rows[0]) != columns || len(rows[1]) != columns {
				t.Fatalf("%s: parsed as %q, want two rows of %d columns\n%s", p.Name, rows, columns, text)
			}
			if rows[1][0] != "1024" {
				t.Errorf("%s: the first column is %s", p.Name, rows[1][0])
			}
			if _, err := strconv.ParseFloat(rows[1][1], 64); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
		}
	}
}

func compared() (*runner, []Row) {
	p, _ := Find("osu_allreduce")
	r := &runner{program: p, opts: Options{}, subjects: []subject{&mpiSubject{}, &specSubject{name: "tuned"}, &specSubject{name: "ring"}}}
	rows := []Row{rowOf(p, 4096, "mpi"), rowOf(p, 4096, "chain:2/binomial"), rowOf(p, 4096, "ring")}
	rows[1].Time = Interval{Median: 10, Low: 9.5, High: 10.5, Certain: true}
	rows[2].Time = Interval{Median: 20.5, Low: 19.5, High: 22, Certain: true}
	judge(rows)
	return r, rows
}

func TestComparison(t *testing.T) {
	r, rows := compared()
	var b bytes.Buffer
	w := &compareWriter{to: &b, run: r, begun: true}
	w.begin(Type{"f32", mem.Float32}, nil)
	w.rows(rows)
	got := awk(b.String())
	want := [][]string{{
		"4096", "20.00", "19.00-21.00", "3.00", "4.50",
		"10.00", "9.50-10.50", "3.00", "4.50", "0.500", "chain:2/binomial",
		"20.50", "19.50-22.00", "3.00", "4.50", "same",
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	lines := strings.Split(b.String(), "\n")
	names := strings.Fields(strings.TrimPrefix(lines[2], "#"))
	if len(names) != len(want[0]) {
		t.Errorf("%d names for %d columns: %q", len(names), len(want[0]), names)
	}
	if f := strings.Fields(lines[1]); !cmp.Equal(f, []string{"#", "mpi", "tuned", "ring"}) {
		t.Errorf("groups %q", f)
	}
}

func TestJSONAndCSV(t *testing.T) {
	_, rows := compared()
	rows[1].Time.Certain = false
	rows[2].validated = true
	var b bytes.Buffer
	newStreamWriter(&b, report.JSON, nil).rows(rows)
	d := json.NewDecoder(&b)
	for i := range rows {
		var got map[string]any
		if err := d.Decode(&got); err != nil {
			t.Fatal(err)
		}
		low, wrong := got["time_low_us"] != nil, got["wrong"] != nil
		if _, is := got["overlap_percent"]; !is {
			t.Error("a key is left out where its value is missing")
		}
		if got["algorithm"] != rows[i].Algorithm || got["verdict"] != string(rows[i].Verdict) || low != rows[i].Time.Certain || wrong != (i == 2) || got["size"] != 4096.0 {
			t.Errorf("row %d: %v", i, got)
		}
	}
	w := newStreamWriter(&b, report.CSV, nil)
	w.rows(rows)
	w.rows(rows)
	lines, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(lines) != 7 || lines[0][0] != "program" {
		t.Fatalf("%v, %v", lines, err)
	}
	column := map[string]int{}
	for i, n := range lines[0] {
		column[n] = i
	}
	if lines[2][column["algorithm"]] != "chain:2/binomial" || lines[2][column["time_low_us"]] != "" || lines[3][column["verdict"]] != "same" {
		t.Error(lines)
	}
}
