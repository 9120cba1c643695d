package replay

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/stats"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/syncer/coordinator"
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
	if len(c.turns()) == 1 {
		c.Turn = max(c.Iterations, 1) // the others have no turns
	}
	err := c.validate(comm.Size())
	work, serve, wrong := coordinator.Roles(comm.Nodes(), c.Workers.OrAll(), c.Servers.OrAll())
	if err == nil {
		err = wrong
	}
	var r *rank
	if err == nil {
		r, err = newRank(comm, c)
	}
	if err := comm.Agree(ctx, err); err != nil {
		return nil, err
	}
	defer r.close()
	if r.team, err = syncer.NewTeam(ctx, comm, work, serve); err != nil {
		return nil, err
	}
	defer r.team.Close()
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	if c.Check {
		members := r.team.Members()
		r.check = newChecker(slices.Index(members, comm.Rank()), len(members), r.buffers, r.layers)
		r.check.sparsity = r.c.Sparse.Or().Sparsity
		r.check.here = comm.Rank()
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
	if err := r.communicate(ctx, res); err != nil {
		return nil, err
	}
	if c.Ratio > 0 {
		r.scale = res.Communication.Median / (c.Ratio * report.Milliseconds(c.Profile.Compute()))
	}
	res.computation(c, r.scale)
	if len(c.Systems) > 0 {
		if err := r.prepareSystems(ctx); err != nil {
			return nil, err
		}
	}
	r.c.Iterations = c.affordable(res)
	if err := r.compare(ctx); err != nil {
		return nil, err
	}
	if err := r.rows(ctx, res); err != nil {
		return nil, err
	}
	res.judge()
	return res, nil
}

// rows fills in what all ways have come to.
func (r *rank) rows(ctx context.Context, res *Result) error {
	var late lateness
	v := []float64{0, 0}
	for _, w := range r.ways {
		late.sum, late.n, late.most = late.sum+w.late.sum, late.n+w.late.n, max(late.most, w.late.most)
		v = append(v, w.late.mean(), report.Milliseconds(w.products), float64(w.order.Longest))
	}
	v[0], v[1] = late.mean(), report.Milliseconds(late.most)
	v, err := r.most(ctx, v...)
	if err != nil {
		return err
	}
	res.LateMean, res.LateMost = v[0], v[1]
	for i, w := range r.ways {
		node := make([]float64, r.comm.Layout().Nodes)
		node[r.comm.Nodes()[r.comm.Rank()]] = float64(w.payload.Sent + w.payload.Received)
		if err := r.comm.Allreduce(ctx, mem.Of(node), mem.Of(node), mem.Float64, mem.Sum); err != nil {
			return err
		}
		counts := []int64{w.order.Inversions, w.order.Sums, w.order.Patience}
		if err := r.comm.Allreduce(ctx, mem.Of(counts), mem.Of(counts), mem.Int64, mem.Sum); err != nil {
			return err
		}
		if err := r.same(ctx, w.spans); err != nil {
			return err
		}
		row := w.row(&r.c)
		if res.Systems {
			row.OverFirst = w.over(r.ways[0])
		}
		row.Order = nbc.Order{Inversions: counts[0], Sums: counts[1], Patience: counts[2], Longest: time.Duration(v[4+3*i])}
		r.c.Trace.Describe("order", row.Order.String()) // a timeline is of one way
		row.Nodes, row.Ranks = res.Nodes, res.Ranks
		row.Carrying = 1e3 * r.comm.Selector().Model.Carrying(stat.Mean(node, nil))
		row.Late, row.NodeBytes, row.Products = v[2+3*i], node, v[3+3*i]*r.scale*max(r.c.Straggler.Factor, 1)
		res.Rows = append(res.Rows, row)
	}
	return r.predict(ctx, res)
}

