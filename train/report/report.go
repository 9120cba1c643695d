// Package report tells, on rank 0, how training goes: to people on stderr and,
// at the end, on stdout; to machines as JSON lines and as metrics for
// Prometheus.
//
//	r, err := report.New(comm, cfg, report.Options{Progress: "auto", LogJSON: "log.jsonl"})
//	...
//	defer r.Close()
//	cfg.Events = r.Events()
//	w, err := train.New(ctx, comm, cfg)
//	...
//	err = r.Started(w)
//	summary, err := w.Run(ctx)
//	r.Ended(summary, err)
//
// It must not know how training is done, only what train says of it.
package report

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/internal/output"
	"github.com/scaffe/scaffe/internal/progress"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/kernels/dnn"
	"github.com/scaffe/scaffe/train"
)

// Options say where a run is reported to, besides stdout and stderr.
type Options struct {
	Progress string // when to draw a bar: auto (on a terminal), always or never
	LogJSON  string // file that JSON lines are appended to, "-" for stdout, "" for none
	Metrics  string // address to serve metrics at, "" for none
}

// Reporter reports a run. On ranks other than 0 it says nothing.
type Reporter struct {
	comm    *collectives.Comm
	cfg     train.Config
	out     io.Writer // of the summary
	show    bool      // a bar
	json    *jsonLog
	metrics *metricsReport
	err     error // of the summary

	worker *train.Worker
	bar    *progressbar.ProgressBar // nil: none
	last   train.Progress
	late   []int // the ranks that were last left out
	behind int   // the most iterations that a rank was behind
	skip   int   // the iteration whose update was last left out, -1: none
	speed  speed
}

// New opens what o asks for. The Reporter is not nil even where it fails, and
// must be closed.
func New(comm *collectives.Comm, cfg train.Config, o Options) (*Reporter, error) {
	r := &Reporter{comm: comm, cfg: cfg, out: output.Stdout, skip: -1}
	var err error
	if r.show, err = progress.Wanted(o.Progress); err != nil || comm.Rank() != 0 {
		return r, err
	}
	if o.LogJSON != "" {
		if r.json, err = openJSONLog(o.LogJSON); err != nil {
			return r, err
		}
		if o.LogJSON == "-" {
			r.out = os.Stderr
		}
	}
	if o.Metrics != "" {
		if r.metrics, err = serveMetrics(o.Metrics); err != nil {
			return r, err
		}
		r.log("metrics at %s", r.metrics.URL())
	}
	return r, nil
}

// Close gives back what New opened. Its error says what could not be written: a
// program may wait for it.
func (r *Reporter) Close() error {
	return errors.Join(r.err, r.metrics.close(), r.json.close())
}

