package ps

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/syncer"
)

// Links connect every worker with every server, two by two, so that workers may be some iterations
// apart: stale synchronous parallel (Ho et al., NIPS 2013), which the servers that Poseidon stands on
// offer. A server applies each worker's gradients to its pairs as they arrive. It answers a
// push of iteration t with the parameters once they have in them what all workers have pushed in
// iterations up to t−S: so nobody computes iteration t+1 without these.
//
// Iterations are allowed, on all ranks alike (Allow); servers then expect every worker's pushes.
type Links struct {
	team      *syncer.Team
	staleness int
	first     int                 // iteration
	store     Store               // of what this rank serves
	with      []*collectives.Comm // by rank: it and this one; nil where neither serves the other
	desks     []*desk             // by worker; nil for this rank itself, and where it serves nothing
	iter      int                 // of this worker's pushes
	ctx       context.Context     // of Open
	wait      sync.WaitGroup      // the desks
	rest      sync.WaitGroup      // what was allowed and has not been served
}

// Store is what a rank serves. Calls for the same elements come one after the other.
type Store interface {
	// Apply updates elements of the packed buffers by what one worker, by its number among
	// them, has pushed in an iteration.
	Apply(worker, iter int, r Range, gradients mem.Buffer) error
	// Read says what they are.
	Read(r Range, parameters mem.Buffer)
}

// NewLinks connects the workers of a team, and servers, which are ranks of all, for iterations from
// first on. It is a collective.
func NewLinks(ctx context.Context, team *syncer.Team, servers []int, staleness, first int, store Store) (*Links, error) {
	l := &Links{team: team, staleness: staleness, first: first, store: store, desks: make([]*desk, len(team.Members()))}
	var err error
	l.with, err = twoByTwo(ctx, team, servers)
	return l, err
}

// twoByTwo makes, by rank, the communicators of it and this one where one of the two works and the other serves. It is a
// collective.
func twoByTwo(ctx context.Context, team *syncer.Team, servers []int) (with []*collectives.Comm, err error) {
	all := team.All()
	rank, size := all.Rank(), all.Size()
	with = make([]*collectives.Comm, size)
	serves := func(server, worker int) bool { return slices.Contains(servers, server) && team.Works(worker) }
	// In round k, ranks whose sum is k modulo size are two by two: so all pairs take size rounds.
	for k := range size {
		other := (k - rank + size) % size
		color := -1
		if other != rank && (serves(rank, other) || serves(other, rank)) {
			color = min(rank, other)
		}
		c, err := all.Split(ctx, color, rank)
		if err != nil {
			closeAll(with)
			return nil, err
		}
		if c != nil {
			with[other] = c
		}
	}
	return with, nil
}

func closeAll(comms []*collectives.Comm) {
	for _, c := range comms {
		if c != nil {
			c.Close()
		}
	}
}

// New returns the syncer of a bucket, which begins at element off of the packed buffers, by which this
// worker is in step with the servers alone; none of its parts is its caller's to update. All ranks
// must make the same syncers in the same order, before Open.
func (l *Links) New(b syncer.Bucket, off int, pairs []Pair, opts ...collectives.Option) (syncer.Syncer, error) {
	w := &link{links: l}
	rank := l.team.All().Rank()
	self := slices.Index(l.team.Members(), rank)
	how := append(opts[:len(opts):len(opts)], collectives.With(spec.Spec{Levels: []spec.Level{linear}}))
	var pushes []*nbc.Request
	for _, p := range pairs {
		if self >= 0 {
			w.parts = append(w.parts, syncer.Part{Range: p.Range})
		}
		var err error
		switch {
		case p.Server == rank:
			s := l.shelf(Range{Off: off + p.Off, Len: p.Len})
			if self >= 0 {
				own := &ownPart{part: len(w.parts) - 1, shelf: s, diff: part(b.Diff, p.Range), answered: make(chan struct{}, 1)}
				s.answer[self] = func() error {
					l.store.Read(s.Range, part(b.Data, p.Range))
					own.answered <- struct{}{}
					return nil
				}
				w.own, w.pull = append(w.own, own), append(w.pull, nil)
			}
			var served nbc.Payload
			served, err = l.expect(s, b.Called(p.Off), how, b.Pulls)
			w.payload = w.payload.Add(served)
		case self >= 0:
			var push, pull *nbc.Request
			if push, pull, err = l.requests(p.Server, true, part(b.Diff, p.Range), part(b.Data, p.Range), b.Called(p.Off), how, b.Pulls); err == nil {
				pushes = append(pushes, push)
				w.others, w.pull = append(w.others, len(w.parts)-1), append(w.pull, pull)
				w.payload = w.payload.Add(push.Payload()).Add(pull.Payload())
			}
		}
		if err != nil {
			w.push = nbc.NewSet(pushes...)
			w.Close()
			return nil, fmt.Errorf("bucket %q: KV pair %v at rank %d: %w", b.Name, p.Range, p.Server, err)
		}
	}
	w.push = nbc.NewSet(pushes...)
	w.self = self
	return w, nil
}

