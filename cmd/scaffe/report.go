package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/kernels/blas"
	"github.com/scaffe/scaffe/train"
)

// reporter says on rank 0's terminal how training goes.
type reporter struct {
	comm *collectives.Comm
	bar  *progressbar.ProgressBar // nil: none
	last train.Progress
	cfg  train.Config
	max  int
}

func newReporter(comm *collectives.Comm, cfg train.Config, progress string) (*reporter, error) {
	r := &reporter{comm: comm, cfg: cfg, max: int(cfg.Solver.Solver.GetMaxIter())}
	show, err := showProgress(progress)
	if err != nil {
		return nil, err
	}
	if show && comm.Rank() == 0 {
		r.bar = progressbar.NewOptions(r.max,
			progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetWidth(30), progressbar.OptionShowCount(),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish())
	}
	return r, nil
}

// showProgress reads --progress.
func showProgress(word string) (bool, error) {
	switch word {
	case "auto":
		return onTerminal(), nil
	case "always":
		return true, nil
	case "never":
		return false, nil
	}
	return false, fmt.Errorf("--progress %q is unknown: use auto, always or never", word)
}

// onTerminal reports whether a person watches stderr. Under mpirun stderr is
// a pipe to it, so what counts there is mpirun's own.
func onTerminal() bool {
	if term.IsTerminal(int(os.Stderr.Fd())) {
		return true
	}
	for pid := os.Getppid(); pid > 1; {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil {
			return false
		}
		if name := filepath.Base(exe); strings.HasPrefix(name, "mpi") || strings.HasPrefix(name, "orte") || strings.HasPrefix(name, "hydra") || strings.HasPrefix(name, "prte") {
			if target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/2", pid)); err == nil && (strings.HasPrefix(target, "/dev/pts/") || strings.HasPrefix(target, "/dev/tty")) {
				return true
			}
		}
		if pid = parent(pid); pid == 0 {
			return false
		}
	}
	return false
}

// parent returns the parent of a process, 0 where that cannot be told.
func parent(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	after := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
	if fields := strings.Fields(after); len(fields) > 1 {
		n, _ := strconv.Atoi(fields[1])
		return n
	}
	return 0
}

// log writes a line to stderr, above the bar.
func (r *reporter) log(format string, args ...any) {
	if r.comm.Rank() != 0 {
		return
	}
	if r.bar != nil {
		_ = r.bar.Clear()
	}
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

func (r *reporter) events() train.Events {
	return train.Events{
		OnProgress: r.progress,
		Solver: solver.Events{
			OnDisplay: func(d solver.Display) {
				r.log("iteration %d: loss %.5g, lr %.4g, %s", d.Iter, d.Loss, d.Rate, rates(r.last.Summary))
			},
			OnTest: func(t solver.Test) {
				var scores []string
				for _, s := range t.Scores {
					scores = append(scores, s.String())
				}
				r.log("iteration %d: test over %d batches: %s", t.Iter, t.Batches, strings.Join(scores, ", "))
			},
			OnSnapshot: func(s solver.Snapshot) { r.log("iteration %d: snapshot %s", s.Iter, s.State) },
		},
	}
}

func (r *reporter) progress(p train.Progress) {
	r.last = p
	if r.bar != nil {
		r.bar.Describe(fmt.Sprintf("loss %.4f, %.0f images/s", p.Loss, p.ImagesPerSecond()))
		_ = r.bar.Set(p.Iter + 1)
	}
}

// started says what is about to be trained.
func (r *reporter) started(w *train.Worker) {
	n := w.Solver().Net()
	r.log("net %q: %d parameters, %d ranks, global batch %d (%d here), BLAS %s",
		n.Name(), n.ParamCount(), r.comm.Size(), n.GlobalBatch(), n.LocalBatch(), blas.Name())
	x := w.Exchange()
	r.log("design %v, aggregate %v, %d buckets of at least %s", r.cfg.Design, r.cfg.Scheme, len(x.Buckets()), collectives.FormatBytes(x.LeastBucket()))
}

// ended says on stdout what the run came to.
func (r *reporter) ended(s train.Summary, err error) {
	if r.comm.Rank() != 0 {
		return
	}
	if r.bar != nil {
		_ = r.bar.Finish()
	}
	if err != nil {
		return
	}
	if slow, times, ok := s.Straggler(); ok {
		r.log("slowest rank %d: it computes %.1f times as long as the median rank; the others wait for it", slow.Rank, times)
	}
	if err == nil {
		fmt.Printf("%d iterations, %d images in %.1f s: %s\n", s.Iterations, s.Images, s.Total.Seconds(), rates(s))
	}
}

// rates says how fast it goes and where rank 0's time goes.
func rates(s train.Summary) string {
	return fmt.Sprintf("%.0f images/s, compute %.0f %%, communication %.0f %%, input %.0f %%",
		s.ImagesPerSecond(), 100*s.Share(s.Compute()), 100*s.Share(s.Exposed), 100*s.Share(s.Input))
}
