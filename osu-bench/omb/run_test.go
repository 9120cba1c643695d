package omb

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/internal/ranktest"
)

// ranIt runs a program in this process and returns its rows.
func ranIt(t *testing.T, name, line string) [][]string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if err := Run(context.Background(), program(t, name), strings.Fields(line), &stdout, &stderr); err != nil {
		t.Fatalf("%s %s: %v", name, line, err)
	}
	if stderr.Len() > 0 {
		t.Errorf("%s %s said %q", name, line, &stderr)
	}
	return awk(stdout.String())
}

// Every program runs with two ranks, validates, and prints a row for every
// size.
func TestProgramsLocal(t *testing.T) {
	for _, p := range Programs {
		if p.is(barrier) {
			continue // TestBarrierLocal
		}
		sizes := []string{"64", "128", "256", "512", "1024", "2048", "4096", "8192", "16384"}
		for _, line := range []string{"", "-T mpi_float --buffers heap -z"} {
			rows := ranIt(t, p.Name, "--local 2 -c -i 4 -x 1 -m 64:16K "+line)
			if len(rows) != len(sizes) {
				t.Fatalf("%s: %d rows: %q", p.Name, len(rows), rows)
			}
			for i, row := range rows {
				valid := row[len(row)-1]
				if line != "" {
					valid = row[len(row)-4] // percentiles come after it
				}
				if row[0] != sizes[i] || valid != "Pass" {
					t.Errorf("%s: row %q", p.Name, row)
				}
			}
		}
	}
}

// A barrier has no size and no datatype, but all other columns.
func TestBarrierLocal(t *testing.T) {
	for line, columns := range map[string]int{"": 1, "-f -z50,99": 6} {
		rows := ranIt(t, "osu_barrier", "--local 3 -i 70 -x 3 "+line)
		if len(rows) != 1 || len(rows[0]) != columns {
			t.Errorf("%q: rows %q", line, rows)
		}
	}
	rows := ranIt(t, "osu_barrier", "--local 3 -i 20 --algorithm tuned,linear,chain")
	if len(rows) != 1 || rows[0][0] != "0" {
		t.Errorf("rows %q", rows)
	}
}

// Collectives with every root, in place, persistent, in other types.
func TestCollectivesLocal(t *testing.T) {
	for _, c := range []struct{ name, line string }{
		{"osu_reduce", "-k rotate"},
		{"osu_reduce", "-k fixed:2 -l --persistent"},
		{"osu_ireduce", "-k rotate -l -t 3"},
		{"osu_allgather", "-l --persistent -T f16"},
		{"osu_reduce_scatter", "--persistent -T f16"},
		{"osu_reduce_scatter", "--algorithm linear,ring,direct -T u8 -m 1:64"},
		{"osu_ireduce_scatter", "-t 3 --algorithm binomial"},
		{"osu_iallgather", "-l -t 3 --algorithm linear"},
		{"osu_alltoall", "--persistent -T f16 --algorithm tuned,linear,direct,chunk=1K"},
		{"osu_ialltoall", "-t 3"},
		{"osu_ireduce", "-k rotate --persistent --compute wait"},
		{"osu_bcast", "-k rotate --persistent"},
		{"osu_ibcast", "-k rotate"},
		{"osu_allreduce", "-l -T all -T bf16 -T f16 -T i64"},
		{"osu_iallreduce", "-l -T f64 --compute wait --compute-scale 2 -f"},
		{"osu_allreduce", "--algorithm linear,chain,chunk=1K,ring"},
	} {
		for _, row := range ranIt(t, c.name, "--local 3 -c -i 6 -x 2 -m 8:4K "+c.line) {
			if line := strings.Join(row, " "); strings.Contains(line, "Fail") || !strings.Contains(line, "Pass") {
				t.Errorf("%s %s: %s", c.name, c.line, line)
			}
		}
	}
}

// The smallest latency is that of no bytes, as in OMB.
func TestLatencyOfNothing(t *testing.T) {
	for _, sizes := range []string{":2", "0:2"} {
		rows := ranIt(t, "osu_latency", "--local 2 -i 4 -x 1 -m "+sizes)
		if len(rows) != 3 || rows[0][0] != "0" || rows[2][0] != "2" {
			t.Errorf("-m %s: rows %q", sizes, rows)
		}
	}
}

