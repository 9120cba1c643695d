// Package table2 trains one net in several ways in turn and says what each of
// them costs: Table 2 of S-Caffe, for any designs and specs.
//
//	rows, err := table2.Rows(nil, nil, comm.HasLibrary()) // the paper's, and more
//	...
//	r, err := table2.Run(ctx, comm, train.Config{Solver: file}, rows, table2.Options{Iterations: 20})
//	...
//	err = r.Write(os.Stdout, report.Text)
//
// All rows train the same net, one after another and round after round (A B C
// A B C), so that a machine that becomes slower does so for all of them. What
// is measured is the steady state: a round begins with iterations that do not
// count, and what these have under way is what the last one leaves under way.
//
// It must not know how ranks are started, nor what an algorithm does.
package table2

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/stats"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/trace"
	"github.com/scaffe/scaffe/train"
)

// Row is one way to train.
type Row struct {
	Design exchange.Design
	// Algorithm is the spec as people name it, such as CB-8 or tuned.
	Algorithm string
	Spec      spec.Spec
}

// String returns such as "SC-B CB-8".
func (r Row) String() string { return r.Design.String() + " " + r.Algorithm }

// Options say how long to measure. Zeros mean the defaults.
type Options struct {
	// Iterations are measured of each row, 20 if 0, in Rounds, 4 if 0 (and
	// never more than there are iterations).
	Iterations, Rounds int
	// Warmup iterations of each row do not count, 3 if 0, nor does the first one
	// of each later round.
	Warmup int
	// Tell, unless nil, is called before each row of each round.
	Tell func(done, of int, next Row)
}

// Result is what a row came to. Times are those of one iteration: the mean of
// a round on the slowest rank, and of the rounds the median.
type Result struct {
	Row
	// Buckets is in how many parts the parameters move, each of at least
	// LeastBucket bytes.
	Buckets, LeastBucket int
	// Aggregation is how long a rank did nothing but wait for gradients: in
	// SC-B the phase of that name. Exposed is that and waiting for parameters;
	// InFlight is how long either were under way, waited for or not.
	Aggregation, Exposed, InFlight, Total time.Duration
}

// Report is the table.
type Report struct {
	Net                        string
	Parameters, GlobalBatch    int
	Layout                     spec.Layout
	Aggregate                  string // the schemes, as asked for
	Warmup, Iterations, Rounds int
	Results                    []Result
}

// Run measures rows. It trains as c says, but without tests and snapshots and
// at the learning rate base_lr throughout; c's Design, Spec and Requests do not
// count. Where c leaves the scheme of the net to choice, that is Reduce, as in the paper: rows
// differ by the algorithm of one scheme. It is a collective: every rank gets the same report.
func Run(ctx context.Context, comm *collectives.Comm, c train.Config, rows []Row, o Options) (*Report, error) {
	if comm.Size() < 2 {
		return nil, errors.New("table2: want at least two ranks: one rank has nothing to exchange")
	}
	if len(rows) == 0 || o.Iterations < 0 || o.Rounds < 0 || o.Warmup < 0 {
		return nil, fmt.Errorf("table2: invalid options: %d rows, %d iterations, %d rounds, warm-up %d", len(rows), o.Iterations, o.Rounds, o.Warmup)
	}
	o.Iterations, o.Warmup = orElse(o.Iterations, 20), orElse(o.Warmup, 3)
	o.Rounds = min(orElse(o.Rounds, 4), o.Iterations)
	c.Solver, c.Requests = timed(c.Solver), nil
	c.Design, c.Spec = rows[0].Design, rows[0].Spec
	asked := c.Asked.Or(c.Scheme)
	if asked.Default == exchange.Auto {
		asked.Default = exchange.Reduce
	}
	c.Asked = &asked
	w, err := train.New(ctx, comm, c)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	r := &run{comm: comm, worker: w, rows: rows, o: o}
	if err := r.setUp(ctx, c); err != nil {
		return nil, err
	}
	if err := r.measure(ctx); err != nil {
		return nil, err
	}
	return r.report(ctx, c.SchemeText())
}

