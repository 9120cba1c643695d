package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// quickTune is a sweep that is over at once.
var quickTune = []string{"tune", "--sizes", "4K:64K", "--iterations", "3", "--collectives", "reduce,allreduce", "--out", "t"}

// tune, its table's lint, and explain by that table; by arguments of any order.
func TestTuneAndExplain(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	r := command(t, dir, scaffe, append(quickTune, "--local", "3")...)
	if r.code != 0 || !strings.Contains(r.stderr, "wrote t and t.html") || !strings.Contains(r.stdout, "collective=reduce nodes=1 ppn=3") {
		t.Fatalf("tune ended with %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if r = command(t, dir, scaffe, "tune", "--lint", "t"); r.code != 0 || r.stdout != "t: no problems found\n" {
		t.Errorf("lint ended with %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	r = command(t, dir, scaffe, "explain", "reduce", "64M", "--local", "3", "--table", "t")
	if r.code != 0 || !strings.Contains(r.stdout, "decided by  t:") || strings.Contains(r.stderr, "warning") {
		t.Errorf("explain ended with %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	r = command(t, dir, scaffe, "explain", "--table", "t", "reduce", "64M", "--nodes=4", "--ppn", "2", "--buffers", "unregistered")
	if r.code != 0 || !strings.Contains(r.stdout, "built-in cost model") || !strings.Contains(r.stdout, "process_vm_readv") || !strings.Contains(r.stderr, "no line for 4 nodes × 2 ranks") {
		t.Errorf("explain ended with %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	write(t, dir, "bad", "scaffe-table 2\ncollective=reduce spec=ring\ncollective=bcast spec=tree\n")
	if r = command(t, dir, scaffe, "tune", "--lint", "bad"); r.code == 0 || !strings.Contains(r.stdout, "bad:2: ") || !strings.Contains(r.stdout, "bad:3: ") {
		t.Errorf("lint of a bad table ended with %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	t.Setenv("SCAFFE_ALGORITHM", "ring")
	if r = command(t, dir, scaffe, "explain", "reduce", "1M", "--nodes", "2"); r.code == 0 || !strings.Contains(r.stderr, "SCAFFE_ALGORITHM: spec ring is for allreduce, allgather and reduce_scatter") {
		t.Errorf("explain of what cannot be ended with %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if r = command(t, dir, scaffe, "explain", "allreduce", "1M", "--nodes", "2", "--algorithm", "CB-2"); r.code != 0 || !strings.Contains(r.stdout, "--algorithm asks for it") {
		t.Errorf("the flag does not come before the environment: %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if r = command(t, dir, scaffe, "explain", "reduce", "1M", "--nodes", "2", "--algorithm", "tuned"); r.code != 0 || !strings.Contains(r.stdout, "built-in cost model") {
		t.Errorf("--algorithm tuned does not come before the environment: %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// Ctrl-C keeps what was measured; the same command measures the rest.
func TestTuneInterrupted(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	long := []string{"tune", "--sizes", "4K:4M", "--iterations", "20000", "--budget", "100s", "--local", "3", "--out", "t"}
	var stderr bytes.Buffer
	cmd := exec.Command(scaffe, long...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "t.partial")); err == nil {
			break
		}
		if time.Now().After(until) {
			t.Fatal("nothing was kept")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(stderr.String(), "t.partial keeps what was measured") {
		t.Errorf("it ended with %v\n%s", err, &stderr)
	}
	r := command(t, dir, scaffe, "tune", "--sizes", "4K:4M", "--iterations", "3", "--budget", "100s", "--local", "3", "--out", "t")
	if r.code != 0 || !strings.Contains(r.stderr, "measured by an earlier run") {
		t.Errorf("the next one ended with %d\n%s", r.code, r.stderr)
	}
}

// The same under mpirun, where the library is one of the candidates.
func TestTuneUnderMPI(t *testing.T) {
	run, dir := mpirun(t), t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	r := command(t, dir, run, append([]string{"-np", "2", scaffe}, quickTune...)...)
	if r.code != 0 {
		t.Fatalf("tune ended with %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	page, err := os.ReadFile(filepath.Join(dir, "t.html"))
	if err != nil || !strings.Contains(string(page), "<th class=\"n\">MPI library</th>") || !strings.Contains(string(page), "×)</td>") {
		t.Errorf("the library was not measured: %v", err)
	}
	r = command(t, dir, run, "-np", "2", scaffe, "explain", "allreduce", "1M", "--table", "t")
	if r.code != 0 || strings.Count(r.stdout, "decided by  t:") != 1 {
		t.Errorf("explain ended with %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	r = command(t, dir, run, "-np", "2", scaffe, "explain", "allreduce", "1K")
	if r.code != 0 || !strings.Contains(r.stdout, "built-in cost model") {
		t.Errorf("explain ended with %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}