// same makes turns on all ranks those of rank 0, which the report is of.
func (r *rank) same(ctx context.Context, turns []Span) error {
	v := make([]int64, 0, 2*len(turns))
	for _, t := range turns {
		v = append(v, t.Begin.UnixNano(), t.End.UnixNano())
	}
	if err := r.comm.Bcast(ctx, mem.Of(v), mem.Int64, 0); err != nil {
		return err
	}
	for i := range turns {
		turns[i] = Span{time.Unix(0, v[2*i]), time.Unix(0, v[2*i+1])}
	}
	return nil
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
		Ranks: r.comm.Size(), Workers: len(r.team.Members()), Nodes: r.comm.Layout().Nodes, Spec: r.c.Spec.Name(), Checked: r.c.Check,
		Ratio: r.c.Ratio, Jitter: r.c.Jitter, Straggler: r.c.Straggler,
		Systems: len(r.c.Systems) > 0,
	}
	if len(r.c.Systems) > 0 {
		return res, nil
	}
	chosen := r.alone.plan
	x, err := r.exchange(ctx, exchange.SCOBR, chosen, r.all(chosen))
	if err != nil {
		return nil, err
	}
	defer x.Close()
	res.Scheme = r.c.Asked.Or(r.c.Scheme).String()
	if chosen.audit != nil {
		res.Chosen, res.Choices = chosen.audit.Chosen().String(), chosen.audit.Text()
	}
	buckets := x.Buckets()
	res.Bucket, res.Buckets = x.MinBucket(), len(buckets)
	res.LastBytes = buckets[0].Bytes()
	r.traced(buckets)
	return res, nil
}

// describeFirst says what is in the timeline of the first system.
func (r *rank) describeFirst(ctx context.Context) error {
	w := r.ways[0]
	x, err := r.exchange(ctx, w.design, w.plan, r.all(w.plan))
	if err != nil {
		return err
	}
	defer x.Close()
	r.traced(x.Buckets())
	return nil
}

// traced says what is in a timeline.
func (r *rank) traced(buckets []exchange.Bucket) {
	var names []trace.Bucket
	for _, b := range buckets {
		names = append(names, trace.Bucket{Bucket: b.Index, Name: b.Name, Layers: b.Layers})
	}
	r.c.Trace.SetBuckets(names)
	r.c.Trace.Describe("profile", r.c.Profile.Name)
}

// communicate measures the communication without computation: all of it, and that of
// the bucket that is pushed last, which for systems is of no matter.
func (r *rank) communicate(ctx context.Context, res *Result) error {
	r.scale = 0
	defer func() { r.scale = 1 }()
	p := r.alone.plan
	var err error
	if res.Communication, err = r.repeat(ctx, r.all(p)); err != nil || len(r.c.Systems) > 0 {
		return err
	}
	x, err := r.exchange(ctx, exchange.SCOBR, p, r.all(p))
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
	res.Tail, err = r.repeat(ctx, part{p.layers[:last.Layers[len(last.Layers)-1]+1], last.End()})
	r.next = keep
	return err
}

// repeat measures some layers alone, as often as time allows; where no ratio is asked for, which it
// is the base of, less often for systems.
func (r *rank) repeat(ctx context.Context, of part) (stats.Interval, error) {
	var all []float64
	n, rounds := aloneFirst, 2
	if len(r.c.Systems) > 0 && r.c.Ratio == 0 {
		rounds = 1
	}
	for range rounds {
		s, err := r.turnOf(ctx, &r.alone, n, of)
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
	all := (res.Compute + res.Communication.Median) / 1e3 * float64(len(c.turns())) * perTurn
	n := math.Floor(c.Budget / max(all, 1e-9))
	return int(max(min(n, float64(c.Iterations)), float64(min(budgetLeast, c.Iterations))))
}

// compare lets the ways take turns.
func (r *rank) compare(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(uint64(r.count), 1))
	for done := -r.c.Warmup; done < r.c.Iterations; {
		n := min(r.c.Turn, r.c.Iterations-max(done, 0))
		r.trace = r.c.Trace
		if done < 0 {
			n, r.trace = min(r.c.Turn, -done), nil
		}
		if r.check != nil && r.next+(n+1)*len(r.ways) > r.check.most() {
			return fmt.Errorf("replay: at most %d iterations can be checked: use fewer iterations or designs", r.check.most())
		}
		for _, i := range rng.Perm(len(r.ways)) {
			w := r.ways[i]
			r.trace.Describe("design", w.name)
			s, err := r.turn(ctx, w, n)
			if err != nil {
				return err
			}
			if done < 0 {
				w.late, w.order = lateness{}, nbc.Order{}
				continue
			}
			m, err := r.slowest(ctx, s)
			if err != nil {
				return err
			}
			w.add(m)
			w.spans = append(w.spans, w.span)
			w.turns = append(w.turns, stats.Median(m.total).Median)
		}
		done += n
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
