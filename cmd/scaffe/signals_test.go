package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// longSolver is for runs that do not end by themselves.
const longSolver = `net: "net.prototxt" base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" display: 1
max_iter: %d snapshot_prefix: %q random_seed: 3`

// endless makes a workplace whose training does not end by itself.
func endless(t *testing.T) string {
	dir := workplace(t, 10)
	write(t, dir, "endless.prototxt", fmt.Sprintf(longSolver, 1_000_000, "s"))
	return dir
}

// sameAsUndisturbed goes on from the snapshot of iteration n for a while, and
// holds the result against a run that was never interrupted.
func sameAsUndisturbed(t *testing.T, dir string, n int, ranks ...string) {
	t.Helper()
	end := n + 10
	for name, more := range map[string][]string{"whole": nil, "resumed": {"--snapshot", fmt.Sprintf("s_iter_%d.solverstate", n)}} {
		write(t, dir, name+".prototxt", fmt.Sprintf(longSolver, end, name))
		args := append(append(ranks, "--solver", name+".prototxt"), more...)
		if r := command(t, dir, args[0], args[1:]...); r.code != 0 {
			t.Fatalf("%s ended with %d\n%s", strings.Join(args, " "), r.code, r.stderr)
		}
	}
	if !bytes.Equal(weights(t, dir, "whole", end), weights(t, dir, "resumed", end)) {
		t.Errorf("interrupted at iteration %d and resumed, the weights after iteration %d are others", n, end)
	}
}

// weights reads the model of a snapshot.
func weights(t *testing.T, dir, prefix string, iter int) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%s_iter_%d.caffemodel", prefix, iter)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What goes to stdout may come in the midst of a line.
var snapshotLine = regexp.MustCompile(`iteration (\d+): snapshot s_iter_(\d+)\.solverstate`)

// snapshots returns the iterations of the snapshots in a log.
func snapshots(text string) (iters []int) {
	for _, m := range snapshotLine.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1])
		iters = append(iters, n)
	}
	return iters
}

// launches are the ways to start two ranks.
func launches(t *testing.T) map[string][]string {
	ways := map[string][]string{"local": {scaffe, "train", "--local", "2"}}
	if os.Getenv("SCAFFE_MPI_DIR") != "" {
		ways["mpirun"] = []string{mpirun(t), "-np", "2", scaffe, "train"}
	}
	return ways
}

// TestAskedToStop: a signal to mpirun, to any rank, or to all of them ends
// training in good order, with one snapshot, from which it goes on as if
// nothing had been.
func TestAskedToStop(t *testing.T) {
	for _, c := range []struct {
		way    string
		signal syscall.Signal
		whom   []string
		resume bool
	}{
		{"local", syscall.SIGINT, []string{"mpirun"}, true},
		{"local", syscall.SIGTERM, []string{"mpirun"}, false},
		{"mpirun", syscall.SIGINT, []string{"mpirun"}, true},
		{"mpirun", syscall.SIGTERM, []string{"mpirun"}, false},
		{"mpirun", syscall.SIGINT, []string{"0"}, false},
		{"mpirun", syscall.SIGTERM, []string{"1"}, true},
		{"mpirun", syscall.SIGTERM, []string{"mpirun", "0", "1"}, false},
	} {
		t.Run(fmt.Sprintf("%s %v to %s", c.way, c.signal, strings.Join(c.whom, " ")), func(t *testing.T) {
			way := launches(t)[c.way]
			if way == nil {
				t.Skip("no MPI: run `make test-mpi`")
			}
			dir := endless(t)
			r := begin(t, dir, way[0], append(way[1:], "--solver", "endless.prototxt")...)
			r.until("^iteration 20:")
			r.signal(c.signal, c.whom...)
			got := r.end()
			at := snapshots(got.stderr)
			if got.code != 0 || len(at) != 1 {
				t.Fatalf("it ended with status %d and snapshots of %v\n%s", got.code, at, last(got.stderr))
			}
			if !regexp.MustCompile(fmt.Sprintf(`iteration %d: stopped`, at[0])).MatchString(got.stderr) {
				t.Errorf("nobody says that it was stopped\n%s", last(got.stderr))
			}
			if c.resume {
				sameAsUndisturbed(t, dir, at[0], way...)
			}
		})
	}
}