// log writes a line to stderr, above the bar.
func (r *Reporter) log(format string, args ...any) {
	if r.comm.Rank() != 0 {
		return
	}
	if r.bar != nil {
		_ = r.bar.Clear()
	}
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// Events returns what training calls.
func (r *Reporter) Events() train.Events {
	return train.Events{
		OnProgress: r.progress,
		OnCheckpoint: func(c train.Checkpointed) {
			r.log("iteration %d: checkpoint %s, %.1f MB", c.Iter, c.Manifest, float64(c.Bytes)/1e6)
			r.json.checkpoint(c)
			r.metrics.checkpoint()
		},
		OnDropped: func(d train.Dropped) {
			if !slices.Equal(d.Late, r.late) { // who is always late is told of once
				r.log("iteration %d: left out for being late: %s", d.Iter, rankList(d.Late))
				r.late = d.Late
			}
			r.json.dropped(d)
		},
		OnBehind: func(b train.Behind) {
			for rank, n := range b.By {
				if n > r.behind { // who is further behind than anybody was
					r.behind = n
					r.log("iteration %d: rank %d is %d iterations behind the foremost worker", b.Iter, rank, n)
				}
			}
			r.json.behind(b)
		},
		Solver: solver.Events{
			OnDisplay: func(d solver.Display) {
				r.log("iteration %d: loss %.5g, lr %.4g, %s", d.Iter, d.Loss, d.Rate, rates(r.last.Summary))
			},
			OnTest: func(t solver.Test) {
				var scores []string
				for _, s := range t.Scores {
					scores = append(scores, s.String())
				}
				if t.HasLoss {
					scores = append(scores, fmt.Sprintf("mean loss = %.6g", t.Loss))
				}
				r.log("iteration %d: test over %d batches: %s", t.Iter, t.Batches, strings.Join(scores, ", "))
				r.json.test(t)
				r.metrics.test(t)
			},
			OnSnapshot: func(s solver.Snapshot) {
				r.log("iteration %d: snapshot %s", s.Iter, s.State)
				r.json.snapshot(s)
				r.metrics.snapshot()
			},
			OnSkip: func(s solver.Skip) {
				r.skip = s.Iter
				r.log("iteration %d: no update: %v", s.Iter, s.Err)
				r.json.skip(s)
			},
		},
	}
}

func (r *Reporter) progress(p train.Progress) {
	r.speed.add(p.Total-p.TestsAndSnapshots, p.Images)
	if r.bar != nil {
		r.bar.Describe(fmt.Sprintf("loss %.4f, %.0f images/s, %.0f %% exposed", p.Loss, r.speed.perSecond(), 100*p.Share(p.Exposed)))
		_ = r.bar.Set(p.Iterations)
	}
	r.json.iteration(p, r.last.Summary, r.skip == p.Iter)
	r.metrics.progress(p, r.speed.perSecond())
	r.last = p
}

// Started says what is about to be trained.
func (r *Reporter) Started(w *train.Worker) error {
	r.worker = w
	n, x := w.Solver().Net(), w.Exchange()
	for _, warning := range w.Solver().Warnings() {
		r.log("warning: %s", warning)
	}
	products, _ := dnn.ProductsBy()
	r.log("net %q: %s, %s, global batch %d (%d here), oneDNN %s, products by %s",
		n.Name(), parameters(n), ranks(w, r.comm.Size()), w.Solver().Computes().GlobalBatch(), w.LocalBatch(), strings.TrimPrefix(dnn.Name(), "oneDNN "), products)
	buckets := fmt.Sprintf("%d buckets of at least %s", len(x.Buckets()), units.FormatBytes(x.MinBucket()))
	if len(x.Buckets()) == 1 {
		buckets = "one bucket"
	}
	if r.cfg.Consistency != (train.Consistency{}) {
		buckets += fmt.Sprintf(", consistency %v", r.cfg.Consistency)
	}
	r.log("design %v, aggregate %v, %s", r.cfg.Design, r.cfg.SchemeText(), buckets)
	for _, note := range w.Notes() {
		r.log("# %s", note)
	}
	if a := w.Audit(); a != nil {
		for _, line := range a.Text() {
			r.log("%s", line)
		}
	}
	if r.comm.Rank() != 0 {
		return nil
	}
	if r.show {
		r.bar = progress.New(int(w.Solver().Param().GetMaxIter()) - w.Solver().Iter())
	}
	r.json.start(r.comm, r.cfg, w)
	r.metrics.start(r.comm, r.cfg, w)
	return nil
}

// Ended says what the run came to.
func (r *Reporter) Ended(s train.Summary, err error) {
	if r.comm.Rank() != 0 {
		return
	}
	if r.bar != nil {
		_ = r.bar.Finish()
		r.bar = nil
	}
	r.metrics.progress(train.Progress{Iteration: r.last.Iteration, Summary: s}, r.speed.perSecond())
	iter := r.worker.Solver().Iter()
	stopped := err == nil && iter < int(r.worker.Solver().Param().GetMaxIter())
	r.json.end(s, stopped, err)
	if err != nil {
		return
	}
	if stopped {
		r.log("iteration %d: stopped by a signal", iter)
	}
	if slow, times, ok := s.Straggler(); ok {
		r.log("straggler: rank %d computes %.1f times as long as the median rank, and the others wait for it", slow.Rank, times)
	}
	if err := writeSummary(r.out, s); err != nil {
		r.err = fmt.Errorf("the summary is lost: %w", err)
	}
}

// rates says how fast it goes and where rank 0's time goes.
func rates(s train.Summary) string {
	text := fmt.Sprintf("%.0f images/s, compute %.0f %%, exposed communication %.0f %%, input %.0f %%",
		s.ImagesPerSecond(), 100*s.Share(s.Compute()), 100*s.Share(s.Exposed), 100*s.Share(s.Input))
	if s.TestsAndSnapshots > 0 {
		text += fmt.Sprintf(", tests and snapshots %.0f %%", 100*s.Share(s.TestsAndSnapshots))
	}
	return text
}

// speed is how fast it goes lately: over the last so many iterations.
type speed struct {
	at     [21]time.Duration
	images [21]int
	n      int // how many were added
}

func (s *speed) add(at time.Duration, images int) {
	s.at[s.n%len(s.at)], s.images[s.n%len(s.at)] = at, images
	s.n++
}

func (s *speed) perSecond() float64 {
	if s.n == 0 {
		return 0
	}
	newest := (s.n - 1) % len(s.at)
	var at time.Duration // of the oldest; the run begins with no images
	var images int
	if s.n > len(s.at) {
		at, images = s.at[s.n%len(s.at)], s.images[s.n%len(s.at)]
	}
	if s.at[newest] <= at {
		return 0
	}
	return float64(s.images[newest]-images) / (s.at[newest] - at).Seconds()
}

// ranks says how many there are, and who works and serves where not all do both.
func ranks(w *train.Worker, n int) string {
	if len(w.Workers()) == n {
		return fmt.Sprintf("%d ranks", n)
	}
	list := func(ranks []int) string { return strings.Trim(fmt.Sprint(ranks), "[]") }
	return fmt.Sprintf("%d ranks (workers %s; servers %s)", n, list(w.Workers()), list(w.Servers()))
}

// rankList is "rank 3" or "ranks 3, 5".
func rankList(ranks []int) string {
	text := strings.ReplaceAll(strings.Trim(fmt.Sprint(ranks), "[]"), " ", ", ")
	if len(ranks) == 1 {
		return "rank " + text
	}
	return "ranks " + text
}

// parameters counts what the solver learns, and what it does not: frozen
// layers, and the statistics that BatchNorm gathers.
func parameters(n *net.Net) string {
	learned := 0
	for _, p := range n.Learnable() {
		if p.LRMult != 0 {
			learned += p.Blob.Count()
		}
	}
	if rest := n.ParamCount() - learned; rest > 0 {
		return fmt.Sprintf("%d parameters and %d non-trainable values", learned, rest)
	}
	return fmt.Sprintf("%d parameters", learned)
}
