// Package inproc is the transport between ranks that are goroutines of one
// process: N ranks without MPI, for `scaffe train --local N` and for tests.
//
//	w := inproc.NewWorld(4, inproc.Options{})
//	e, err := nbc.Start(w.Open(2), device, nbc.Options{}) // rank 2's engine
//
// A message is copied once, by the receiver, from the sender's memory; a
// borrowing receiver reads it there without any copy. With a seed, messages
// are delivered in a random order, as much as the transport's contract allows:
// what must not depend on the order shows that it does not.
package inproc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/internal/backoff"
	"github.com/scaffe/scaffe/nbc/internal/fifo"
	"github.com/scaffe/scaffe/nbc/internal/match"
)

// Options of a world; the zero value delivers everything at once.
type Options struct {
	// Seed, unless 0, makes the order and delay of deliveries random.
	Seed uint64
	// Nodes is for every rank the index of the node on which it seems to be; nil is one node.
	Nodes []int
}

// World is the ranks of one process.
type World struct {
	ranks []*endpoint
	nodes []int
}

// NewWorld returns a world of n ranks.
func NewWorld(n int, opts Options) *World {
	w := &World{nodes: opts.Nodes}
	if w.nodes == nil {
		w.nodes = make([]int, n)
	}
	for r := range n {
		e := &endpoint{
			world: w, rank: r,
			lent: map[nbc.Token]sent{}, wake: make(chan struct{}, 1), timer: time.NewTimer(time.Hour),
			rest: backoff.Backoff{Spins: backoff.Spins(runtime.NumCPU(), n)},
		}
		if opts.Seed != 0 {
			e.random = rand.New(rand.NewPCG(opts.Seed, uint64(r)))
		}
		w.ranks = append(w.ranks, e)
	}
	return w
}

// Open returns what opens the transport of the given rank, once, for
// nbc.Start.
func (w *World) Open(rank int) func() (nbc.Transport, error) {
	return func() (nbc.Transport, error) { return w.ranks[rank], nil }
}

// sent is a message that its receiver has not taken yet.
type sent struct {
	tok    nbc.Token
	sender *endpoint
	src    mem.Buffer
	tag    nbc.Tag
}

// receive is what waits for a message.
type receive struct {
	tok    nbc.Token
	dst    mem.Buffer
	want   int // bytes
	borrow bool
}

// pair is a message and its receive.
type pair struct {
	sent
	receive
}

// notice is one that has arrived.
type notice struct {
	from int
	text []byte
}

// endpoint is one rank's transport.
type endpoint struct {
	world *World
	rank  int
	wake  chan struct{}
	timer *time.Timer
	// Short rests.
	rest  backoff.Backoff
	naps  backoff.Naps
	woken atomic.Bool

	mu      sync.Mutex
	waiting match.Table[receive, sent]
	met     fifo.Queue[pair]           // to be delivered by this rank's Poll
	ended   fifo.Queue[nbc.Completion] // sends that were taken
	notices []notice
	aborted *nbc.AbortError
	told    bool // this rank has aborted

	// What follows belongs to the goroutine of this rank.
	lent   map[nbc.Token]sent
	taken  []pair
	random *rand.Rand // nil: in order
}

var (
	_ nbc.Transport = (*endpoint)(nil)
	_ nbc.Notifier  = (*endpoint)(nil)
	_ nbc.Topology  = (*endpoint)(nil)
)

func (e *endpoint) Rank() int { return e.rank }
func (e *endpoint) Size() int { return len(e.world.ranks) }

func (e *endpoint) Nodes() []int { return e.world.nodes }

func (e *endpoint) Send(tok nbc.Token, to int, tag nbc.Tag, src mem.Buffer) error {
	if to < 0 || to >= len(e.world.ranks) {
		return fmt.Errorf("inproc: send to rank %d of %d", to, len(e.world.ranks))
	}
	p := e.world.ranks[to]
	m := sent{tok, e, src, tag}
	id := match.Identity{Peer: e.rank, Tag: tag}
	p.mu.Lock()
	r, matched := p.waiting.TakeReceive(id)
	if matched {
		p.met.Push(pair{m, r})
	} else {
		p.waiting.KeepMessage(id, m)
	}
	p.mu.Unlock()
	if matched {
		p.Wake()
	}
	return nil
}

func (e *endpoint) Recv(tok nbc.Token, from int, tag nbc.Tag, dst mem.Buffer) error {
	return e.receive(from, tag, receive{tok: tok, dst: dst, want: dst.Len()})
}

func (e *endpoint) RecvBorrow(tok nbc.Token, from int, tag nbc.Tag, n int) error {
	return e.receive(from, tag, receive{tok: tok, want: n, borrow: true})
}

