package replay

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/trace"
)

// rank is this rank's part in a replay.
type rank struct {
	c      Config
	comm   *collectives.Comm // of all ranks
	team   *syncer.Team
	layers []exchange.Layer // without factors
	count  int              // elements of a packed buffer
	buffers
	check *checker // nil: none

	ways     []*way                          // which take turns
	alone    way                             // what the communication alone is measured of
	networks map[string]*coordinator.Network // the first that has predicted for workers on such nodes

	// The computing goroutine's.
	wait  *waiter
	from  time.Time // where the computation has begun that reach has not waited for
	at    time.Time // where the schedule of computation has come to
	scale float64   // of the profile's times, for all ranks alike
	own   float64   // of them in this iteration on this rank
	gates []bool    // by layer: the first of its bucket, whose hooks may wait or start something
	next  int       // the next iteration's number
	trace *trace.Recorder
	meter trace.Meter
	late  *lateness // of the turn

	updates    sync.Mutex // one at a time
	updateWait *waiter

	processor    processor
	multiplying  sync.Mutex // one at a time
	multiplyWait *waiter
}

// sample is what an iteration took on this rank, in ms.
type sample struct{ total, push, pull float64 }

func newRank(comm *collectives.Comm, c Config) (*rank, error) {
	r := &rank{c: c, comm: comm, team: syncer.Everyone(comm), scale: 1, late: &lateness{}, networks: map[string]*coordinator.Network{}}
	r.layers, r.count = layout(c.Profile)
	for _, w := range []**waiter{&r.wait, &r.updateWait, &r.multiplyWait} {
		var err error
		if *w, err = newWaiter(); err != nil {
			r.close()
			return nil, err
		}
	}
	var err error
	if r.buffers, err = allocate(comm, r.count); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// close gives the timers back.
func (r *rank) close() {
	for _, w := range []*waiter{r.wait, r.updateWait, r.multiplyWait} {
		if w != nil {
			w.close()
		}
	}
}

// free gives the buffers back; nothing may be in flight.
func (r *rank) free() {
	r.comm.Free(r.data)
	r.comm.Free(r.diff)
}

// part is neighboring layers from the first on, and the elements that are theirs.
type part struct {
	layers []exchange.Layer
	count  int
}

// all is the whole net under a plan.
func (r *rank) all(p *plan) part { return part{p.layers, r.count} }

// works reports whether this rank computes.
func (r *rank) works() bool { return r.team.Works(r.comm.Rank()) }

// momentum is that of the scheme DGC: how large it is costs nothing.
const momentum = 0.9

// exchange makes the exchange of a part of the net.
func (r *rank) exchange(ctx context.Context, d exchange.Design, p *plan, of part) (*exchange.Exchange, error) {
	bytes := mem.Float32.Bytes(of.count)
	schemes := p.schemes[:len(of.layers)]
	var book *coordinator.Book
	if slices.ContainsFunc(schemes, exchange.Scheme.Served) {
		var err error
		if book, err = r.book(of.layers, p); err != nil { // with pairs of its own
			return nil, err
		}
	}
	config := exchange.Config{
		Design: d, Schemes: schemes, Spec: r.c.Spec, Bucket: p.bucket, Buckets: p.buckets, Slice: p.slice, Credit: p.credit, FirstCome: p.firstCome, Team: r.team, Book: book, Layers: of.layers, Momentum: momentum, Sparse: r.c.Sparse,
		Data: r.data.Slice(0, bytes), Diff: r.diff.Slice(0, bytes), OnSum: r.use, Events: trace.Sinks{&r.meter, r.trace},
	}
	if r.trace != nil {
		config.Disorder = r.trace
	}
	x, err := exchange.New(ctx, r.comm, config)
	if err != nil {
		return nil, err
	}
	p.buckets = x.MinBuckets() // what was chosen for all layers holds from now on
	r.gates = make([]bool, len(r.layers))
	for _, b := range x.Buckets() {
		r.gates[b.Layers[0]] = true
	}
	return x, nil
}

// turn runs n iterations of a way after one that does not count. All ranks
// call it together.
func (r *rank) turn(ctx context.Context, w *way, n int) ([]sample, error) {
	return r.turnOf(ctx, w, n, r.all(w.plan))
}

func (r *rank) turnOf(ctx context.Context, w *way, n int, of part) ([]sample, error) {
	x, err := r.exchange(ctx, w.design, w.plan, of)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	if of.count == r.count {
		w.products = r.rebuilt(w.plan, x)
	}
	r.late = &w.late
	if r.check != nil {
		r.check.begin(w.layers)
	}
	if err := r.comm.Barrier(ctx); err != nil {
		return nil, err
	}
	r.comm.TakeOrder() // nothing is under way
	first := r.next
	samples := make([]sample, 0, n)
	r.resume(time.Now())
	var mark time.Time
	var before trace.Totals
	for k := range n + 1 {
		if err := r.iteration(ctx, x, w.plan, of.layers); err != nil {
			return nil, err
		}
		now, totals := time.Now(), r.meter.Totals()
		if k > 0 {
			s := totals.Sub(before)
			if !r.works() { // it waits for the workers' computation too
				s = trace.Totals{}
			}
			samples = append(samples, sample{report.Milliseconds(now.Sub(mark)), report.Milliseconds(s.ExposedPush), report.Milliseconds(s.ExposedPull)})
			r.trace.Add(trace.Event{Kind: trace.Iteration, Name: w.name, Iter: int32(r.next - 1), Begin: mark, End: now})
		}
		if w.span.End = now; k == 0 {
			w.span.Begin = now
		}
		mark, before = now, totals
	}
	// All parameters arrive, so that the next turn finds them equal.
	if err := x.Current(); err != nil {
		return nil, err
	}
	if work := r.team.Members(); len(work) < r.comm.Size() { // who only served a part may serve another
		if err := r.comm.Bcast(ctx, r.data, mem.Float32, work[0]); err != nil {
			return nil, err
		}
	}
	w.order = w.order.Add(r.comm.TakeOrder())
	w.payload = nbc.Payload{}
	for _, a := range x.Accounts() {
		w.payload = w.payload.Add(a.Payload)
	}
	if r.check != nil && of.count == r.count && r.works() { // others have no more than they serve
		return samples, r.check.verify(w.name, first, r.next)
	}
	return samples, nil
}

// iteration computes and exchanges as a worker does. It ends where its
// backward phase does.
func (r *rank) iteration(ctx context.Context, x *exchange.Exchange, p *plan, layers []exchange.Layer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	iter := r.next
	r.next++
	r.own = r.scale * r.slower(iter)
	keeps := r.trace.Keeps(iter)
	if err := x.Start(iter); err != nil {
		return err
	}
	for i := range layers {
		if len(layers[i].Params) > 0 {
			if err := r.hook(r.gates[i], func() error { return x.BeforeForward(i) }); err != nil {
				return err
			}
		}
		if r.works() {
			r.compute(trace.Forward, i, iter, keeps, r.c.Profile.Layers[i].Forward)
		}
	}
	for i := len(layers) - 1; i >= 0; i-- {
		if r.works() {
			r.compute(trace.Backward, i, iter, keeps, p.backward[i])
		}
		if len(layers[i].Params) == 0 {
			continue
		}
		if r.check != nil && r.works() {
			r.check.backward(i, iter)
		}
		after := func() error {
			if r.works() {
				x.AfterPass(i, 0)
			}
			return x.AfterBackward(i)
		}
		if err := r.hook(r.gates[i], after); err != nil {
			return err
		}
	}
	return r.hook(true, x.Finish)
}

// lateness is how long after their points on the schedule waits ended.
type lateness struct {
	sum, most time.Duration
	n         int
}

func (l *lateness) add(d time.Duration) {
	l.sum += d
	l.most = max(l.most, d)
	l.n++
}

// mean is in milliseconds.
func (l *lateness) mean() float64 {
	if l.n == 0 {
		return 0
	}
	return report.Milliseconds(l.sum) / float64(l.n)
}

// compute puts a layer's pass on the schedule.
func (r *rank) compute(kind trace.Kind, layer, iter int, keeps bool, d time.Duration) {
	begin := r.at
	r.at = r.at.Add(time.Duration(float64(d) * r.own))
	if keeps && d > 0 {
		r.trace.Add(trace.Event{Kind: kind, Name: r.layers[layer].Name, Iter: int32(iter), Layer: int32(layer), Begin: begin, End: r.at})
	}
}

// hook calls a hook of the exchange, for a gate when the computation before it
// has ended. Where the hook waited, the schedule continues from there.
func (r *rank) hook(gate bool, f func() error) error {
	if !gate || !r.works() {
		return f()
	}
	if err := r.reach(); err != nil {
		return err
	}
	r.late.add(time.Since(r.at))
	before := r.meter.Totals().Exposed()
	err := f()
	if r.meter.Totals().Exposed() > before {
		if now := time.Now(); now.After(r.at) {
			r.resume(now)
		}
	}
	return err
}

// use is the update: a wait, and with a checker a look at the sums.
func (r *rank) use(iter int, s exchange.Sum) error {
	if !s.Updates {
		return nil
	}
	r.updates.Lock()
	defer r.updates.Unlock()
	begin := time.Now()
	part := float64(s.Len) / float64(r.count)
	if d := time.Duration(float64(r.c.Profile.Update) * part * r.scale * r.slower(iter)); d > 0 {
		if err := r.updateWait.until(begin.Add(d)); err != nil {
			return err
		}
		r.trace.Add(trace.Event{Kind: trace.Update, Name: s.Bucket.Name, Iter: int32(iter), Bucket: int32(s.Bucket.Index), Begin: begin, End: time.Now()})
	}
	if r.check != nil {
		return r.check.update(s, iter)
	}
	return nil
}

// slower returns how much slower than the profile's this rank's computation of
// an iteration is.
func (r *rank) slower(iter int) float64 {
	f := 1.0
	if r.c.Straggler.Factor > 0 && r.c.Straggler.Rank == r.comm.Rank() {
		f = r.c.Straggler.Factor
	}
	if r.c.Jitter > 0 {
		u := rand.New(rand.NewPCG(uint64(r.comm.Rank()), uint64(iter))).Float64()
		f *= 1 + r.c.Jitter*(2*u-1)
	}
	return f
}