// requests makes those of a push and a pull between this rank and another; pulls are more options of the pull.
func (l *Links) requests(other int, pushes bool, gradients, parameters mem.Buffer, about string, how, pulls []collectives.Option) (push, pull *nbc.Request, err error) {
	mine := 0 // this rank's number of the two
	if l.team.All().Rank() > other {
		mine = 1
	}
	worker, server := mine, 1-mine
	if !pushes {
		worker, server = server, worker
	}
	how = append(how[:len(how):len(how)], collectives.Served(about, server))
	if push, err = l.with[other].BcastInit(gradients, mem.Float32, worker, how...); err != nil {
		return nil, nil, err
	}
	if pull, err = l.with[other].BcastInit(parameters, mem.Float32, server, slices.Concat(how, pulls)...); err != nil {
		push.Close()
		return nil, nil, err
	}
	return push, pull, nil
}

// shelf is one pair at its server.
type shelf struct {
	Range
	turn sync.Mutex

	next    []int          // by worker: the iteration whose push comes next
	waiting []bool         // by worker: for the answer to the push before that
	answer  []func() error // by worker
}

func (l *Links) shelf(r Range) *shelf {
	n := len(l.team.Members())
	return &shelf{Range: r, next: slices.Repeat([]int{l.first}, n), waiting: make([]bool, n), answer: make([]func() error, n)}
}

// take applies what a worker has pushed, and gives all workers their answers that may have them now.
func (l *Links) take(s *shelf, worker, iter int, gradients mem.Buffer) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	if err := l.store.Apply(worker, iter, s.Range, gradients); err != nil {
		return err
	}
	s.next[worker], s.waiting[worker] = iter+1, true
	all := slices.Min(s.next)
	for i := range s.next {
		if !s.waiting[i] || all < s.next[i]-l.staleness {
			continue
		}
		s.waiting[i] = false
		if err := s.answer[i](); err != nil {
			return err
		}
	}
	return nil
}

// desk is where a server serves one other worker.
type desk struct {
	worker   int
	pushes   *nbc.Set
	begun    []*nbc.Request // of pushes
	drawers  []drawer
	allowed  chan int // iterations
	answered chan struct{}
}

// drawer is one pair at a desk.
type drawer struct {
	shelf   *shelf
	content mem.Buffer // the gradients that come, then the parameters that go
	pull    *nbc.Request
}

// mostAllowed is how many iterations may be allowed, and not served, before Allow waits.
const mostAllowed = 1 << 10

// expect makes what this server needs to serve a pair to the other workers, and returns what that moves in
// an iteration.
func (l *Links) expect(s *shelf, about string, how, pulls []collectives.Option) (moves nbc.Payload, err error) {
	for i, worker := range l.team.Members() {
		if worker == l.team.All().Rank() {
			continue
		}
		content, err := l.team.All().Alloc(mem.Float32.Bytes(s.Len))
		if err != nil {
			return moves, err
		}
		push, pull, err := l.requests(worker, false, content, content, about, how, pulls)
		if err != nil {
			return moves, err
		}
		moves = moves.Add(push.Payload()).Add(pull.Payload())
		if l.desks[i] == nil {
			l.desks[i] = &desk{worker: i, allowed: make(chan int, mostAllowed)}
		}
		d := l.desks[i]
		d.begun, d.drawers = append(d.begun, push), append(d.drawers, drawer{s, content, pull})
		s.answer[i] = func() error {
			l.store.Read(s.Range, content)
			if err := pull.Start(); err != nil {
				return err
			}
			d.answered <- struct{}{}
			return nil
		}
	}
	return moves, nil
}