func (e *endpoint) receive(from int, tag nbc.Tag, r receive) error {
	if from < 0 || from >= len(e.world.ranks) {
		return fmt.Errorf("inproc: receive from rank %d of %d", from, len(e.world.ranks))
	}
	id := match.Identity{Peer: from, Tag: tag}
	e.mu.Lock()
	defer e.mu.Unlock()
	if m, matched := e.waiting.TakeMessage(id); matched {
		e.met.Push(pair{m, r})
	} else {
		e.waiting.KeepReceive(id, r)
	}
	return nil
}

// Poll delivers what has met, and reports what has ended.
func (e *endpoint) Poll(done []nbc.Completion) (int, error) {
	e.mu.Lock()
	if e.aborted != nil {
		defer e.mu.Unlock()
		return 0, e.aborted
	}
	n := copy(done, e.ended.All())
	e.ended.Drop(n)
	met := e.met.All()
	k := min(len(done)-n, len(met))
	if e.random != nil && k > 0 {
		e.random.Shuffle(len(met), func(i, j int) { met[i], met[j] = met[j], met[i] })
		k = e.random.IntN(k + 1)
	}
	e.taken = append(e.taken[:0], met[:k]...)
	e.met.Drop(k)
	if e.met.Len() > 0 || e.ended.Len() > 0 {
		e.Wake()
	}
	e.mu.Unlock()
	for i := range e.taken {
		done[n] = e.deliver(&e.taken[i])
		n++
	}
	return n, nil
}

// deliver hands the message to the receiver, this rank.
func (e *endpoint) deliver(p *pair) nbc.Completion {
	c := nbc.Completion{Token: p.receive.tok}
	switch {
	case p.src.Len() != p.want:
		c.Err = fmt.Errorf("inproc: %w: rank %d sent %d bytes where rank %d expects %d as %v", nbc.ErrLength, p.sender.rank, p.src.Len(), e.rank, p.want, p.tag)
	case p.borrow:
		c.Data = p.src
		e.lent[p.receive.tok] = p.sent
		return c
	default:
		copy(mem.Bytes(p.dst), mem.Bytes(p.src))
	}
	p.sent.finish()
	return c
}

// finish tells the sender that its memory is its own again.
func (m *sent) finish() {
	s := m.sender
	s.mu.Lock()
	s.ended.Push(nbc.Completion{Token: m.tok})
	s.mu.Unlock()
	s.Wake()
}

func (e *endpoint) Release(tok nbc.Token) {
	if m, ok := e.lent[tok]; ok {
		delete(e.lent, tok)
		m.finish()
	}
}

// short is the least rest that timers of Go keep to: where nothing else runs its runtime waits by whole milliseconds.
const short = time.Millisecond

// Park rests for d, or until woken. A short rest, with a GPU at work, is first no rest at all where there are cores to spare,
// and then a nap in the kernel.
func (e *endpoint) Park(d time.Duration) {
	if d < short {
		switch {
		case e.woken.Swap(false):
			e.rest.Reset()
		case e.rest.Pause():
			e.naps.Nap(d, &e.woken)
		}
		return
	}
	e.timer.Reset(d)
	select {
	case <-e.wake:
	case <-e.timer.C:
	}
}

// Migrate does nothing: it is all the same which thread calls.
func (e *endpoint) Migrate() bool { return true }

func (e *endpoint) Wake() {
	e.woken.Store(true)
	select {
	case e.wake <- struct{}{}:
	default:
	}
	e.naps.End()
}

func (e *endpoint) Abort(_ context.Context, reason string) error {
	e.mu.Lock()
	told := e.told
	e.told = true
	e.mu.Unlock()
	if told {
		return nil
	}
	for _, p := range e.world.ranks {
		if p == e {
			continue
		}
		p.mu.Lock()
		if p.aborted == nil {
			p.aborted = &nbc.AbortError{Rank: e.rank, Reason: reason}
		}
		p.mu.Unlock()
		p.Wake()
	}
	return nil
}

// Notify hands a notice to rank to.
func (e *endpoint) Notify(to int, text []byte) error {
	if to < 0 || to >= len(e.world.ranks) || len(text) > nbc.NoticeRoom {
		return fmt.Errorf("inproc: notice of %d bytes to rank %d of %d", len(text), to, len(e.world.ranks))
	}
	p := e.world.ranks[to]
	p.mu.Lock()
	if len(p.notices) < mostNotices {
		p.notices = append(p.notices, notice{e.rank, slices.Clone(text)})
	}
	p.mu.Unlock()
	p.Wake()
	return nil
}

// mostNotices bounds what waits for a rank that does not look.
const mostNotices = 1024

// NextNotice stores the next notice in buf.
func (e *endpoint) NextNotice(buf []byte) (from, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.notices) == 0 {
		return -1, 0
	}
	first := e.notices[0]
	if e.notices = e.notices[1:]; len(e.notices) == 0 {
		e.notices = nil
	}
	return first.from, copy(buf, first.text)
}

func (e *endpoint) Close() error {
	e.timer.Stop()
	return nil
}
