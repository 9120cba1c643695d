package replay

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/stats"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/trace"
)

// How many iterations measure the communication alone: fewer where they take long.
const (
	aloneFirst   = 2
	aloneMost    = 9
	aloneSeconds = 15.0
	// budgetLeast is how many iterations a budget leaves: those that a
	// confidence interval needs.
	budgetLeast = 6
)

// Run replays. All ranks of comm call it together, and get the same result.
func Run(ctx context.Context, comm *collectives.Comm, c Config) (*Result, error) {
	if c.Turn == 0 {
		c.Turn = DefaultTurn
	}
	if len(c.Designs) == 1 {
		c.Turn = max(c.Iterations, 1) // the others have no turns
	}
	err := c.validate(comm.Size())
	var r *rank
	if err == nil {
		r, err = newRank(comm, c)
	}
	if err := comm.Agree(ctx, err); err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.choose(ctx); err != nil {
		return nil, err
	}
	res, err := r.replay(ctx)
	if err == nil { // otherwise other ranks may still use the buffers
		r.free()
	}
	return res, err
}

// replay is all of it, on one rank.
func (r *rank) replay(ctx context.Context) (*Result, error) {
	c := r.c
	res, err := r.describe(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.alone(ctx, res); err != nil {
		return nil, err
	}
	if c.Ratio > 0 {
		r.scale = res.Communication.Median / (c.Ratio * report.Milliseconds(c.Profile.Compute()))
	}
	res.computation(c, r.scale, r.products)
	r.late = lateness{}
	r.c.Iterations = c.affordable(res)
	if err := r.compare(ctx, res); err != nil {
		return nil, err
	}
	res.judge()
	mean := 0.0
	if r.late.n > 0 {
		mean = report.Milliseconds(r.late.sum) / float64(r.late.n)
	}
	most, err := r.most(ctx, mean, report.Milliseconds(r.late.most))
	if err != nil {
		return nil, err
	}
	res.LateMean, res.LateMost = most[0], most[1]
	return res, nil
}

// most returns the largest of every number over the ranks.
func (r *rank) most(ctx context.Context, v ...float64) ([]float64, error) {
	out := make([]float64, len(v))
	return out, r.comm.Allreduce(ctx, mem.Of(v), mem.Of(out), mem.Float64, mem.Max)
}

// describe says what is replayed and where.
func (r *rank) describe(ctx context.Context) (*Result, error) {
	p := r.c.Profile
	res := &Result{
		Profile: p.Name, Net: p.Net, Source: p.Source, Batch: p.Batch, Elements: p.Elements(), Bytes: p.Bytes(),
		Ranks: r.comm.Size(), Nodes: r.comm.Layout().Nodes, Scheme: r.c.Asked.Or(r.c.Scheme).String(), Spec: r.c.Spec.Name(), Checked: r.c.Check,
		Ratio: r.c.Ratio, Jitter: r.c.Jitter, Straggler: r.c.Straggler,
	}
	x, err := r.exchange(ctx, exchange.SCOBR, r.layers, r.count)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	if r.audit != nil {
		res.Chosen, res.Choices = r.audit.Chosen().String(), r.audit.Text()
	}
	buckets := x.Buckets()
	res.Bucket, res.Buckets = x.MinBucket(), len(buckets)
	res.LastBytes = buckets[0].Bytes()
	var names []trace.Bucket
	for _, b := range buckets {
		names = append(names, trace.Bucket{Bucket: b.Index, Name: b.Name, Layers: b.Layers})
	}
	r.c.Trace.SetBuckets(names)
	r.c.Trace.Describe("profile", p.Name)
	return res, nil
}

// alone measures the communication without computation: all of it, and that of
// the bucket that is pushed last.
func (r *rank) alone(ctx context.Context, res *Result) error {
	r.scale = 0
	defer func() { r.scale = 1 }()
	var err error
	if res.Communication, err = r.repeat(ctx, r.layers, r.count); err != nil {
		return err
	}
	x, err := r.exchange(ctx, exchange.SCOBR, r.layers, r.count)
	if err != nil {
		return err
	}
	last := x.Buckets()[0]
	x.Close()
	if res.Buckets == 1 {
		res.Tail = res.Communication
		return nil
	}
	// With a checker, the parameters of other buckets would miss an update.
	check := r.check
	r.check = nil
	defer func() { r.check = check }()
	keep := r.next
	res.Tail, err = r.repeat(ctx, r.layers[:last.Layers[len(last.Layers)-1]+1], last.End())
	r.next = keep
	return err
}

// repeat measures SC-B over some layers, as often as time allows.
func (r *rank) repeat(ctx context.Context, layers []exchange.Layer, count int) (stats.Interval, error) {
	var all []float64
	n := aloneFirst
	for range 2 {
		s, err := r.turnOf(ctx, exchange.SCB, n, layers, count)
		if err != nil {
			return stats.Interval{}, err
		}
		slowest, err := r.slowest(ctx, s)
		if err != nil {
			return stats.Interval{}, err
		}
		all = append(all, slowest.total...)
		n = int(min(max(aloneSeconds*1e3/stats.Median(all).Median, 1), aloneMost))
	}
	return stats.Median(all), nil
}

// affordable returns how many iterations the budget allows, as the sum of
// computation and communication says that they take. All ranks know the same
// numbers.
func (c *Config) affordable(res *Result) int {
	if c.Budget == 0 {
		return c.Iterations
	}
	perTurn := float64(c.Turn+1) / float64(c.Turn)
	all := (res.Compute + res.Communication.Median) / 1e3 * float64(len(c.Designs)) * perTurn
	n := math.Floor(c.Budget / max(all, 1e-9))
	return int(max(min(n, float64(c.Iterations)), float64(min(budgetLeast, c.Iterations))))
}

// compare lets the designs take turns.
func (r *rank) compare(ctx context.Context, res *Result) error {
	all := make([]slowest, len(r.c.Designs))
	rng := rand.New(rand.NewPCG(uint64(r.count), 1))
	for done := -r.c.Warmup; done < r.c.Iterations; {
		n := min(r.c.Turn, r.c.Iterations-max(done, 0))
		r.trace = r.c.Trace
		if done < 0 {
			n, r.trace = min(r.c.Turn, -done), nil
		}
		if r.check != nil && r.next+(n+1)*len(r.c.Designs) > r.check.most() {
			return fmt.Errorf("replay: at most %d iterations can be checked: use fewer iterations or designs", r.check.most())
		}
		for _, i := range rng.Perm(len(r.c.Designs)) {
			r.trace.Describe("design", r.c.Designs[i].String())
			s, err := r.turn(ctx, r.c.Designs[i], n)
			if err != nil {
				return err
			}
			if done < 0 {
				continue
			}
			m, err := r.slowest(ctx, s)
			if err != nil {
				return err
			}
			all[i].add(m)
		}
		done += n
	}
	for i, d := range r.c.Designs {
		res.Rows = append(res.Rows, Row{
			Design: d.String(), Iterations: len(all[i].total), Iteration: stats.Median(all[i].total),
			WaitPush: stats.Median(all[i].push).Median, WaitPull: stats.Median(all[i].pull).Median,
		})
	}
	return nil
}

// slowest is what iterations took on the rank where it took longest, in ms.
type slowest struct{ total, push, pull []float64 }

func (a *slowest) add(b slowest) {
	a.total = append(a.total, b.total...)
	a.push = append(a.push, b.push...)
	a.pull = append(a.pull, b.pull...)
}

// slowest compares the ranks' samples. All ranks get the same.
func (r *rank) slowest(ctx context.Context, s []sample) (slowest, error) {
	n := len(s)
	v := make([]float64, 3*n)
	for i := range s {
		v[i], v[n+i], v[2*n+i] = s[i].total, s[i].push, s[i].pull
	}
	out, err := r.most(ctx, v...)
	if err != nil {
		return slowest{}, err
	}
	return slowest{out[:n], out[n : 2*n], out[2*n:]}, nil
}