// Open begins to serve: a goroutine for each worker, until ctx ends. fail is told of what goes
// wrong there.
func (l *Links) Open(ctx context.Context, fail context.CancelCauseFunc) {
	l.ctx = ctx
	for _, d := range l.desks {
		if d == nil {
			continue
		}
		d.pushes, d.answered = nbc.NewSet(d.begun...), make(chan struct{}, len(d.drawers))
		l.wait.Go(func() {
			var err error
			for iter := range d.allowed {
				if err == nil {
					if err = l.serve(d, iter); err != nil {
						fail(err)
					}
				}
				l.rest.Done() // or nothing is served any more
			}
		})
	}
}

// serve takes all that a worker pushes in an iteration, and waits until it has been answered.
func (l *Links) serve(d *desk, iter int) error {
	if err := d.pushes.Start(); err != nil {
		return err
	}
	for range d.drawers {
		i, err := d.pushes.Next(l.ctx)
		if err != nil {
			return err
		}
		if err := l.take(d.drawers[i].shelf, d.worker, iter, d.drawers[i].content); err != nil {
			return err
		}
	}
	for range d.drawers {
		select {
		case <-d.answered:
		case <-l.ctx.Done():
			return context.Cause(l.ctx)
		}
	}
	for _, w := range d.drawers {
		if err := w.pull.Wait(l.ctx); err != nil {
			return err
		}
	}
	return nil
}

// Allow has every worker's pushes of one more iteration expected. Iterations are allowed in their order.
func (l *Links) Allow(iter int) {
	for _, d := range l.desks {
		if d != nil {
			l.rest.Add(1)
			d.allowed <- iter
		}
	}
}

// Begin says of which iteration this worker's next pushes are.
func (l *Links) Begin(iter int) { l.iter = iter }

// Rest waits until this rank has served the other ranks all that was allowed. What it serves to itself
// its own syncers have waited for.
func (l *Links) Rest() error {
	l.rest.Wait()
	return context.Cause(l.ctx)
}

// Close ends what Open has begun, whose context has ended, and gives back what NewLinks has made.
func (l *Links) Close() {
	for _, d := range l.desks {
		if d != nil {
			close(d.allowed)
		}
	}
	l.wait.Wait()
	for _, d := range l.desks {
		if d == nil {
			continue
		}
		for i, r := range d.begun {
			r.Close()
			d.drawers[i].pull.Close()
		}
	}
	closeAll(l.with)
	l.desks, l.with = nil, nil
}

// link is one worker's part in a bucket's pairs.
type link struct {
	links   *Links
	self    int // the worker's number
	parts   []syncer.Part
	push    *nbc.Set
	others  []int          // the parts that push moves
	pull    []*nbc.Request // by part; nil for its own
	own     []*ownPart     // that this rank serves itself
	payload nbc.Payload

	iter   int // of the push under way
	served int // of own
}

// ownPart is one that a rank serves to itself.
type ownPart struct {
	part     int
	shelf    *shelf
	diff     mem.Buffer
	answered chan struct{}
}

func (w *link) Parts() []syncer.Part { return w.parts }

func (w *link) Push() error {
	w.iter, w.served = w.links.iter, 0
	return w.push.Start()
}

// Pushed takes what this rank serves itself while the rest is under way.
func (w *link) Pushed(ctx context.Context) (int, error) {
	if w.served < len(w.own) {
		o := w.own[w.served]
		w.served++
		return o.part, w.links.take(o.shelf, w.self, w.iter, o.diff)
	}
	i, err := w.push.Next(ctx)
	return w.others[i], err
}

func (w *link) Pull(part int) error {
	if w.pull[part] == nil { // the answer comes by itself
		return nil
	}
	return w.pull[part].Start()
}

func (w *link) Pulled(ctx context.Context) error {
	for _, r := range w.pull {
		if r == nil {
			continue
		}
		if err := r.Wait(ctx); err != nil {
			return err
		}
	}
	for _, o := range w.own {
		select {
		case <-o.answered:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (w *link) Payload() nbc.Payload { return w.payload }

func (w *link) Close() {
	w.push.Close()
	for _, r := range w.pull {
		if r != nil {
			r.Close()
		}
	}
}