// last returns the end of a log, without what was shown every iteration.
func last(text string) string {
	return lossLines.ReplaceAllString(text, "")
}

var lossLines = regexp.MustCompile(`(?m)^iteration \d+: loss .*\n`)

// TestAskedForSnapshot: SIGHUP gives a snapshot, and training goes on as if
// nothing had been.
func TestAskedForSnapshot(t *testing.T) {
	for name, way := range launches(t) {
		for _, whom := range []string{"mpirun", "1"} {
			if name == "local" && whom == "1" {
				continue // there is one process
			}
			t.Run(name+" to "+whom, func(t *testing.T) {
				dir := endless(t)
				r := begin(t, dir, way[0], append(way[1:], "--solver", "endless.prototxt")...)
				r.until("^iteration 20:")
				r.signal(syscall.SIGHUP, whom)
				n, _ := strconv.Atoi(r.until(snapshotLine.String())[1])
				r.until(fmt.Sprintf("^iteration %d:", n+20))
				r.signal(syscall.SIGTERM, "mpirun")
				got := r.end()
				at := snapshots(got.stderr)
				// Three, where SIGHUP reached one rank an iteration before the other.
				if got.code != 0 || len(at) < 2 || at[0] != n {
					t.Fatalf("it ended with status %d and snapshots of %v, the first one of %d\n%s", got.code, at, n, last(got.stderr))
				}
				if whom == "mpirun" {
					sameAsUndisturbed(t, dir, at[len(at)-1], way...)
				}
			})
		}
	}
}

// TestAskedToStopInTheMidst: a signal ends training between two passes of an
// iteration, or two batches of a test, that would take for ever, with a snapshot
// of the last iteration that was finished.
func TestAskedToStopInTheMidst(t *testing.T) {
	for name, way := range launches(t) {
		for what, more := range map[string]string{
			"an iteration": "iter_size: 2000000000",
			"a test":       "test_iter: 100000000 test_interval: 1000",
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				dir := workplace(t, 10)
				write(t, dir, "endless.prototxt", fmt.Sprintf(longSolver, 1_000_000, "s")+" "+more)
				r := begin(t, dir, way[0], append(way[1:], "--solver", "endless.prototxt")...)
				r.until("^design ") // it begins
				r.signal(syscall.SIGINT, "mpirun")
				got := r.end()
				if at := snapshots(got.stderr); got.code != 0 || len(at) != 1 || at[0] != 0 || !strings.Contains(got.stderr, "iteration 0: stopped") {
					t.Errorf("it ended with status %d and snapshots of %v\n%s", got.code, at, got.stderr)
				}
			})
		}
	}
}

// TestAskedTwice: a second signal ends the run at once, with the reason, although
// a rank does not run and the ranks can agree on nothing.
func TestAskedTwice(t *testing.T) {
	run := mpirun(t)
	dir := endless(t)
	r := begin(t, dir, run, "-np", "2", scaffe, "train", "--solver", "endless.prototxt", "--deadline", "1h")
	r.until("^iteration 20:")
	r.signal(syscall.SIGSTOP, "1")
	r.signal(syscall.SIGINT, "0")
	r.until("received interrupt: stopping after this iteration")
	time.Sleep(2 * time.Second) // closer together they count as one
	r.signal(syscall.SIGINT, "0")
	if got := r.end(); got.code == 0 || strings.Count(got.stderr, "stopped by interrupt") != 1 {
		t.Errorf("it ended with status %d\n%s", got.code, last(got.stderr))
	}
}