func orElse(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// timed is a solver file for nothing but iterations. The rate is fixed, since
// the iterations of all rows together may be more than the file's policy
// knows what to do with.
func timed(f *proto.SolverFile) *proto.SolverFile {
	g := *f
	g.Solver = pb.Clone(f.Solver).(*proto.SolverParameter)
	s := g.Solver
	s.TestIter, s.TestInterval, s.TestNet, s.TestNetParam, s.TestState = nil, nil, nil, nil, nil
	s.Snapshot, s.SnapshotAfterTrain, s.Display = nil, pb.Bool(false), nil
	s.LrPolicy = pb.String("fixed")
	return &g
}

// run is a comparison under way, on this rank.
type run struct {
	comm   *collectives.Comm
	worker *train.Worker
	rows   []Row
	o      Options
	setups []*train.Setup
	times  []int64 // by round, row and the four times of Result; ns an iteration
}

// setUp makes all rows' exchanges.
func (r *run) setUp(ctx context.Context, c train.Config) error {
	for _, row := range r.rows {
		c.Design, c.Spec = row.Design, row.Spec
		s, err := r.worker.Setup(ctx, c)
		if err != nil {
			return fmt.Errorf("%v: %w", row, err)
		}
		r.setups = append(r.setups, s)
	}
	return nil
}

// measure runs all rounds.
func (r *run) measure(ctx context.Context) error {
	for round := range r.o.Rounds {
		warmup := r.o.Warmup
		if round > 0 {
			warmup = 1
		}
		n := r.o.Iterations*(round+1)/r.o.Rounds - r.o.Iterations*round/r.o.Rounds
		for i, row := range r.rows {
			if r.o.Tell != nil {
				r.o.Tell(round*len(r.rows)+i, r.o.Rounds*len(r.rows), row)
			}
			if err := r.one(ctx, r.setups[i], warmup, n); err != nil {
				return fmt.Errorf("%v: %w", row, err)
			}
		}
	}
	return r.worker.Exchange().Current()
}

// one measures n iterations of a row.
func (r *run) one(ctx context.Context, s *train.Setup, warmup, n int) error {
	if err := r.worker.Use(s); err != nil {
		return err
	}
	if err := r.worker.Step(ctx, warmup); err != nil {
		return err
	}
	before, begin := r.worker.Totals(), time.Now()
	if err := r.worker.Step(ctx, n); err != nil {
		return err
	}
	total, d := time.Since(begin), r.worker.Totals().Sub(before)
	if !r.worker.Works() { // it waits for the workers' computation too
		d = trace.Totals{}
	}
	for _, t := range []time.Duration{d.ExposedPush, d.Exposed(), d.Communication, total} {
		r.times = append(r.times, int64(t)/int64(n))
	}
	return nil
}

// report takes the slowest rank's times, and medians of the rounds.
func (r *run) report(ctx context.Context, schemes string) (*Report, error) {
	if err := r.comm.Allreduce(ctx, mem.Of(r.times), mem.Of(r.times), mem.Int64, mem.Max); err != nil {
		return nil, err
	}
	n := r.worker.Solver().Net()
	out := &Report{
		Net: n.Name(), Parameters: n.ParamCount(), GlobalBatch: n.GlobalBatch() * int(r.worker.Solver().Param().GetIterSize()),
		Layout: r.comm.Layout(), Aggregate: schemes, Warmup: r.o.Warmup, Iterations: r.o.Iterations, Rounds: r.o.Rounds,
	}
	for i, row := range r.rows {
		median := func(which int) time.Duration {
			var xs []float64
			for round := range r.o.Rounds {
				xs = append(xs, float64(r.times[4*(round*len(r.rows)+i)+which]))
			}
			return time.Duration(stats.Median(xs).Median)
		}
		x := r.setups[i].Exchange()
		out.Results = append(out.Results, Result{
			Row: row, Buckets: len(x.Buckets()), LeastBucket: x.MinBucket(),
			Aggregation: median(0), Exposed: median(1), InFlight: median(2), Total: median(3),
		})
	}
	return out, nil
}
