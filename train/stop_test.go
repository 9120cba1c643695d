package train_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/train"
)

// TestAllreduceResumes: every rank gets the parameters and the history of the
// snapshot.
func TestAllreduceResumes(t *testing.T) {
	path, dir := files(t, 30)
	all := func(_ int, c *train.Config) { c.Scheme = exchange.Allreduce }
	whole := mustRun(t, 2, path, all)
	resumed := mustRun(t, 2, path, func(rank int, c *train.Config) {
		all(rank, c)
		c.Snapshot = filepath.Join(dir, "s_iter_20.solverstate")
	})
	if string(whole.snapshot) != string(resumed.snapshot) {
		t.Error("the resumed run ended with other bits")
	}
}

// quiet turns the tests of the solver file at path off, between whose batches
// requests are looked at too.
func quiet(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.Replace(string(b), "test_interval: 25", "test_interval: 1000 test_initialization: false", 1))
}

// TestRequests: what one rank is asked, all do, in the same iteration.
func TestRequests(t *testing.T) {
	path, dir := files(t, 30)
	quiet(t, path)
	c := mustRun(t, 3, path, func(rank int, c *train.Config) {
		calls := 0
		c.Requests = func() (snapshot, stop bool) {
			calls++
			return rank == 1 && calls == 8, rank == 2 && calls == 13
		}
	})
	if len(c.loss) != 13 {
		t.Errorf("stopped after %d iterations, want 13", len(c.loss))
	}
	for _, iter := range []int{8, 13} {
		if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf("s_iter_%d.solverstate", iter))); err != nil {
			t.Errorf("the snapshot asked for: %v", err)
		}
	}
	resumed := mustRun(t, 3, path, func(_ int, c *train.Config) { c.Snapshot = filepath.Join(dir, "s_iter_13.solverstate") })
	if whole := mustRun(t, 3, path, nil); string(whole.snapshot) != string(resumed.snapshot) {
		t.Error("the run that was stopped and resumed ended with other bits")
	}
}

// TestStopBetweenPasses: one rank is asked to stop between the passes of an
// iteration. All ranks leave the iteration unfinished, in every design, and a
// resumed run does it again: its bits are those of a run that nobody stopped.
func TestStopBetweenPasses(t *testing.T) {
	const iterSize, at = 6, 3 // iterations are finished
	path, dir := files(t, 30)
	quiet(t, path)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.Replace(string(b), "max_iter: 50", fmt.Sprintf("max_iter: 8\niter_size: %d", iterSize), 1))
	for _, scheme := range []exchange.Scheme{exchange.Reduce, exchange.Allreduce, exchange.PS} {
		whole := mustRun(t, 2, path, func(_ int, c *train.Config) { c.Scheme = scheme })
		for _, design := range []exchange.Design{exchange.SCB, exchange.SCOBNaive, exchange.SCOB, exchange.SCOBR} {
			c := mustRun(t, 2, path, func(rank int, c *train.Config) {
				c.Design, c.Scheme = design, scheme
				calls := 0
				c.Requests = func() (snapshot, stop bool) {
					calls++
					return false, rank == 1 && calls == at*iterSize+2
				}
			})
			if len(c.loss) != at {
				t.Errorf("%v, %v: stopped after %d iterations, want %d", design, scheme, len(c.loss), at)
			}
			resumed := mustRun(t, 2, path, func(_ int, c *train.Config) {
				c.Design, c.Scheme = design, scheme
				c.Snapshot = filepath.Join(dir, fmt.Sprintf("s_iter_%d.solverstate", at))
			})
			if string(whole.snapshot) != string(resumed.snapshot) {
				t.Errorf("%v, %v: the run that was stopped and resumed ended with other bits", design, scheme)
			}
		}
	}
}

// TestStopInATest: one rank is asked to stop during a test, of whose batches the
// ranks have unequal numbers. The test has no result, and a resumed run makes it
// again.
func TestStopInATest(t *testing.T) {
	path, dir := files(t, 30)
	whole := mustRun(t, 3, path, nil)
	for _, iter := range []int{0, 25, 50} {
		calls := iter + 2*((iter+24)/25) // as the tests have two rounds
		c := mustRun(t, 3, path, func(rank int, c *train.Config) {
			left := calls
			c.Requests = func() (snapshot, stop bool) {
				left--
				return false, rank == 1 && left == -1
			}
		})
		if len(c.loss) != iter || len(c.scores) != iter/25*2 {
			t.Errorf("stopped after %d iterations with %d scores, want it in the test of iteration %d", len(c.loss), len(c.scores), iter)
		}
		resumed := mustRun(t, 3, path, func(_ int, c *train.Config) {
			c.Snapshot = filepath.Join(dir, fmt.Sprintf("s_iter_%d.solverstate", iter))
		})
		if iter < 50 && string(whole.snapshot) != string(resumed.snapshot) {
			t.Errorf("stopped in the test of iteration %d and resumed, training ended with other bits", iter)
		}
		if all := append(c.scores, resumed.scores...); !slices.Equal(all, whole.scores) {
			t.Errorf("stopped in the test of iteration %d and resumed, the scores are %v, not %v", iter, all, whole.scores)
		}
	}
}

// TestResume: a run that goes on from a snapshot has the same bits at its end
// as one that was not interrupted, on any number of ranks.
func TestResume(t *testing.T) {
	path, dir := files(t, 30)
	whole := mustRun(t, 2, path, nil)
	resumed := mustRun(t, 2, path, func(_ int, c *train.Config) { c.Snapshot = filepath.Join(dir, "s_iter_20.solverstate") })
	if len(resumed.loss) != 30 {
		t.Errorf("%d iterations after the snapshot of iteration 20", len(resumed.loss))
	}
	if string(whole.snapshot) != string(resumed.snapshot) {
		t.Error("the resumed run ended with other bits")
	}
	if err := near(whole.loss[20:], mustRun(t, 3, path, func(_ int, c *train.Config) {
		c.Snapshot = filepath.Join(dir, "s_iter_20.solverstate")
	}).loss); err != nil {
		t.Errorf("resumed on another number of ranks: %v", err)
	}
	tuned := mustRun(t, 2, path, func(_ int, c *train.Config) { c.Weights = []string{filepath.Join(dir, "s_iter_50.caffemodel")} })
	if mean(tuned.loss[:10]) > mean(whole.loss[:10])-0.1 {
		t.Errorf("fine-tuning starts with a loss of %v, training with %v", tuned.loss[:10], whole.loss[:10])
	}
}