// In JSON every row says what ran; tuned is what the communicator selects.
func TestRowsSayWhatRan(t *testing.T) {
	var stdout, stderr bytes.Buffer
	err := Run(context.Background(), program(t, "osu_bcast"),
		strings.Fields("--local 3 -i 8 -x 0 -m 1:1M --algorithm CB-2,tuned --format json"), &stdout, &stderr)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for d := json.NewDecoder(&stdout); d.More(); n++ {
		var row map[string]any
		if err := d.Decode(&row); err != nil {
			t.Fatal(err)
		}
		ran, asked := row["algorithm"], row["asked"]
		if asked == "CB-2" && ran != "chain:2/binomial" || asked == "tuned" && (ran == "tuned" || ran == "") {
			t.Errorf("asked for %v, ran %v", asked, ran)
		}
		if row["verdict"] != "first" != (asked == "tuned") || row["iterations"] != 8.0 || row["ranks"] != 3.0 {
			t.Errorf("row %v", row)
		}
	}
	if n != 2*21 {
		t.Errorf("%d rows", n)
	}
}

// What a tuning run would measure, compared with what is selected.
func TestCandidates(t *testing.T) {
	var stdout, stderr bytes.Buffer
	err := Run(context.Background(), program(t, "osu_allreduce"),
		strings.Fields("--local 3 -i 6 -x 0 -m 4:64K --factor 128 -T mpi_float --algorithm tuned,binomial,candidates --format json"), &stdout, &stderr)
	if err != nil {
		t.Fatal(err)
	}
	specs := map[float64]map[string]bool{}
	for d := json.NewDecoder(&stdout); d.More(); {
		var row struct {
			Size      float64
			Asked     string
			Predicted float64 `json:"predicted_us"`
		}
		if err := d.Decode(&row); err != nil {
			t.Fatal(err)
		}
		of := specs[row.Size]
		if of == nil {
			of = map[string]bool{}
			specs[row.Size] = of
		}
		if of[row.Asked] || !(row.Predicted > 0) {
			t.Errorf("%v: measured twice, or not predicted", row)
		}
		of[row.Asked] = true
	}
	if len(specs) != 3 || !specs[4]["tuned"] || !specs[4]["binomial"] || len(specs[64<<10]) < 4 {
		t.Errorf("specs %v", specs)
	}
}

