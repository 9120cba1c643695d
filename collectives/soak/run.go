package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
)

// Run runs a rank's part of a program on the communicator of the world, and
// returns what was wrong. The others learn of it.
func Run(ctx context.Context, world *collectives.Comm, p *Program) error {
	r := &runner{
		p: p, world: world, rank: world.Rank(),
		comms: map[int]*collectives.Comm{0: world}, requests: map[int]*request{},
		random: rand.New(rand.NewPCG(p.Seed, 1000+uint64(world.Rank()))),
	}
	for i, s := range p.steps {
		if err := r.step(ctx, s); err != nil {
			err = fmt.Errorf("step %d, rank %d: %w (%v)", i, r.rank, err, s)
			_ = world.Engine().Abort(ctx, err.Error())
			return err
		}
	}
	if p.aborts() {
		return nil
	}
	if err := world.Barrier(ctx); err != nil {
		return err
	}
	return quiet(ctx, world.Engine())
}

// quiet returns when no collective is under way, whose caller may not have waited.
func quiet(ctx context.Context, e *nbc.Engine) error {
	for ctx.Err() == nil && e.Err() == nil {
		asked := time.Now()
		blocked := e.Blocked()
		if len(blocked) == 0 && time.Since(asked) < 100*time.Millisecond { // later it means that it is not known
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return errors.Join(ctx.Err(), e.Err())
}

// aborts reports whether a rank gives up at the end.
func (p *Program) aborts() bool {
	_, aborts := p.steps[len(p.steps)-1].(abort)
	return aborts
}

// runner is a rank that runs a program.
type runner struct {
	p        *Program
	world    *collectives.Comm
	rank     int
	comms    map[int]*collectives.Comm
	requests map[int]*request
	random   *rand.Rand // this rank's own
}

// request is a persistent one, or one that runs once.
type request struct {
	*nbc.Request
	buffers
	executions uint64
}

// buffers are those of a call.
type buffers struct {
	data
	me         int // rank in the communicator
	send, recv mem.Buffer
	comm       *collectives.Comm
	registered bool
}

func (r *runner) step(ctx context.Context, s step) error {
	switch s := s.(type) {
	case split:
		return r.split(ctx, s)
	case closing:
		return r.close(s)
	case prepare:
		return r.prepare(s)
	case blocking:
		return r.blocking(ctx, s)
	case batch:
		return r.batch(ctx, s)
	case lanes:
		return r.lanes(ctx, s)
	case abort:
		return r.abort(ctx, s)
	}
	return fmt.Errorf("soak: unknown step %T", s)
}

func (r *runner) split(ctx context.Context, s split) error {
	c := r.comms[s.comm]
	if c == nil {
		return nil
	}
	made, err := c.Split(ctx, s.colors[c.Rank()], s.keys[c.Rank()])
	if err != nil {
		return err
	}
	n := s.news[r.rank]
	switch {
	case (made == nil) != (n < 0):
		return fmt.Errorf("a communicator was made: %v", made != nil)
	case made == nil:
		return nil
	case made.Size() != len(r.p.comms[n]) || made.Rank() != slices.Index(r.p.comms[n], r.rank):
		return fmt.Errorf("rank %d of %d, want that of %d in %v", made.Rank(), made.Size(), r.rank, r.p.comms[n])
	}
	r.comms[n] = made
	return nil
}

func (r *runner) close(s closing) error {
	for _, i := range s.requests {
		if q := r.requests[i]; q != nil {
			q.Close()
			q.free()
			delete(r.requests, i)
		}
	}
	for _, i := range s.comms {
		if c := r.comms[i]; c != nil {
			if err := c.Close(); err != nil {
				return err
			}
			if err := c.Barrier(context.Background()); !errors.Is(err, collectives.ErrClosed) {
				return fmt.Errorf("a barrier on a closed communicator: %w", err)
			}
			delete(r.comms, i)
		}
	}
	return nil
}

func (r *runner) prepare(s prepare) error {
	for _, i := range s.requests {
		k := r.p.calls[i]
		c := r.comms[k.comm]
		if c == nil {
			continue
		}
		b, err := r.buffers(c, k)
		if err != nil {
			return err
		}
		q, err := b.init()
		if err != nil {
			return err
		}
		r.requests[i] = &request{Request: q, buffers: b}
	}
	return nil
}

func (r *runner) blocking(ctx context.Context, s blocking) error {
	c := r.comms[s.comm]
	if c == nil {
		return nil
	}
	if !s.impatient[r.rank] {
		b, err := r.buffers(c, s.call)
		if err != nil {
			return err
		}
		for i := range 1 + s.key%3 { // the second finds a request that was kept
			b.fillNow(i)
			if err := b.run(ctx); err != nil {
				return err
			}
			if err := b.checkNow(); err != nil {
				return err
			}
			if slices.Contains(s.impatient, true) {
				break
			}
		}
		b.free()
		return nil
	}
	b, err := r.buffersOf(c, s.call, 0) // which the collector takes when all have finished
	if err != nil {
		return err
	}
	b.fillNow(0)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	err = b.run(ended)
	if err == nil {
		return b.checkNow()
	}
	if !errors.Is(err, context.Canceled) { // otherwise it goes on, in memory that is used no more
		return err
	}
	return nil
}

// batch starts everything before it waits for anything: so no order of starts,
// and none of waiting, can deadlock.
func (r *runner) batch(ctx context.Context, s batch) error {
	starts := make([]*request, len(s.once)) // nil stands for one that runs once
	for _, i := range s.requests {
		if q := r.requests[i]; q != nil {
			starts = append(starts, q)
		}
	}
	r.random.Shuffle(len(starts), func(i, j int) { starts[i], starts[j] = starts[j], starts[i] })
	var under []*request
	once := s.once // all ranks make them in this order
	for _, q := range starts {
		if q != nil {
			q.executions++
			q.fillNow(q.executions)
			if err := q.Start(); err != nil {
				return err
			}
			under = append(under, q)
			continue
		}
		k := once[0]
		once = once[1:]
		c := r.comms[k.comm]
		if c == nil {
			continue
		}
		b, err := r.buffers(c, k)
		if err != nil {
			return err
		}
		b.fillNow(0)
		q, err := b.start()
		if err != nil {
			return err
		}
		under = append(under, &request{Request: q, buffers: b})
		defer func() {
			q.Close()
			b.free()
		}()
	}
	between := s.between
	r.random.Shuffle(len(under), func(i, j int) { under[i], under[j] = under[j], under[i] })
	for len(under)+len(between) > 0 {
		if len(under) == 0 || len(between) > 0 && r.random.IntN(3) == 0 {
			k := between[0]
			between = between[1:]
			if err := r.blocking(ctx, blocking{call: k, impatient: make([]bool, r.p.Ranks)}); err != nil {
				return err
			}
			continue
		}
		q := under[0]
		under = under[1:]
		if err := r.wait(ctx, q); err != nil {
			return err
		}
		if err := q.checkNow(); err != nil {
			return err
		}
	}
	return nil
}

// wait waits for a request, sometimes in two attempts.
func (r *runner) wait(ctx context.Context, q *request) error {
	switch r.random.IntN(4) {
	case 0:
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := q.Wait(ended); err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	case 1:
		if _, err := q.Test(); err != nil {
			return err
		}
	}
	return q.Wait(ctx)
}

func (r *runner) lanes(ctx context.Context, s lanes) error {
	results := make(chan error)
	n := 0
	for _, l := range s {
		c := r.comms[l.calls[0].comm]
		if c == nil {
			continue
		}
		n++
		go func() { results <- r.lane(ctx, c, l) }()
	}
	var errs []error
	for range n {
		errs = append(errs, <-results)
	}
	return errors.Join(errs...)
}

func (r *runner) lane(ctx context.Context, c *collectives.Comm, l lane) error {
	calls := func(c *collectives.Comm, calls []call) error {
		for _, k := range calls {
			b, err := r.buffers(c, k)
			if err != nil {
				return err
			}
			b.fillNow(0)
			if err := errors.Join(b.run(ctx), b.checkNow()); err != nil {
				return err
			}
			b.free()
		}
		return nil
	}
	if err := calls(c, l.calls); err != nil || len(l.onDup) == 0 {
		return err
	}
	dup, err := c.Dup(ctx)
	if err != nil {
		return err
	}
	return errors.Join(calls(dup, l.onDup), dup.Close())
}

func (r *runner) abort(ctx context.Context, s abort) error {
	reason := fmt.Sprintf("soak %d: the disk of rank %d is full", r.p.Seed, s.rank)
	err := r.world.Barrier(ctx) // the steps before are over everywhere
	if r.rank == s.rank {
		if err != nil {
			return err
		}
		return r.world.Engine().Abort(ctx, reason)
	}
	if err == nil {
		var b buffers
		if b, err = r.buffers(r.world, s.waits); err != nil {
			return err
		}
		b.fillNow(0)
		err = b.run(ctx)
	}
	var abort *nbc.AbortError
	if !errors.As(err, &abort) || abort.Rank != s.rank || abort.Reason != reason {
		return fmt.Errorf("rank %d gave up, but the collective ended with %w", s.rank, err)
	}
	return nil
}

// buffers returns memory for a call of this rank: Go's, the system's, or
// registered.
func (r *runner) buffers(c *collectives.Comm, k call) (buffers, error) {
	return r.buffersOf(c, k, mix(r.p.Seed+k.key*31+uint64(r.rank)*7)%3)
}

func (r *runner) buffersOf(c *collectives.Comm, k call, kind uint64) (buffers, error) {
	b := buffers{data: data{call: k, size: c.Size()}, me: c.Rank(), comm: c}
	alloc := func(wanted bool, count int) (mem.Buffer, error) {
		n := k.dt.Bytes(count)
		switch {
		case !wanted || n == 0:
			return mem.Buffer{}, nil
		case kind == 0:
			return mem.Of(make([]int64, (n+7)/8)).Slice(0, n), nil
		case kind == 1:
			return mem.Alloc(n), nil
		}
		b.registered = true
		return c.Alloc(n)
	}
	var err error
	if b.recv, err = alloc(b.gets(b.me) && !b.within(b.me), b.got(b.me).Len); err != nil {
		return b, err
	}
	own := b.part(b.me)
	at, n := k.dt.Bytes(own.Off), k.dt.Bytes(own.Len)
	switch {
	case k.collective.Parts() && !k.collective.Gathers():
		if b.send, err = alloc(b.gives(b.me), k.count); err == nil && b.within(b.me) {
			b.recv = b.send.Slice(at, n)
		}
	case k.collective.Gathers() && k.inPlace && b.gets(b.me):
		b.send = b.recv.Slice(at, n)
	case k.collective == schedule.Bcast || k.inPlace && b.gets(b.me):
		b.send = b.recv
	default:
		b.send, err = alloc(true, own.Len)
	}
	return b, err
}

// within reports whether a rank's result is a part of what it gives.
func (d *data) within(rank int) bool {
	return d.inPlace && d.collective.Parts() && !d.collective.Gathers() && d.gives(rank)
}

func (b *buffers) fillNow(execution uint64) {
	b.data.key = mix(b.call.key)*31 + execution
	b.fill(mem.Bytes(b.send), mem.Bytes(b.recv), b.me)
}

func (b *buffers) checkNow() error { return b.check(mem.Bytes(b.send), mem.Bytes(b.recv), b.me) }

// free gives memory back that no operation uses.
func (b *buffers) free() {
	both := []mem.Buffer{b.recv, b.send} // first what the other may be a part of
	if b.collective.Parts() && !b.collective.Gathers() {
		slices.Reverse(both)
	}
	for _, m := range both {
		switch {
		case m.OnGoHeap() || m.Len() == 0:
		case b.registered:
			b.comm.Free(m)
		default:
			m.Free()
		}
		if b.send.Overlaps(b.recv) {
			break
		}
	}
	b.send, b.recv = mem.Buffer{}, mem.Buffer{}
}

func (b *buffers) options() []collectives.Option {
	o := []collectives.Option{collectives.Priority(b.priority), collectives.Credit(int(b.key%3) * 200_000)}
	if b.spec != "" {
		s, err := spec.Parse(b.spec)
		if err != nil {
			panic(err) // Specs has only specs
		}
		return append(o, collectives.With(s))
	}
	if b.priority == 0 && b.key%2 == 0 {
		return nil // the call that is kept
	}
	return o
}

// asked is the call with its buffers.
func (b *buffers) asked() collectives.Call {
	k := collectives.Call{Collective: b.collective, Send: b.send, Recv: b.recv, Datatype: b.dt, Op: b.op, Root: b.root}
	if b.collective.Parts() {
		for rank := range b.size {
			k.Counts = append(k.Counts, b.part(rank).Len)
		}
	}
	return k
}

func (b *buffers) run(ctx context.Context) error { return b.comm.Do(ctx, b.asked(), b.options()...) }

func (b *buffers) start() (*nbc.Request, error) { return b.comm.Start(b.asked(), b.options()...) }

func (b *buffers) init() (*nbc.Request, error) { return b.comm.Init(b.asked(), b.options()...) }
