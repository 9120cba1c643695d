package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestStraggler: a rank that runs a tenth of the time holds the others up, and
// that is all: the run ends with the weights of any other, and says whom it
// waited for.
func TestStraggler(t *testing.T) {
	long(t)
	run := mpirun(t)
	dir := workplace(t, 10)
	// Much to compute, so that this is what the delays hit.
	write(t, dir, "net.prototxt", strings.NewReplacer("batch_size: 30", "batch_size: 300", "num_output: 6", "num_output: 32").Replace(testNet))
	const iters = 50
	begun := func(name string) *running {
		write(t, dir, name+".prototxt", fmt.Sprintf(longSolver, iters, name))
		return begin(t, dir, run, "-np", "2", scaffe, "train", "--solver", name+".prototxt")
	}
	if r := begun("whole").end(); r.code != 0 {
		t.Fatal(r.stderr)
	}
	r := begun("throttled")
	victim := r.rank("1")
	r.until("^iteration 0:")
	for !r.ended() && syscall.Kill(victim, syscall.SIGSTOP) == nil {
		time.Sleep(18 * time.Millisecond)
		_ = syscall.Kill(victim, syscall.SIGCONT) // it may have ended right before
		time.Sleep(2 * time.Millisecond)
	}
	got := r.end()
	if got.code != 0 || !strings.Contains(got.stderr, fmt.Sprintf("%d iterations, ", iters)) {
		t.Fatalf("it ended with status %d\n%s", got.code, last(got.stderr))
	}
	if !strings.Contains(got.stderr, "straggler: rank 1 computes ") {
		t.Errorf("nobody names the straggler, rank 1\n%s", last(got.stderr))
	}
	if string(weights(t, dir, "throttled", iters)) != string(weights(t, dir, "whole", iters)) {
		t.Error("the weights are others for the delay")
	}
}