func TestRunErrors(t *testing.T) {
	for _, c := range []struct{ name, line, says string }{
		{"osu_reduce", "--local 1", "needs at least 2 ranks"},
		{"osu_latency", "--local 3", "needs exactly 2 ranks (got 3)"},
		{"osu_reduce", "--local 2 -k fixed:2", "the root must be less than the number of ranks (2)"},
		{"osu_reduce", "--local 2 --algorithm mpi", "no MPI library to measure"},
		{"osu_reduce", "--local 2 --barrier mpi", "no MPI library to measure"},
		{"osu_reduce", "--local 2 --algorithm chian", "unknown algorithm"},
		{"osu_bw", "--local 2 --algorithm chain", "want scaffe or mpi"},
		{"osu_reduce_local", "--local 2 --algorithm sse", "want best, mpi, or a path"},
		{"osu_reduce", "--local 2 -i", "-i needs N"},
		{"osu_bcast", "--local 2 --algorithm candidates", "put an algorithm before it"},
		{"osu_bcast", "--local 2 --algorithm tuned,candidates", "only --format csv and json"},
		{"osu_barrier", "--local 2 -m 8", "-m"},
		{"osu_barrier", "--local 2 --algorithm mpi", "no MPI library to measure"},
	} {
		var stdout, stderr bytes.Buffer
		err := Run(context.Background(), program(t, c.name), strings.Fields(c.line), &stdout, &stderr)
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s %s: got %v, want an error that says %q", c.name, c.line, err, c.says)
		}
		if stdout.Len() > 0 {
			t.Errorf("%s %s printed %q", c.name, c.line, &stdout)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	for line, says := range map[string]string{"-h": "--message-size", "-v": "# OSU MPI Reduce Latency Test v7.4"} {
		var stdout, stderr bytes.Buffer
		if err := Run(context.Background(), program(t, "osu_reduce"), []string{line}, &stdout, &stderr); err != nil {
			t.Error(err)
		}
		if !strings.Contains(stdout.String(), says) {
			t.Errorf("%s printed %q", line, &stdout)
		}
	}
}

// The largest message is bounded by -M, and that is said.
func TestMemLimit(t *testing.T) {
	var stdout, stderr bytes.Buffer
	err := Run(context.Background(), program(t, "osu_bcast"), strings.Fields("--local 2 -i 1 -x 0 -m 1M:8M -M 2M"), &stdout, &stderr)
	if err != nil {
		t.Fatal(err)
	}
	if rows := awk(stdout.String()); len(rows) != 2 || rows[1][0] != strconv.Itoa(2<<20) {
		t.Errorf("rows %q", rows)
	}
	if !strings.Contains(stderr.String(), "2097152 bytes; raise the limit with -M") {
		t.Errorf("stderr %q", &stderr)
	}
}

// The programs as a user runs them, under mpirun, beside the MPI library's
// own.
func TestProgramsMPI(t *testing.T) {
	dir, mpi := ranktest.Programs(t), os.Getenv("SCAFFE_MPI_DIR")
	for _, p := range Programs {
		ours := "tuned"
		switch {
		case p.is(local):
			ours = "best,portable"
		case p.is(latency | bandwidth):
			ours = "scaffe"
		}
		if p.is(barrier) {
			checkMPI(t, p, true, 1, filepath.Join(mpi, "bin", "mpirun"), []string{"-np", "2", filepath.Join(dir, p.Name), "--algorithm", "mpi,tuned", "--format", "json"})
			continue
		}
		const sizes = 17
		args := []string{"-np", "2", filepath.Join(dir, p.Name), "-c", "-i", "7", "-x", "2", "-m", "4:256K", "-T", "mpi_float"}
		run := filepath.Join(mpi, "bin", "mpirun")
		checkMPI(t, p, true, sizes, run, append(args[:len(args):len(args)], "--algorithm", "mpi,"+ours, "--format", "json"))
		if p.Name == "osu_reduce" || p.Name == "osu_ibcast" {
			checkMPI(t, p, false, sizes, run, args)
		}
	}
}

// checkMPI runs a command and looks at its rows.
func checkMPI(t *testing.T, p Program, asJSON bool, sizes int, name string, args []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, &stdout, &stderr)
	}
	if !asJSON {
		rows := awk(stdout.String())
		if len(rows) != sizes {
			t.Errorf("%s: %d rows\n%s", p.Name, len(rows), &stdout)
		}
		for _, row := range rows {
			if row[len(row)-1] != "Pass" {
				t.Errorf("%s: %q", p.Name, row)
			}
		}
		return
	}
	seen := map[string]int{}
	for d := json.NewDecoder(&stdout); d.More(); {
		var row map[string]any
		if err := d.Decode(&row); err != nil {
			t.Fatal(err)
		}
		seen[fmt.Sprint(row["asked"])]++
		want := any(0.0)
		if p.is(barrier) {
			want = nil
		}
		if row["wrong"] != want || row["ranks"] != 2.0 {
			t.Errorf("%s: %v", p.Name, row)
		}
	}
	if seen["mpi"] != sizes || len(seen) < 2 {
		t.Errorf("%s: rows of %v", p.Name, seen)
	}
}

// The yardstick in C checks its own results before it times anything.
func TestFloorMPI(t *testing.T) {
	mpi, mpicc := os.Getenv("SCAFFE_MPI_DIR"), os.Getenv("SCAFFE_MPICC")
	if mpi == "" || mpicc == "" {
		t.Skip("no MPI: run `make test-mpi`")
	}
	floor := filepath.Join(t.TempDir(), "floor")
	if out, err := exec.Command(mpicc, "-std=c11", "-Wall", "-Wextra", "-Werror", "-O3", "-march=native", "-o", floor, "../floor/floor.c", "-lm").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, ranks := range []string{"2", "3", "5"} {
		// Sizes that the ranks cannot divide evenly, and more than one piece.
		cmd := exec.Command(filepath.Join(mpi, "bin", "mpirun"), "-np", ranks, floor, "-m", "4:256K", "--factor", "32", "-i", "3", "-x", "1", "-f", "--format", "json")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s ranks: %v\n%s%s", ranks, err, out, &stderr)
		}
		seen := map[string]int{}
		for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
			var row map[string]any
			if err := d.Decode(&row); err != nil {
				t.Fatal(err)
			}
			seen[fmt.Sprint(row["program"])]++
		}
		if seen["floor_reduce"] == 0 || seen["floor_allreduce"] != seen["floor_reduce"] || seen["floor_bcast"] < seen["floor_reduce"] {
			t.Errorf("%s ranks: rows %v", ranks, seen)
		}
	}
}
